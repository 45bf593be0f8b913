// SPDX-License-Identifier: Apache-2.0
/// One step of training, in as little memory as there is.
#pragma once

#include "reprise/dataset.h"
#include "reprise/rematerializer.h"
#include "reprise/tft.h"
#include "reprise/trainer.h"
#include "train/adam_internal.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace reprise::detail {

/// Forward, backward and optimiser of one batch. A step that does not fit into memory is started
/// again, bit for bit, with auto, then in ever smaller micro-batches, and at last, those of one
/// window, with aggressive. Without a budget, and on devices where nothing is let go
/// (`Rematerializer`), the tiers minimal and aggressive take the place of auto. The steps after it
/// begin where it ended.
class TrainingStep {
 public:
  /// Labels the memory of the parameters, and makes the optimiser's state.
  TrainingStep(TemporalFusionTransformer& model, const TrainOptions& options);

  /// The loss. Where it is not finite, nothing is changed. Throws `BudgetError` when the step does
  /// not fit in the smallest way either: weights and random numbers are then as before, tier and
  /// micro-batches those of the last try.
  double run(const Batch& batch, double lr);

  /// Some forward and backward passes alone, as the steps are now: the peak is a step's.
  void try_backward(const Batch& batch);

  std::int64_t micro_batch_size() const { return micro_batch_size_; }
  /// While checkpointing is auto.
  const std::optional<Rematerializer>& rematerializer() const { return rematerializer_; }
  void forget_rematerializer() { rematerializer_.reset(); }
  /// What did not fit since the last call.
  std::vector<MemoryRetry> take_retries();

  bool may_retry = true;
  /// Called as a phase begins: forward, backward or optimizer.
  std::function<void(const std::string& phase)> on_phase;

 private:
  /// What an operator that was refused asked for.
  struct Shortage {
    std::int64_t needed_bytes = 0;
    std::int64_t allowed_bytes = 0;
    std::string what;
  };

  std::optional<Shortage> attempt(const Batch& batch, double& loss);
  double run_passes(const Batch& batch);
  double run_pass(const Batch& batch, double share);
  bool use_less_memory(std::int64_t batch_size);
  std::optional<Checkpointing> next_tier() const;
  torch::Tensor loss_of(const std::function<torch::Tensor()>& forward);
  void begin_phase(const char* name) const;

  TemporalFusionTransformer& model_;
  const TrainOptions& options_;
  Adam adam_;
  std::int64_t micro_batch_size_;
  std::optional<Rematerializer> rematerializer_;  ///< while checkpointing is auto
  bool has_tried_auto_ = false;
  std::int64_t step_ = 0;
  std::vector<MemoryRetry> retries_;
};

}  // namespace reprise::detail
