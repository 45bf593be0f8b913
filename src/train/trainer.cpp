// SPDX-License-Identifier: Apache-2.0
#include "reprise/trainer.h"

#include "reprise/errors.h"
#include "reprise/quantile_loss.h"
#include "tft/require_internal.h"
#include "train/device_internal.h"
#include "train/every_kth_internal.h"
#include "train/weights_internal.h"

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <numbers>
#include <optional>
#include <random>
#include <span>

namespace reprise {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Enough windows for a steady estimate; all of a long table's would cost more than training.
constexpr std::size_t kMaxValidWindows = 4096;
constexpr double kWarmUpShare = 0.05;
// Farther than any number of epochs: seed 1 in its second epoch is not seed 2 in its first.
constexpr std::uint64_t kSeedsApart = 1'000'003;
constexpr std::int64_t kMostEpochs = 1'000'000;
constexpr std::int64_t kMostBatch = std::int64_t{1} << 24;
constexpr std::int64_t kMostLoaderThreads = 256;

/// Fisher-Yates with a generator whose sequence the standard fixes, so that the order depends on
/// the seed alone.
void shuffle(std::vector<Window>& windows, std::mt19937_64& generator) {
  for (std::size_t i = windows.size(); i > 1; --i)
    std::swap(windows[i - 1], windows[generator() % i]);
}

std::vector<Window> training_windows(const Dataset& dataset) {
  auto windows = dataset.windows(Split::kTrain);
  if (windows.empty()) {
    throw DataError(
        "train: no window fits into the training rows; use a shorter encoder or horizon, or more "
        "rows");
  }
  return windows;
}

GatherOptions gather_options(const TrainOptions& options, std::int64_t epoch) {
  return {.unknown_rate = options.unknown_rate,
          .seed = options.seed * kSeedsApart + static_cast<std::uint64_t>(epoch)};
}

std::string describe(const Dataset& dataset, std::span<const Window> windows) {
  std::string text;
  for (const auto& window : windows.first(std::min<std::size_t>(windows.size(), 3)))
    text += (text.empty() ? "" : "; ") + dataset.describe(window);
  return text;
}

/// One run of `train`.
class Training {
 public:
  Training(TemporalFusionTransformer& model, const Dataset& dataset, const TrainOptions& options,
           const std::function<bool(const StepReport&)>& on_step)
      : model_(model),
        dataset_(dataset),
        options_(options),
        on_step_(on_step),
        device_(options.device),
        train_windows_(training_windows(dataset)),
        valid_windows_(detail::every_kth(dataset.windows(Split::kValid), kMaxValidWindows,
                                         season_length(dataset.schema()))),
        order_(options.seed) {
    const auto steps_per_epoch =
        (std::ssize(train_windows_) + options.batch_size - 1) / options.batch_size;
    total_steps_ = options.epochs * steps_per_epoch;
    if (options.max_steps > 0) total_steps_ = std::min(total_steps_, options.max_steps);
    validate_every_ = options.validate_every > 0 ? options.validate_every : steps_per_epoch;
    model_->to(device_);
    adam_ = std::make_unique<torch::optim::AdamW>(
        model_->parameters(),
        torch::optim::AdamWOptions(options.lr).weight_decay(options.weight_decay));
    if (options.average_decay > 0) average_.emplace(*model_, options.average_decay);
    torch::manual_seed(options.seed);
  }

  TrainResult run() {
    for (std::int64_t epoch = 0; epoch < options_.epochs && !is_over(); ++epoch) run_epoch(epoch);
    if (best_) {
      best_->restore(*model_);
    } else if (average_) {
      average_->swap(*model_);
    }
    result_.steps = step_;
    return result_;
  }

 private:
  bool is_over() const { return is_stopped_ || step_ >= total_steps_; }

  void run_epoch(std::int64_t epoch) {
    shuffle(train_windows_, order_);
    BatchLoader loader(dataset_, train_windows_, options_.batch_size,
                       static_cast<int>(options_.loader_threads), gather_options(options_, epoch));
    Batch batch;
    std::size_t first = 0;
    for (auto started = Clock::now(); !is_over() && loader.next(batch); started = Clock::now()) {
      const auto count = static_cast<std::size_t>(batch.target.size(0));
      const double loss = run_step(detail::to_device(batch, device_));
      if (!std::isfinite(loss)) fail_on_loss(std::span(train_windows_).subspan(first, count));
      first += count;
      result_.windows += static_cast<std::int64_t>(count);
      result_.train_s += seconds_since(started);
      report(epoch, loss);
    }
    result_.loader_wait_s += loader.wait_s();
  }

  double run_step(const Batch& batch) {
    set_lr();
    model_->train();
    adam_->zero_grad();
    const auto loss =
        quantile_loss(model_->forward(batch.input), batch.target, model_->options().quantiles);
    const auto value = loss.item<double>();
    if (!std::isfinite(value)) return value;
    loss.backward();
    if (options_.clip_norm > 0)
      torch::nn::utils::clip_grad_norm_(model_->parameters(), options_.clip_norm);
    adam_->step();
    if (average_) average_->update(*model_);
    ++step_;
    return value;
  }

  [[noreturn]] void fail_on_loss(std::span<const Window> windows) {
    if (best_) best_->restore(*model_);
    throw std::runtime_error(
        c10::str("the loss is not finite at step ", step_ + 1, " (", windows.size(),
                 windows.size() == 1 ? " window: " : " windows: ", describe(dataset_, windows),
                 "); use a smaller lr or a smaller clip_norm, or look at these rows"));
  }

  [[noreturn]] void fail_on_valid_loss() {
    if (best_) best_->restore(*model_);
    throw std::runtime_error(c10::str("the loss on the validation rows is not finite after step ",
                                      step_, "; use a smaller lr or a smaller clip_norm"));
  }

