// SPDX-License-Identifier: Apache-2.0
/// What the planner asks of a graph again and again.
#pragma once

#include <cstdint>
#include <vector>

#include "reprise/remat_plan.h"

namespace reprise::detail {

struct RematIndex {
  const RematGraph& graph;
  std::int32_t operations = 0;  ///< how many
  std::int32_t values = 0;
  std::int32_t events = 0;
  std::vector<std::int32_t> first_output;  ///< per operation, and one more: value
  std::vector<std::int32_t> release_of;    ///< per event: of a need, its release; `events`: none
  std::vector<std::int32_t> first_need;    ///< per value: event; `events`: never
  std::vector<std::int32_t> last_need;     ///< per value: event; -1: never
  std::vector<std::int32_t> last_read;     ///< per value: operation; -1: none
  std::vector<char> can_replay;            ///< per operation: with all that it reads
  std::vector<char> is_permanent;          ///< per value: there to the end, whatever the plan
  std::vector<char> is_pinned;             ///< per value: read or needed, but can only be kept
  std::vector<char> is_chosen;  ///< per value: can be made again, and is not there anyway

  bool is_chain =
      true;  ///< each operation reads what the one before makes, or what is there anyway

  explicit RematIndex(const RematGraph& a_graph);

  std::int64_t bytes(std::int32_t value) const { return graph.values[value].bytes; }
  double time_ms(std::int32_t operation) const { return graph.operations[operation].time_ms; }
};

}  // namespace reprise::detail
