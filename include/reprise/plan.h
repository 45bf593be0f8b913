// SPDX-License-Identifier: Apache-2.0
/// Where to recompute: no LibTorch here, so the planner builds in a second.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace reprise {

/// What one segment of a model costs.
struct SegmentCost {
  std::int64_t activation_bytes =
      0;                    ///< kept until its backward pass unless the segment is recomputed
  double forward_ms = 0.0;  ///< paid once more when the segment is recomputed
};

/// Chooses the segments to recompute so that the kept activations fit `budget_bytes` at the least
/// extra time.
///
/// Returns the indices, ascending; empty when everything fits already. The choice is optimal. Time
/// and memory grow with the number of choices that no other one beats in both bytes and time: few
/// where costs repeat, exponential in the number of segments at worst.
/// Throws `std::invalid_argument` when a cost is negative or not finite, or the budget negative.
std::vector<std::size_t> plan_recomputation(const std::vector<SegmentCost>& segments,
                                            std::int64_t budget_bytes);

}  // namespace reprise
