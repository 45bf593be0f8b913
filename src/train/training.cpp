// SPDX-License-Identifier: Apache-2.0
#include "train/training_internal.h"

#include "autograd/out_of_memory.h"
#include "reprise/errors.h"
#include "reprise/memory.h"
#include "reprise/quantile_loss.h"
#include "train/batch_internal.h"
#include "train/every_kth_internal.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

namespace reprise::detail {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Enough windows for a steady estimate; all of a long table's would cost more than training.
constexpr std::size_t kMaxValidWindows = 4096;
constexpr std::int64_t kValidBatch = 128;
constexpr double kWarmUpShare = 0.05;
// Farther than any number of epochs: seed 1 in its second epoch is not seed 2 in its first.
constexpr std::uint64_t kSeedsApart = 1'000'003;

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

std::string describe(const Dataset& dataset, std::span<const Window> windows) {
  std::string text;
  for (const auto& window : windows.first(std::min<std::size_t>(windows.size(), 3)))
    text += (text.empty() ? "" : "; ") + dataset.describe(window);
  return text;
}

}  // namespace

GatherOptions gather_options(const TrainOptions& options, std::int64_t epoch) {
  return {.unknown_rate = options.unknown_rate,
          .seed = options.seed * kSeedsApart + static_cast<std::uint64_t>(epoch)};
}

std::vector<Window> first_epoch_windows(const Dataset& dataset, const TrainOptions& options) {
  auto windows = training_windows(dataset);
  std::mt19937_64 order(options.seed);
  shuffle(windows, order);
  return windows;
}

std::int64_t usable_memory_bytes() {
  constexpr double kUsableShare = 0.9;
  const auto available = static_cast<double>(available_memory_bytes());
  return memory_stats().current_bytes + static_cast<std::int64_t>(kUsableShare * available);
}

Training::Training(TemporalFusionTransformer& model, const Dataset& dataset,
                   const TrainOptions& options, OnStep on_step)
    : model_(model),
      dataset_(dataset),
      options_(options),
      on_step_(std::move(on_step)),
      device_(options.device),
      train_windows_(training_windows(dataset)),
      valid_windows_(every_kth(dataset.windows(Split::kValid), kMaxValidWindows,
                               season_length(dataset.schema()))),
      order_(options.seed) {
  model_->to(device_);  // before its allocator is asked for figures
  reset_peak_memory(device_);
  if (options.memory_budget_bytes > 0) budget_.emplace(options.memory_budget_bytes, device_);
  const auto steps_per_epoch =
      (std::ssize(train_windows_) + options.batch_size - 1) / options.batch_size;
  total_steps_ = options.epochs * steps_per_epoch;
  if (options.max_steps > 0) total_steps_ = std::min(total_steps_, options.max_steps);
  validate_every_ = options.validate_every > 0 ? options.validate_every : steps_per_epoch;
  refusals_before_ = memory_stats(device_).out_of_memory_events;
  training_step_.emplace(model_, options);
  best_.emplace(*model_);
  if (options.average_decay > 0) average_.emplace(*model_, options.average_decay);
  torch::manual_seed(options.seed);
}

TrainResult Training::run() {
  try {
    for (std::int64_t epoch = 0; epoch < options_.epochs && !is_over(); ++epoch) run_epoch(epoch);
  } catch (const std::exception& error) {
    if (is_out_of_memory(error)) restore_best();
    throw;
  }
  if (has_best_) {
    best_->restore();
  } else if (average_) {
    average_->swap();
  }
  finish();
  return result_;
}

void Training::finish() {
  const auto memory = memory_stats(device_);
  result_.steps = step_;
  result_.checkpointing = model_->options().checkpointing;
  result_.micro_batch_size = training_step_->micro_batch_size();
  result_.peak_bytes = memory.peak_bytes;
  if (const auto& rematerializer = training_step_->rematerializer())
    result_.rematerializer = rematerializer->stats();
  result_.planned_step = planned_step();
  result_.out_of_memory_events = memory.out_of_memory_events - refusals_before_;
}

void Training::run_steps(std::int64_t count) {
  total_steps_ = count;
  for_first_batches(count, [&](const Batch& batch, std::span<const Window> windows) {
    if (!std::isfinite(run_step(batch))) fail_on_loss(windows);
  });
}

void Training::try_step() {
  for_first_batches(
      1, [&](const Batch& batch, std::span<const Window>) { training_step_->try_backward(batch); });
}

void Training::for_first_batches(std::int64_t count, const UseBatch& use) {
  shuffle(train_windows_, order_);
  BatchLoader loader(dataset_, train_windows_, options_.batch_size,
                     static_cast<int>(options_.loader_threads), gather_options(options_, 0));
  Batch batch;
  std::size_t first = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (on_phase_) on_phase_("data");
    if (!loader.next(batch)) return;
    const auto size = static_cast<std::size_t>(batch.target.size(0));
    use(to_device(batch, device_), std::span(train_windows_).subspan(first, size));
    first += size;
  }
}

