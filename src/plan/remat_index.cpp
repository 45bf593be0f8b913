// SPDX-License-Identifier: Apache-2.0
#include "plan/remat_index.h"

#include <algorithm>
#include <deque>

namespace reprise::detail {
namespace {

/// The longest held need of a value is the one that a release ends.
std::vector<std::int32_t> releases(const RematGraph& graph) {
  const auto events = static_cast<std::int32_t>(graph.events.size());
  std::vector<std::int32_t> result(events, events);
  std::vector<std::deque<std::int32_t>> open(graph.values.size());
  for (std::int32_t i = 0; i < events; ++i) {
    auto& needs = open[graph.events[i].value];
    if (graph.events[i].kind == RematEvent::Kind::kNeed) {
      needs.push_back(i);
    } else {
      result[needs.front()] = i;
      needs.pop_front();
    }
  }
  return result;
}

}  // namespace

RematIndex::RematIndex(const RematGraph& a_graph)
    : graph(a_graph),
      operations(static_cast<std::int32_t>(graph.operations.size())),
      values(static_cast<std::int32_t>(graph.values.size())),
      events(static_cast<std::int32_t>(graph.events.size())),
      first_output(operations + 1, values),
      release_of(releases(graph)),
      first_need(values, events),
      last_need(values, -1),
      last_read(values, -1),
      can_replay(operations, 0),
      is_permanent(values, 0),
      is_pinned(values, 0),
      is_chosen(values, 0) {
  for (std::int32_t i = events - 1; i >= 0; --i) {
    if (graph.events[i].kind != RematEvent::Kind::kNeed) continue;
    const std::int32_t value = graph.events[i].value;
    first_need[value] = i;
    if (last_need[value] < 0) last_need[value] = i;
  }
  for (std::int32_t i = operations - 1; i >= 0; --i) {
    const auto& outputs = graph.operations[i].outputs;
    first_output[i] = outputs.empty() ? first_output[i + 1] : outputs.front();
  }
  for (std::int32_t i = 0; i < operations; ++i) {
    for (const std::int32_t value : graph.operations[i].inputs) last_read[value] = i;
  }
  // A value is made before it is read, so what it takes to make it is known by then.
  for (std::int32_t i = 0; i < values; ++i) {
    const auto& value = graph.values[i];
    is_permanent[i] = value.can_be_kept && value.held_until == operations;
    const bool is_used = last_need[i] >= 0 || last_read[i] >= 0;
    const auto& operation = graph.operations[value.made_by];
    can_replay[value.made_by] =
        operation.can_run_again &&
        std::all_of(operation.inputs.begin(), operation.inputs.end(), [&](std::int32_t input) {
          return graph.values[input].can_be_kept || can_replay[graph.values[input].made_by];
        });
    is_chosen[i] = !is_permanent[i] && can_replay[value.made_by];
    is_chain = is_chain && (!is_chosen[i] || last_read[i] <= value.made_by + 1);
    is_pinned[i] = !is_permanent[i] && is_used && value.can_be_kept && !can_replay[value.made_by];
  }
}

}  // namespace reprise::detail