  void set_lr() {
    if (options_.schedule != "cosine") return;
    const double done = static_cast<double>(step_) / static_cast<double>(total_steps_);
    const double factor =
        done < kWarmUpShare
            ? (done + 1.0 / static_cast<double>(total_steps_)) / kWarmUpShare
            : 0.5 * (1 + std::cos(std::numbers::pi * (done - kWarmUpShare) / (1 - kWarmUpShare)));
    for (auto& group : adam_->param_groups())
      group.options().set_lr(options_.lr * std::min(factor, 1.0));
  }

  void report(std::int64_t epoch, double train_loss) {
    StepReport report{.step = step_,
                      .total_steps = total_steps_,
                      .epoch = epoch,
                      .train_loss = train_loss,
                      .valid_loss = std::numeric_limits<double>::quiet_NaN()};
    if (step_ % validate_every_ == 0 || step_ == total_steps_) validate(report);
    report.elapsed_s = seconds_since(started_);
    report.windows_per_s = static_cast<double>(result_.windows) / std::max(result_.train_s, 1e-9);
    if (on_step_ && !on_step_(report)) stop(StopReason::kInterrupted);
  }

  void stop(StopReason reason) {
    is_stopped_ = true;
    result_.reason = reason;
  }

  void validate(StepReport& report) {
    if (average_) average_->swap(*model_);
    if (!valid_windows_.empty()) {
      report.valid_loss = validation_loss();
      if (!std::isfinite(report.valid_loss)) fail_on_valid_loss();
    }
    const bool is_better = !(result_.best_valid_loss <= report.valid_loss);  // true when NaN
    if (valid_windows_.empty() || !best_ || is_better) {
      report.is_best = true;
      result_.best_valid_loss = report.valid_loss;
      result_.best_step = step_;
      best_.emplace(*model_);
      evaluations_without_gain_ = 0;
    } else if (++evaluations_without_gain_ >= options_.patience) {
      stop(StopReason::kEarlyStop);
    }
    if (average_) average_->swap(*model_);
  }

  double validation_loss() {
    const torch::NoGradGuard no_grad;
    model_->eval();
    BatchLoader loader(dataset_, valid_windows_, kValidBatch,
                       static_cast<int>(options_.loader_threads));
    Batch batch;
    double sum = 0;
    while (loader.next(batch)) {
      const auto on_device = detail::to_device(batch, device_);
      const auto loss = quantile_loss(model_->forward(on_device.input), on_device.target,
                                      model_->options().quantiles);
      sum += loss.item<double>() * static_cast<double>(batch.target.size(0));
    }
    return sum / static_cast<double>(valid_windows_.size());
  }

  static constexpr std::int64_t kValidBatch = 128;

  TemporalFusionTransformer& model_;
  const Dataset& dataset_;
  const TrainOptions& options_;
  const std::function<bool(const StepReport&)>& on_step_;
  torch::Device device_;
  std::vector<Window> train_windows_;
  std::vector<Window> valid_windows_;
  std::mt19937_64 order_;
  std::unique_ptr<torch::optim::AdamW> adam_;  // with weight decay 0: Adam
  std::optional<detail::AveragedWeights> average_;
  std::optional<detail::WeightCopy> best_;
  Clock::time_point started_ = Clock::now();
  std::int64_t total_steps_ = 0;
  std::int64_t validate_every_ = 0;
  std::int64_t step_ = 0;
  std::int64_t evaluations_without_gain_ = 0;
  bool is_stopped_ = false;
  TrainResult result_;
};

}  // namespace

void TrainOptions::validate() const {
  using detail::require;
  // The bounds keep products such as epochs x steps within 64 bits.
  require(epochs >= 1 && epochs <= kMostEpochs, "epochs", "1 to 1000000", epochs);
  require(batch_size >= 1 && batch_size <= kMostBatch, "batch_size", "1 to 16777216 windows",
          batch_size);
  require(std::isfinite(lr) && lr > 0, "lr", "a positive number", lr);
  require(schedule == "constant" || schedule == "cosine", "schedule", "constant or cosine",
          schedule);
  require(std::isfinite(clip_norm) && clip_norm >= 0, "clip_norm", "0 (no clipping) or more",
          clip_norm);
  require(std::isfinite(weight_decay) && weight_decay >= 0, "weight_decay", "0 or more",
          weight_decay);
  require(average_decay >= 0 && average_decay < 1, "average_decay", "a number in [0, 1)",
          average_decay);
  require(unknown_rate >= 0 && unknown_rate < 1, "unknown_rate", "a number in [0, 1)",
          unknown_rate);
  require(patience >= 1, "patience", "at least 1 evaluation", patience);
  require(max_steps >= 0, "max_steps", "0 (no limit) or more", max_steps);
  require(validate_every >= 0, "validate_every", "0 (once per epoch) or more", validate_every);
  require(loader_threads >= 0 && loader_threads <= kMostLoaderThreads, "loader_threads",
          "a number from 0 to 256", loader_threads);
}

TrainResult train(TemporalFusionTransformer& model, const Dataset& dataset,
                  const TrainOptions& options,
                  const std::function<bool(const StepReport&)>& on_step) {
  options.validate();
  return Training(model, dataset, options, on_step).run();
}

Batch first_training_batch(const Dataset& dataset, const TrainOptions& options) {
  options.validate();
  auto windows = training_windows(dataset);
  std::mt19937_64 order(options.seed);
  shuffle(windows, order);
  BatchLoader loader(dataset, std::move(windows), options.batch_size, 0,
                     gather_options(options, 0));
  Batch batch;
  loader.next(batch);
  return detail::to_device(std::move(batch), torch::Device(options.device));
}

}  // namespace reprise
