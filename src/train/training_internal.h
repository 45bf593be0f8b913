// SPDX-License-Identifier: Apache-2.0
/// One run of `train`.
#pragma once

#include "reprise/dataset.h"
#include "reprise/memory_budget.h"
#include "reprise/trainer.h"
#include "train/training_step_internal.h"
#include "train/weights_internal.h"

#include <chrono>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <vector>

namespace reprise::detail {

/// The memory that a training keeps from step to step is there once it is made (optimiser, best and
/// averaged weights), and that of its batches at the beginning of an epoch.
class Training {
 public:
  using OnStep = std::function<bool(const StepReport&)>;

  /// Throws `DataError` when no window fits into the training rows, and `BudgetError`.
  Training(TemporalFusionTransformer& model, const Dataset& dataset, const TrainOptions& options,
           OnStep on_step = {});

  TrainResult run();

  /// The first `count` steps, or as many as an epoch has, without evaluations. Throws as `train`
  /// where a loss is not finite.
  void run_steps(std::int64_t count);
  /// Forward and backward of the first step, as far as it takes to see its peak.
  void try_step();
  /// Whether a step that does not fit is started again in a smaller way (it is).
  void set_may_retry(bool may_retry) { training_step_->may_retry = may_retry; }
  /// With checkpointing auto, its last step that went by a plan.
  std::optional<RematStep> planned_step() const {
    const auto& rematerializer = training_step_->rematerializer();
    return rematerializer ? rematerializer->planned_step() : std::nullopt;
  }
  /// Its budget no longer holds, and the next step with checkpointing auto is its first.
  void forget_rematerializer() { training_step_->forget_rematerializer(); }
  /// The step's phases, and "data" while it waits for its batch.
  void set_on_phase(std::function<void(const std::string&)> on_phase);

 private:
  bool is_over() const { return is_stopped_ || step_ >= total_steps_; }
  void run_epoch(std::int64_t epoch);
  using UseBatch = std::function<void(const Batch&, std::span<const Window>)>;
  void for_first_batches(std::int64_t count, const UseBatch& use);
  double run_step(const Batch& batch);
  double lr() const;
  void report(std::int64_t epoch, double train_loss);
  void stop(StopReason reason);
  void validate(StepReport& report);
  double validation_loss();
  void finish();
  void restore_best();
  [[noreturn]] void fail_on_loss(std::span<const Window> windows);
  [[noreturn]] void fail_on_valid_loss();

  TemporalFusionTransformer& model_;
  const Dataset& dataset_;
  const TrainOptions& options_;
  OnStep on_step_;
  torch::Device device_;
  std::optional<MemoryBudget> budget_;
  std::int64_t refusals_before_ = 0;
  std::vector<Window> train_windows_;
  std::vector<Window> valid_windows_;
  std::mt19937_64 order_;
  std::optional<TrainingStep> training_step_;
  std::optional<AveragedWeights> average_;
  std::optional<WeightCopy> best_;
  std::function<void(const std::string&)> on_phase_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::int64_t total_steps_ = 0;
  std::int64_t validate_every_ = 0;
  std::int64_t step_ = 0;
  std::int64_t evaluations_without_gain_ = 0;
  bool has_best_ = false;
  bool is_stopped_ = false;
  TrainResult result_;
};

/// A budget for finding out how much is needed: what is in use, and 90% of what the system says it
/// has.
std::int64_t usable_memory_bytes();

/// The windows of the first epoch, in its order; how they are gathered.
std::vector<Window> first_epoch_windows(const Dataset& dataset, const TrainOptions& options);
GatherOptions gather_options(const TrainOptions& options, std::int64_t epoch);

}  // namespace reprise::detail
