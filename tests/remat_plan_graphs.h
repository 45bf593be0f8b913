// SPDX-License-Identifier: Apache-2.0
/// Graphs and budgets of the planner's tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "reprise/remat_plan.h"

namespace reprise {

/// A chain of operations of 1 ms, each of which reads the value before; backward of each needs what
/// it read. `bytes` are those of the values.
inline RematGraph chain(const std::vector<std::int64_t>& bytes) {
  RematGraph graph;
  const auto count = static_cast<std::int32_t>(bytes.size());
  for (std::int32_t i = 0; i < count; ++i) {
    RematOperation operation{"step", "", 1.0, 0, {}, {i}, true};
    if (i > 0) operation.inputs = {i - 1};
    graph.operations.push_back(operation);
    graph.values.push_back({bytes[i], i, std::min(i + 1, count - 1), true});
  }
  for (std::int32_t i = count - 2; i >= 0; --i) {
    graph.events.push_back({RematEvent::Kind::kNeed, i, 2.0, 0});
    graph.events.push_back({RematEvent::Kind::kRelease, i, 0.0, 0});
  }
  return graph;
}

/// Budgets from below what is possible to more than is needed.
inline std::vector<std::int64_t> budgets(const RematGraph& graph) {
  const std::int64_t plain = simulate(graph, plan_without_replay(graph)).peak_bytes;
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i <= 12; ++i) result.push_back(plain * i / 10);
  return result;
}

}  // namespace reprise