void Training::set_on_phase(std::function<void(const std::string&)> on_phase) {
  on_phase_ = std::move(on_phase);
  training_step_->on_phase = on_phase_;
}

void Training::run_epoch(std::int64_t epoch) {
  shuffle(train_windows_, order_);
  BatchLoader loader(dataset_, train_windows_, options_.batch_size,
                     static_cast<int>(options_.loader_threads), gather_options(options_, epoch));
  Batch batch;
  std::size_t first = 0;
  for (auto started = Clock::now(); !is_over() && loader.next(batch); started = Clock::now()) {
    const auto count = static_cast<std::size_t>(batch.target.size(0));
    const double loss = run_step(to_device(batch, device_));
    if (!std::isfinite(loss)) fail_on_loss(std::span(train_windows_).subspan(first, count));
    first += count;
    result_.windows += static_cast<std::int64_t>(count);
    result_.train_s += seconds_since(started);
    report(epoch, loss);
  }
  result_.loader_wait_s += loader.wait_s();
}

double Training::run_step(const Batch& batch) {
  const double loss = training_step_->run(batch, lr());
  if (!std::isfinite(loss)) return loss;
  if (average_) average_->update();
  ++step_;
  return loss;
}

void Training::restore_best() {
  if (has_best_) best_->restore();
}

void Training::fail_on_loss(std::span<const Window> windows) {
  restore_best();
  throw std::runtime_error(
      c10::str("the loss is not finite at step ", step_ + 1, " (", windows.size(),
               windows.size() == 1 ? " window: " : " windows: ", describe(dataset_, windows),
               "); use a smaller lr or a smaller clip_norm, or look at these rows"));
}

void Training::fail_on_valid_loss() {
  restore_best();
  throw std::runtime_error(c10::str("the loss on the validation rows is not finite after step ",
                                    step_, "; use a smaller lr or a smaller clip_norm"));
}

double Training::lr() const {
  if (options_.schedule != "cosine") return options_.lr;
  const double done = static_cast<double>(step_) / static_cast<double>(total_steps_);
  const double factor =
      done < kWarmUpShare
          ? (done + 1.0 / static_cast<double>(total_steps_)) / kWarmUpShare
          : 0.5 * (1 + std::cos(std::numbers::pi * (done - kWarmUpShare) / (1 - kWarmUpShare)));
  return options_.lr * std::min(factor, 1.0);
}

void Training::report(std::int64_t epoch, double train_loss) {
  StepReport report{.step = step_,
                    .total_steps = total_steps_,
                    .epoch = epoch,
                    .train_loss = train_loss,
                    .valid_loss = std::numeric_limits<double>::quiet_NaN()};
  report.retries = training_step_->take_retries();
  result_.retries.insert(result_.retries.end(), report.retries.begin(), report.retries.end());
  if (step_ % validate_every_ == 0 || step_ == total_steps_) validate(report);
  report.elapsed_s = seconds_since(started_);
  report.windows_per_s = static_cast<double>(result_.windows) / std::max(result_.train_s, 1e-9);
  if (on_step_ && !on_step_(report)) stop(StopReason::kInterrupted);
}

void Training::stop(StopReason reason) {
  is_stopped_ = true;
  result_.reason = reason;
}

void Training::validate(StepReport& report) {
  if (average_) average_->swap();
  if (!valid_windows_.empty()) {
    report.valid_loss = validation_loss();
    if (!std::isfinite(report.valid_loss)) fail_on_valid_loss();
  }
  const bool is_better = !(result_.best_valid_loss <= report.valid_loss);  // true when NaN
  if (valid_windows_.empty() || !has_best_ || is_better) {
    report.is_best = true;
    result_.best_valid_loss = report.valid_loss;
    result_.best_step = step_;
    best_->take();
    has_best_ = true;
    evaluations_without_gain_ = 0;
  } else if (++evaluations_without_gain_ >= options_.patience) {
    stop(StopReason::kEarlyStop);
  }
  if (average_) average_->swap();
}

/// In batches no larger than those of training, and gathered one at a time: where a step fits into
/// memory, this does.
double Training::validation_loss() {
  const torch::NoGradGuard no_grad;
  model_->eval();
  BatchLoader loader(dataset_, valid_windows_,
                     std::min(kValidBatch, training_step_->micro_batch_size()), 0);
  Batch batch;
  double sum = 0;
  while (loader.next(batch)) {
    const auto on_device = to_device(batch, device_);
    const auto loss = quantile_loss(model_->forward(on_device.input), on_device.target,
                                    model_->options().quantiles);
    sum += loss.item<double>() * static_cast<double>(batch.target.size(0));
  }
  return sum / static_cast<double>(valid_windows_.size());
}

}  // namespace reprise::detail
