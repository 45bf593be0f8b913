// SPDX-License-Identifier: Apache-2.0
/// Train a Temporal Fusion Transformer on a data set: Adam, clipping, early stopping, the best
/// model kept.
#pragma once

#include "reprise/dataset.h"
#include "reprise/rematerializer.h"
#include "reprise/tft.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace reprise {

struct TrainOptions {
  std::int64_t epochs = 20;
  std::int64_t batch_size = 64;  ///< windows per step
  /// Windows per forward and backward pass; the gradients of several passes are added up. 0:
  /// `batch_size`.
  std::int64_t micro_batch_size = 0;
  /// Most bytes that all tensors may take at any moment (`MemoryBudget`); 0: no limit.
  std::int64_t memory_budget_bytes = 0;
  double lr = 1e-3;  ///< Adam's step size at its highest
  std::string schedule =
      "cosine";  ///< constant, or cosine: from `lr` to 0 over all steps, after a short warm-up
  double clip_norm = 1.0;  ///< largest 2-norm of all gradients together; 0: no clipping
  double weight_decay = 0.0;
  double average_decay =
      0.0;  ///< per step, of the averaged weights that are evaluated and kept; 0: none
  /// Share of a window's categories that read as unknown in training, so that the model has learnt
  /// what to do with a category it has not seen.
  double unknown_rate = 0.01;
  std::int64_t patience = 5;        ///< evaluations without improvement before training stops
  std::int64_t max_steps = 0;       ///< 0: no limit but `epochs`
  std::int64_t validate_every = 0;  ///< steps between two evaluations; 0: once per epoch
  std::int64_t loader_threads = 1;
  std::uint64_t seed = 1;      ///< of weights, order of windows, and dropout
  std::string device = "cpu";  ///< cpu or cuda[:N]

  /// Throws `OptionError` naming the first field out of range.
  void validate() const;
};

/// A step that did not fit into memory and was started again in a way that takes less, as all steps
/// after it are.
struct MemoryRetry {
  std::int64_t step = 0;                              ///< from 1
  Checkpointing checkpointing = Checkpointing::kOff;  ///< from then on
  std::int64_t micro_batch_size = 0;                  ///< from then on
  std::int64_t needed_bytes = 0;                      ///< at least, before
  std::int64_t allowed_bytes = 0;
};

/// What the caller hears after every step (`valid_loss` is NaN but after an evaluation).
struct StepReport {
  std::int64_t step = 0;  ///< steps done
  std::int64_t total_steps = 0;
  std::int64_t epoch = 0;  ///< from 0
  double train_loss = 0.0;
  double valid_loss = 0.0;
  bool is_best = false;
  double windows_per_s = 0.0;
  double elapsed_s = 0.0;
  std::vector<MemoryRetry> retries = {};  ///< of this step
};

enum class StopReason { kFinished, kEarlyStop, kInterrupted };

struct TrainResult {
  StopReason reason = StopReason::kFinished;
  std::int64_t steps = 0;
  double best_valid_loss =
      std::numeric_limits<double>::quiet_NaN();  ///< NaN while nothing was evaluated
  std::int64_t best_step = 0;
  double train_s = 0.0;        ///< time in steps and waiting for batches, evaluations left out
  double loader_wait_s = 0.0;  ///< of which the step waited for its batch
  std::int64_t windows = 0;    ///< trained on
  Checkpointing checkpointing = Checkpointing::kOff;  ///< of the last step
  std::int64_t micro_batch_size = 0;                  ///< of the last step
  std::vector<MemoryRetry> retries = {};
  /// Most that all tensors took (`MemoryStats::peak_bytes`); above the budget only where that is
  /// not hard (`MemoryBudget`).
  std::int64_t peak_bytes = 0;
  std::int64_t out_of_memory_events = 0;
  RematerializerStats rematerializer = {};               ///< of checkpointing auto
  std::optional<RematStep> planned_step = std::nullopt;  ///< the last one, of checkpointing auto
};

/// Trains `model` in place and leaves the weights of the best evaluation in it.
///
/// `on_step` is called after every step; returning false stops cleanly, best weights kept. Without
/// an evaluation the last weights are kept. Sets the seed of LibTorch's default generator.
/// A step that does not fit is started again with checkpointing auto (without a budget, or on an
/// accelerator, with the next tier), then in smaller micro-batches, at last with aggressive.
/// The tier of `model` is afterwards that of the last step. Starts the peak of `memory_stats` anew.
/// Throws `BudgetError` with the smallest budget when a step does not fit into memory in any way;
/// the model then holds the weights of the best evaluation, or of the step before.
/// Throws `DataError` when no window fits into the training rows, `OptionError`, and
/// `std::runtime_error` naming step and windows when the loss is not finite; the model then
/// holds the weights of the best evaluation, or of the step before where there was none.
TrainResult train(TemporalFusionTransformer& model, const Dataset& dataset,
                  const TrainOptions& options,
                  const std::function<bool(const StepReport&)>& on_step = {});

/// The batch that the first step of `train` takes, on the device of `options`. Throws `DataError`
/// when no window fits into the training rows.
Batch first_training_batch(const Dataset& dataset, const TrainOptions& options);

/// q-risk and coverage of a forecaster, in original units.
struct Score {
  std::string name;  ///< "model", "seasonal naive (24)", "last value"
  std::vector<double> quantiles;
  std::vector<double> q_risk;    ///< per quantile
  std::vector<double> coverage;  ///< per quantile
};

/// Forecasts `windows` in batches: [windows, H, Q] float64 in original units, on the CPU, quantiles
/// sorted. Moves `model` to `device`.
at::Tensor predict(TemporalFusionTransformer& model, const Dataset& dataset,
                   const std::vector<Window>& windows, std::int64_t batch_size,
                   const std::string& device = "cpu");

/// Scores `model` and both baselines (last value, seasonal naive with residual quantiles of the
/// training rows). Moves `model` to `device`.
std::vector<Score> evaluate(TemporalFusionTransformer& model, const Dataset& dataset,
                            const std::vector<Window>& windows, std::int64_t batch_size,
                            const std::string& device = "cpu");

/// Samples per season of a frequency (24 for hourly, 7 for daily, ...); 1 when there is none.
std::int64_t season_length(const Schema& schema);

}  // namespace reprise
