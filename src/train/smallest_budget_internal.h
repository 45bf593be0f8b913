// SPDX-License-Identifier: Apache-2.0
/// How much memory a training needs at the least.
#pragma once

#include "reprise/dataset.h"
#include "reprise/tft.h"
#include "reprise/trainer.h"

#include <cstdint>
#include <optional>

namespace reprise::detail {

struct SmallestBudget {
  std::int64_t bytes = 0;
  Checkpointing checkpointing = Checkpointing::kAggressive;  ///< the way that needs no more
};

/// The smallest budget for steps in micro-batches of one window, found by running them: at most 1%
/// above `refused_bytes` or a budget that was refused. None where the machine has not that much, or
/// the device has no hard limit. The budget of `options` does not count.
std::optional<SmallestBudget> smallest_budget(TemporalFusionTransformer& model,
                                              const Dataset& dataset, TrainOptions options,
                                              std::int64_t refused_bytes);

}  // namespace reprise::detail
