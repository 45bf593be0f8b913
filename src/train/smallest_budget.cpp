// SPDX-License-Identifier: Apache-2.0
#include "train/smallest_budget_internal.h"

#include "autograd/out_of_memory.h"
#include "reprise/memory.h"
#include "train/training_internal.h"

#include <c10/util/ScopeExit.h>
#include <torch/torch.h>

#include <exception>

namespace reprise::detail {
namespace {

constexpr std::int64_t kResolution = 100;  // of the budget

/// The peak of one step, or none where it does not fit.
std::optional<std::int64_t> peak_within(std::int64_t budget_bytes, Checkpointing tier,
                                        TemporalFusionTransformer& model, const Dataset& dataset,
                                        TrainOptions options) {
  options.memory_budget_bytes = budget_bytes;
  model->set_checkpointing(tier);
  try {
    Training training(model, dataset, options);
    training.try_step();
    return memory_stats().peak_bytes;
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    return std::nullopt;
  }
}

}  // namespace

std::optional<SmallestBudget> smallest_budget(TemporalFusionTransformer& model,
                                              const Dataset& dataset, TrainOptions options,
                                              std::int64_t refused_bytes) {
  if (!torch::Device(options.device).is_cpu()) return std::nullopt;
  const auto tier = model->options().checkpointing;
  const auto end = c10::make_scope_exit([&] { model->set_checkpointing(tier); });
  options.micro_batch_size = 1;
  const auto aggressive =
      peak_within(usable_memory_bytes(), Checkpointing::kAggressive, model, dataset, options);
  if (!aggressive) return std::nullopt;
  // What decides operator by operator may do with less than whole layers do.
  SmallestBudget smallest{*aggressive, Checkpointing::kAggressive};
  for (std::int64_t refused = refused_bytes;
       smallest.bytes - refused > smallest.bytes / kResolution;) {
    const std::int64_t middle = refused + (smallest.bytes - refused) / 2;
    if (peak_within(middle, Checkpointing::kAuto, model, dataset, options)) {
      smallest = {middle, Checkpointing::kAuto};
    } else {
      refused = middle;
    }
  }
  return smallest;
}

}  // namespace reprise::detail
