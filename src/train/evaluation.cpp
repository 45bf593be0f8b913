// SPDX-License-Identifier: Apache-2.0
#include "reprise/quantile_loss.h"
#include "reprise/trainer.h"
#include "train/baselines_internal.h"
#include "train/batch_internal.h"

#include <torch/torch.h>

#include <algorithm>
#include <memory>
#include <span>

namespace reprise {
namespace {

/// Restores a module's training mode.
class EvalScope {
 public:
  explicit EvalScope(TemporalFusionTransformer& model)
      : model_(model), was_training_(model->is_training()) {
    model_->eval();
  }
  ~EvalScope() { model_->train(was_training_); }
  EvalScope(const EvalScope&) = delete;
  EvalScope& operator=(const EvalScope&) = delete;

 private:
  TemporalFusionTransformer& model_;
  bool was_training_;
};

torch::Tensor to_raw(const torch::Tensor& normalised, const Batch& batch) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(normalised.dim()), 1);
  shape[0] = normalised.size(0);
  return normalised.to(torch::kCPU, torch::kDouble) * batch.scale.to(torch::kDouble).view(shape) +
         batch.center.to(torch::kDouble).view(shape);
}

/// Calls `use(batch, forecast, windows)` with the forecast [B, H, Q] of every batch, in original
/// units.
template <typename Use>
void for_each_forecast(TemporalFusionTransformer& model, const Dataset& dataset,
                       const std::vector<Window>& windows, std::int64_t batch_size,
                       const torch::Device& device, Use use) {
  const EvalScope eval(model);
  const torch::NoGradGuard no_grad;
  model->to(device);
  BatchLoader loader(dataset, windows, batch_size);
  Batch batch;
  std::size_t first = 0;
  while (loader.next(batch)) {
    const auto normalised = model->forward(detail::to_device(batch, device).input);
    // Quantiles of one forecast may cross; sorting them is the usual remedy and never raises the
    // loss.
    const auto forecast = std::get<0>(to_raw(normalised, batch).sort(-1));
    const auto count = static_cast<std::size_t>(forecast.size(0));
    use(batch, forecast, std::span(windows).subspan(first, count));
    first += count;
  }
}

/// Forecasts that are no numbers come from weights, never from the table: that is checked when it
/// is read.
void require_finite(const torch::Tensor& forecast, const Dataset& dataset,
                    std::span<const Window> windows) {
  const auto is_finite = torch::isfinite(forecast).flatten(1).all(1);
  if (is_finite.all().item<bool>()) return;
  const auto bad = is_finite.logical_not().nonzero();
  throw std::runtime_error(
      "the forecast of " +
      dataset.describe(windows[static_cast<std::size_t>(bad[0].item<std::int64_t>())]) +
      " is not finite: the weights of the model have diverged; train it again "
      "with a smaller lr");
}

constexpr std::int64_t kMinute = 60;  // in seconds
constexpr std::int64_t kDay = 86400;
constexpr std::int64_t kWeek = 7 * kDay;
constexpr std::int64_t kWeeksPerYear = 52;

/// Samples per natural season of a distance in seconds.
std::int64_t season_of_seconds(std::int64_t seconds) {
  for (const std::int64_t season : {kMinute, kDay, kWeek}) {
    if (seconds > 0 && seconds < season && season % seconds == 0) return season / seconds;
  }
  return seconds == kWeek ? kWeeksPerYear : 1;
}

}  // namespace

std::int64_t season_length(const Schema& schema) {
  if (schema.frequency < 0)
    return std::max<std::int64_t>(1, 12 / -schema.frequency);  // calendar months
  switch (schema.time_unit) {
    case TimeUnit::kStep:
      return 1;
    case TimeUnit::kDay:
      return season_of_seconds(schema.frequency * kDay);
    case TimeUnit::kSecond:
      return season_of_seconds(schema.frequency);
    case TimeUnit::kMillisecond:
      return season_of_seconds(schema.frequency / 1'000);
    case TimeUnit::kMicrosecond:
      return season_of_seconds(schema.frequency / 1'000'000);
    case TimeUnit::kNanosecond:
      return season_of_seconds(schema.frequency / 1'000'000'000);
  }
  return 1;
}

at::Tensor predict(TemporalFusionTransformer& model, const Dataset& dataset,
                   const std::vector<Window>& windows, std::int64_t batch_size,
                   const std::string& device) {
  std::vector<torch::Tensor> forecasts;
  for_each_forecast(model, dataset, windows, batch_size, torch::Device(device),
                    [&](const Batch&, const torch::Tensor& forecast, std::span<const Window> part) {
                      require_finite(forecast, dataset, part);
                      forecasts.push_back(forecast);
                    });
  const auto& options = model->options();
  const auto quantiles = static_cast<std::int64_t>(options.quantiles.size());
  return forecasts.empty() ? torch::empty({0, options.horizon, quantiles}, torch::kDouble)
                           : torch::cat(forecasts);
}

std::vector<Score> evaluate(TemporalFusionTransformer& model, const Dataset& dataset,
                            const std::vector<Window>& windows, std::int64_t batch_size,
                            const std::string& device) {
  const auto& quantiles = model->options().quantiles;
  const auto season = season_length(dataset.schema());
  struct Entry {
    std::string name;
    std::unique_ptr<detail::NaiveForecaster> naive;
    QuantileRisk risk;
  };
  std::vector<Entry> entries;
  entries.push_back({"model", nullptr, QuantileRisk(quantiles)});
  if (season > 1) {
    entries.push_back(
        {"seasonal naive (" + std::to_string(season) + ")",
         std::make_unique<detail::NaiveForecaster>(dataset, season, season, quantiles),
         QuantileRisk(quantiles)});
  }
  entries.push_back({"last value",
                     std::make_unique<detail::NaiveForecaster>(dataset, 1, season, quantiles),
                     QuantileRisk(quantiles)});

  for_each_forecast(
      model, dataset, windows, batch_size, torch::Device(device),
      [&](const Batch& batch, const torch::Tensor& forecast, std::span<const Window> part) {
        require_finite(forecast, dataset, part);
        const auto actual = to_raw(batch.target, batch);
        for (auto& entry : entries) {
          entry.risk.add(entry.naive ? entry.naive->forecast(part) : forecast, actual);
        }
      });

  std::vector<Score> scores;
  for (const auto& entry : entries) {
    scores.push_back({entry.name, quantiles, entry.risk.risk(), entry.risk.coverage()});
  }
  return scores;
}

}  // namespace reprise
