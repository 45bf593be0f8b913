// SPDX-License-Identifier: Apache-2.0
/// The graph that a planner takes, of a step that was recorded.
#pragma once

#include "remat/operation.h"
#include "reprise/remat_plan.h"

#include <cstdint>
#include <vector>

namespace reprise::detail {

/// What is known of a step besides its operations: filled while it runs.
struct StepRecord {
  struct Event {
    bool is_need = false;
    ValueId value = kNone;
    double time_ms = 0.0;          ///< until the next one
    std::int64_t other_bytes = 0;  ///< most that is no value's until the next one
  };

  std::int64_t base_bytes = 0;
  std::int64_t first_bytes = 0;               ///< most that is no value's until the first event
  std::vector<std::int64_t> temporary_bytes;  ///< by operation
  std::vector<std::int64_t> other_bytes;      ///< by operation: no value's, when it begins
  std::vector<std::int32_t> held_until;       ///< by value: operation
  std::vector<bool> is_saved;                 ///< by value
  std::vector<bool> is_overwritten;           ///< by value, at the end of forward
  std::vector<Event> events;
  bool is_linear = true;  ///< false: backward ran inside forward, which is not planned
};

/// A graph, and what its indices mean on the tape.
struct StepGraph {
  RematGraph graph;
  std::vector<std::vector<std::int32_t>> operations;  ///< of the tape, by operation of the graph
  std::vector<ValueId> values;                        ///< of the tape, by value of the graph
  std::vector<std::uint64_t> signature;               ///< of the tape's operations
  std::size_t tape_values = 0;
};

/// What an operation does to which values, to be compared with that of another step.
std::uint64_t signature_of(const Operation& operation, const std::vector<Value>& values);

/// Operations that change the result of another in place become one with it, where nobody reads
/// what was there between.
StepGraph graph_of(const std::vector<Operation>& operations, const std::vector<Value>& values,
                   const StepRecord& record);

}  // namespace reprise::detail
