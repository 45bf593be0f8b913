// SPDX-License-Identifier: Apache-2.0
#include "train/baselines_internal.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace reprise::detail {
namespace {

/// Linear interpolation between order statistics; sorts `values`.
std::vector<double> quantiles_of(std::vector<double>& values,
                                 const std::vector<double>& quantiles) {
  if (values.empty()) return std::vector<double>(quantiles.size(), 0.0);
  std::sort(values.begin(), values.end());
  std::vector<double> result;
  for (double q : quantiles) {
    const double position = q * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(position);
    const auto above = std::min(below + 1, values.size() - 1);
    const double share = position - static_cast<double>(below);
    result.push_back(values[below] * (1 - share) + values[above] * share);
  }
  return result;
}

/// Raw training rows of every run of rows, by series.
std::map<std::string, std::vector<std::vector<double>>> training_runs(const Dataset& dataset) {
  std::map<std::int32_t, Window> last;
  for (const auto& window : dataset.windows(Split::kTrain)) {
    auto [it, is_new] = last.try_emplace(window.series, window);
    if (!is_new && window.origin > it->second.origin) it->second = window;
  }
  std::map<std::string, std::vector<std::vector<double>>> runs;
  for (const auto& [series, window] : last) {
    // The rows before a window that starts where the training rows end.
    const auto horizon = static_cast<std::int32_t>(dataset.schema().options.horizon);
    const Window end{window.series, window.origin + horizon};
    runs[join_key(dataset.series_key(window))].push_back(
        dataset.history(end, std::numeric_limits<std::int64_t>::max()));
  }
  return runs;
}

}  // namespace

SeasonalNaive::SeasonalNaive(const Dataset& dataset, std::int64_t season,
                             std::vector<double> quantiles)
    : dataset_(dataset),
      season_(season),
      horizon_(dataset.schema().options.horizon),
      quantiles_(std::move(quantiles)) {
  std::vector<std::vector<double>> all_runs;
  for (auto& [series, runs] : training_runs(dataset)) {
    errors_[series] = error_quantiles(runs);
    all_runs.insert(all_runs.end(), std::make_move_iterator(runs.begin()),
                    std::make_move_iterator(runs.end()));
  }
  all_errors_ = error_quantiles(all_runs);
}

SeasonalNaive::ErrorQuantiles SeasonalNaive::error_quantiles(
    const std::vector<std::vector<double>>& runs) const {
  ErrorQuantiles result;
  for (std::int64_t step = 1; step <= horizon_; ++step) {
    if (step > 1 && lag(step) == lag(step - 1)) {
      result.push_back(result.back());
      continue;
    }
    const auto distance = static_cast<std::size_t>(lag(step));
    std::vector<double> errors;
    for (const auto& run : runs) {
      for (std::size_t t = distance; t < run.size(); ++t)
        errors.push_back(run[t] - run[t - distance]);
    }
    result.push_back(quantiles_of(errors, quantiles_));
  }
  return result;
}

const SeasonalNaive::ErrorQuantiles& SeasonalNaive::errors_of(const std::string& series) const {
  const auto it = errors_.find(series);
  return it == errors_.end() ? all_errors_ : it->second;
}

at::Tensor SeasonalNaive::forecast(std::span<const Window> windows) const {
  const auto quantile_count = static_cast<std::int64_t>(quantiles_.size());
  auto result = torch::empty({static_cast<std::int64_t>(windows.size()), horizon_, quantile_count},
                             torch::kDouble);
  auto values = result.accessor<double, 3>();
  for (std::size_t w = 0; w < windows.size(); ++w) {
    const auto season = dataset_.history(windows[w], season_);
    const auto& errors = errors_of(join_key(dataset_.series_key(windows[w])));
    for (std::int64_t step = 0; step < horizon_; ++step) {
      // A series shorter than a season repeats what it has.
      const double last = season[static_cast<std::size_t>(step) % season.size()];
      for (std::int64_t q = 0; q < quantile_count; ++q) {
        values[static_cast<std::int64_t>(w)][step][q] =
            last + errors[static_cast<std::size_t>(step)][static_cast<std::size_t>(q)];
      }
    }
  }
  return result;
}

}  // namespace reprise::detail
