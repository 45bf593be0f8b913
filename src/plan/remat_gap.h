// SPDX-License-Identifier: Apache-2.0
/// What is in use in a gap between two events of the backward pass.
#pragma once

#include "reprise/remat_plan.h"

namespace reprise::detail {

/// What is no value's while the actions before `event` are done. Known is the most of the gap
/// before it, not the level at its end: an upper bound.
inline std::int64_t bytes_in_gap_before(const RematGraph& graph, std::int32_t event) {
  return event == 0 ? graph.first_bytes : graph.events[event - 1].other_bytes;
}

}  // namespace reprise::detail
