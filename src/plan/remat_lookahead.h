// SPDX-License-Identifier: Apache-2.0
/// Plans by going through a step once: when memory runs out, the value goes that costs least to
/// have again.
#pragma once

#include "reprise/remat_plan.h"

#include <cstdint>
#include <optional>

namespace reprise::detail {

/// The plan that evicts, whenever more than `budget_bytes` would be in use, the value of the least
/// score: the time to compute it again, with the evicted values beside it, per byte, divided by the
/// distance to its next use to the power of `distance_exponent`. As Kirisame et al. 2021, "Dynamic
/// Tensor Rematerialization", but with the future in view. None: something does not fit.
std::optional<RematPlan> plan_by_lookahead(const RematGraph& graph, std::int64_t budget_bytes,
                                           double distance_exponent);

}  // namespace reprise::detail
