// SPDX-License-Identifier: Apache-2.0
#include "reprise/trainer.h"

#include "autograd/out_of_memory.h"
#include "memory/byte_text.h"
#include "reprise/errors.h"
#include "reprise/memory.h"
#include "tft/require_internal.h"
#include "train/batch_internal.h"
#include "train/smallest_budget_internal.h"
#include "train/training_internal.h"

#include <c10/util/ScopeExit.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>

namespace reprise {
namespace {

constexpr std::int64_t kMostEpochs = 1'000'000;
constexpr std::int64_t kMostBatch = std::int64_t{1} << 24;
constexpr std::int64_t kMostLoaderThreads = 256;

BudgetError too_little_memory(const BudgetError& shortage,
                              const std::optional<detail::SmallestBudget>& smallest,
                              bool has_budget) {
  const std::int64_t needed = smallest ? smallest->bytes : shortage.needed_bytes();
  const bool is_auto = smallest && smallest->checkpointing == Checkpointing::kAuto;
  const std::string allowed = detail::byte_text(shortage.allowed_bytes());
  return {needed, shortage.allowed_bytes(),
          "train: " +
              (has_budget ? allowed + " of memory are not enough"
                          : "the system has no more memory than " + allowed + " for tensors") +
              ": with checkpointing " + (is_auto ? "auto" : "aggressive") +
              " and micro-batches of one window a step of this model and batch size needs " +
              (smallest ? "" : "more than ") + detail::byte_text(needed) + "; " +
              (has_budget ? "allow that much (memory_budget = " + std::to_string(needed) + "), or "
                          : std::string()) +
              "use a smaller hidden size, encoder or batch"};
}

}  // namespace

void TrainOptions::validate() const {
  using detail::require;
  // The bounds keep products such as epochs x steps within 64 bits.
  require(epochs >= 1 && epochs <= kMostEpochs, "epochs", "1 to 1000000", epochs);
  require(batch_size >= 1 && batch_size <= kMostBatch, "batch_size", "1 to 16777216 windows",
          batch_size);
  require(micro_batch_size >= 0 && micro_batch_size <= kMostBatch, "micro_batch_size",
          "0 (the whole batch) to 16777216 windows", micro_batch_size);
  require(memory_budget_bytes >= 0, "memory_budget", "0 (no limit) or more bytes",
          memory_budget_bytes);
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
  std::optional<BudgetError> shortage;
  try {
    return detail::Training(model, dataset, options, on_step).run();
  } catch (const BudgetError& error) {
    shortage = error;
  } catch (const std::exception& error) {
    if (!detail::is_out_of_memory(error)) throw;
    const std::int64_t in_use = memory_stats(torch::Device(options.device)).peak_bytes;
    shortage.emplace(in_use, in_use, error.what());
  }
  // Now that all memory of the training is free.
  const auto smallest = detail::smallest_budget(model, dataset, options, shortage->allowed_bytes());
  // Where the smallest step would have fitted, something else took the memory.
  if (smallest && smallest->bytes <= shortage->allowed_bytes()) throw *shortage;
  const bool has_budget = options.memory_budget_bytes > 0 || memory_stats().budget_bytes > 0;
  throw too_little_memory(*shortage, smallest, has_budget);
}

Batch first_training_batch(const Dataset& dataset, const TrainOptions& options) {
  options.validate();
  BatchLoader loader(dataset, detail::first_epoch_windows(dataset, options), options.batch_size, 0,
                     detail::gather_options(options, 0));
  Batch batch;
  loader.next(batch);
  return detail::to_device(std::move(batch), torch::Device(options.device));
}

}  // namespace reprise
