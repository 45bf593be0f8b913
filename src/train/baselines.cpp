// SPDX-License-Identifier: Apache-2.0
#include "train/baselines_internal.h"

#include "train/every_kth_internal.h"

#include <torch/torch.h>

#include <algorithm>
#include <span>

namespace reprise::detail {
namespace {

constexpr std::size_t kMaxWindows = 200'000;
// Fewer errors than this say little about a 10% quantile.
constexpr std::size_t kFewestErrors = 20;

std::size_t index(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

/// Linear interpolation between order statistics.
double quantile_of(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return 0.0;
  const double position = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const auto above = std::min(below + 1, sorted.size() - 1);
  const double share = position - static_cast<double>(below);
  return sorted[below] * (1 - share) + sorted[above] * share;
}

}  // namespace

NaiveForecaster::NaiveForecaster(const Dataset& dataset, std::int64_t repeated, std::int64_t season,
                                 std::vector<double> quantiles)
    : dataset_(dataset),
      repeated_(repeated),
      season_(season),
      horizon_(dataset.schema().options.horizon),
      quantiles_(std::move(quantiles)) {
  std::map<std::string, Phases> errors;
  Steps all(index(horizon_));
  for (const auto& window : every_kth(dataset.windows(Split::kTrain), kMaxWindows, season)) {
    auto& phases = errors[join_key(dataset.series_key(window))];
    phases.resize(index(season_), Steps(index(horizon_)));
    add_errors(window, phases[index(phase_of(window))]);
    add_errors(window, all);
  }
  for (auto& [series, phases] : errors) errors_[series] = error_quantiles(std::move(phases));
  all_errors_ = quantiles_of(std::move(all));
}

std::int64_t NaiveForecaster::phase_of(const Window& window) const {
  const auto frequency = dataset_.schema().frequency;
  // Calendar months differ in length: there the row says more than the time.
  const auto sample =
      frequency > 0 ? dataset_.time_at(window, 0) / frequency : std::int64_t{window.origin};
  return ((sample % season_) + season_) % season_;
}

void NaiveForecaster::add_errors(const Window& window, Steps& errors) const {
  const auto before = dataset_.history(window, repeated_);
  const Window end{window.series, window.origin + static_cast<std::int32_t>(horizon_)};
  const auto actual = dataset_.history(end, horizon_);
  for (std::size_t step = 0; step < errors.size(); ++step) {
    errors[step].push_back(actual[step] - before[step % before.size()]);
  }
}

NaiveForecaster::Steps NaiveForecaster::quantiles_of(Steps errors) const {
  Steps result;
  for (auto& values : errors) {
    std::sort(values.begin(), values.end());
    auto& quantiles = result.emplace_back();
    for (double q : quantiles_) quantiles.push_back(q == 0.5 ? 0.0 : quantile_of(values, q));
  }
  return result;
}

NaiveForecaster::Phases NaiveForecaster::error_quantiles(Phases errors) const {
  const auto has_few = [](const Steps& steps) {
    return steps[0].size() < kFewestErrors;
  };
  Phases result;
  if (std::none_of(errors.begin(), errors.end(), has_few)) {
    for (auto& steps : errors) result.push_back(quantiles_of(std::move(steps)));
    return result;
  }
  Steps together(index(horizon_));
  for (const auto& steps : errors) {
    for (std::size_t h = 0; h < together.size(); ++h) {
      together[h].insert(together[h].end(), steps[h].begin(), steps[h].end());
    }
  }
  return {quantiles_of(std::move(together))};
}

at::Tensor NaiveForecaster::forecast(std::span<const Window> windows) const {
  const auto quantile_count = static_cast<std::int64_t>(quantiles_.size());
  auto result = torch::empty({std::ssize(windows), horizon_, quantile_count}, torch::kDouble);
  auto values = result.accessor<double, 3>();
  for (std::size_t w = 0; w < windows.size(); ++w) {
    const auto before = dataset_.history(windows[w], repeated_);
    const auto it = errors_.find(join_key(dataset_.series_key(windows[w])));
    const auto phase = index(phase_of(windows[w]));
    const auto& errors = it == errors_.end()      ? all_errors_
                         : it->second.size() == 1 ? it->second[0]
                                                  : it->second[phase];
    for (std::size_t step = 0; step < index(horizon_); ++step) {
      // A series shorter than a season repeats what it has.
      const double value = before[step % before.size()];
      for (std::size_t q = 0; q < quantiles_.size(); ++q) {
        values[static_cast<std::int64_t>(w)][static_cast<std::int64_t>(step)]
              [static_cast<std::int64_t>(q)] = value + errors[step][q];
      }
    }
  }
  return result;
}

}  // namespace reprise::detail
