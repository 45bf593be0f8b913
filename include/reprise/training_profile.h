// SPDX-License-Identifier: Apache-2.0
/// Measure what a training does with memory and time, layer by layer, on the user's own model and
/// batch.
#pragma once

#include "reprise/batch_plan.h"
#include "reprise/dataset.h"
#include "reprise/memory_timeline.h"
#include "reprise/tft.h"
#include "reprise/trainer.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace reprise {

/// One layer of a training step.
struct LayerCost {
  std::string name;              ///< one of `layer_names`, or "between layers"
  std::int64_t plain_bytes = 0;  ///< activations saved for backward when it is not recomputed
  std::int64_t kept_bytes = 0;   ///< of them when it is recomputed
  double forward_ms = 0.0;
  double recompute_ms = 0.0;     ///< what recomputing it adds to a step
  bool is_checkpointed = false;  ///< in the tier that was asked for
  std::string reason;            ///< why, or why not: "tier aggressive", "in no tier", ...

  std::int64_t saved_bytes() const { return plain_bytes - kept_bytes; }
  /// Megabytes (10^6) that recomputing it saves for each percent of a step of `step_ms`; infinite
  /// where it takes no time.
  double megabytes_per_percent(double step_ms) const;
};

/// A training step as it was measured.
struct TrainingProfile {
  std::int64_t batch_size = 0;
  Checkpointing checkpointing = Checkpointing::kOff;
  std::vector<LayerCost> layers;  ///< in the order of a forward pass
  double plain_step_ms = 0.0;     ///< without recomputation
  double step_ms = 0.0;           ///< as asked for
  std::int64_t start_bytes = 0;   ///< before the step
  std::int64_t peak_bytes = 0;    ///< in the step, all tensors
  double average_bytes = 0.0;     ///< over the time of the step
  std::int64_t out_of_memory_events = 0;
  MemoryBreakdown at_peak;
  std::string peak_phase;                 ///< data, forward, backward or optimizer
  double peak_ms = 0.0;                   ///< since the start of the step
  std::int64_t outside_ledger_bytes = 0;  ///< resident memory that is no tensor's, after the step
  std::shared_ptr<const MemoryTimeline> timeline;  ///< of the step
};

/// Runs some steps of a training of a new model of `model`, with and without recomputation.
/// `repetitions`: each time is the least of that many. Sets the seed of LibTorch's default
/// generator. Throws as `train` does, and `BudgetError` when a step does not fit.
TrainingProfile profile_training(const TftOptions& model, const Dataset& dataset,
                                 const TrainOptions& options, int repetitions = 3);

/// Records steps of a training at a few small batch sizes, from before its model is made: what its
/// peak will be at any other. The tensors that the process has already are part of it. Within the
/// budget of `options`; where not even steps of four windows fit into it, without it, in at most
/// 90% of the memory that the system has. With checkpointing auto, whose peak is the limit: those
/// of aggressive. Throws as `train` does.
PeakModel measure_peaks(const TftOptions& model, const Dataset& dataset,
                        const TrainOptions& options);

/// Some steps of a training with checkpointing auto within the budget of `options`, or within most
/// of the memory that the system has: the graph of a step, which does not depend on the budget, and
/// its plan. None where such steps cannot be planned. Throws as `train` does, and `BudgetError`
/// when a step does not fit.
std::optional<RematStep> record_training_step(const TftOptions& model, const Dataset& dataset,
                                              TrainOptions options);

/// The largest batch whose steps fit into a limit, found by running them.
struct LargestBatch {
  std::int64_t batch_size = 0;      ///< 0: not even one window fits
  std::int64_t peak_bytes = 0;      ///< measured at that size
  std::int64_t foretold_size = 0;   ///< by `measure_peaks` alone
  bool is_limited_by_most = false;  ///< more would fit
};

/// Corrects what `peaks` foretell for `limit_bytes` by training two steps at that size and its
/// neighbours, until it is known that `batch_size` fits and the next does not. `most`: no more than
/// that is asked for, nor more than there are training windows.
LargestBatch find_largest_batch(const PeakModel& peaks, const TftOptions& model,
                                const Dataset& dataset, const TrainOptions& options,
                                std::int64_t limit_bytes,
                                std::int64_t most = PeakModel::kMostSamples);

}  // namespace reprise
