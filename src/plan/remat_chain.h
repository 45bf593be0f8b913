// SPDX-License-Identifier: Apache-2.0
/// A training step as a chain of stages: positions between operations of forward, what crosses
/// them, and which part of the backward pass belongs to which stage.
///
/// With the values that cross a position, backward of everything after it can be done, and the
/// window of events in which it is done follows from them. So every position of any graph is a cut;
/// a long skip is a value that crosses many.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/remat_schedule.h"

namespace reprise::detail {

/// A way to get through one stage: what forward keeps besides what crosses to the next stage.
struct StageOption {
  std::vector<std::int32_t> kept;    ///< values made in the stage that its window needs
  Schedule replays;                  ///< in its window, with the values crossing into it there
  double replay_ms = 0.0;            ///< of them
  std::int64_t window_bytes = 0;     ///< most in its window, of its own values and no value's
  std::int64_t held_bytes = 0;       ///< kept and crossing to the next stage
  std::vector<std::int32_t> to_run;  ///< operations that make those
  double run_ms = 0.0;
  std::int64_t run_bytes = 0;  ///< most while they run
};

struct Chain {
  std::vector<std::int32_t> cuts;                  ///< operations, from 0 to their number
  std::vector<std::int32_t> window;                ///< per cut: first event after its window
  std::vector<std::vector<std::int32_t>> crosses;  ///< per cut: values, ascending
  std::vector<std::vector<StageOption>> options;   ///< per stage: keeping all first, nothing last

  std::int32_t stages() const { return static_cast<std::int32_t>(cuts.size()) - 1; }
};

/// Costs of going from cut to cut without keeping what lies between.
struct ChainCosts {
  std::int32_t cuts = 0;
  std::vector<double> run_ms;
  std::vector<std::int64_t> run_bytes;      ///< most in use, of values made after the first cut
  std::vector<std::int64_t> held_bytes;     ///< crossing the second cut, made after the first
  std::vector<std::int64_t> forward_bytes;  ///< as run_bytes, in forward itself
  std::vector<std::int64_t> pinned_bytes;   ///< per cut: of values before it that are always kept

  std::size_t at(std::int32_t first, std::int32_t second) const {
    return static_cast<std::size_t>(first) * cuts + second;
  }
};

/// Stages between the given operations (0 and the number of operations among them), still without
/// options.
Chain make_chain(const RematIndex& index, std::vector<std::int32_t> cuts);
void add_options(const RematIndex& index, Chain& chain);

ChainCosts chain_costs(const RematIndex& index, const Chain& chain);

/// Operations between two cuts that must run for the values crossing the second, in order.
std::vector<std::int32_t> operations_between(const RematIndex& index, const Chain& chain,
                                             std::int32_t first, std::int32_t second);

/// Stages that are solved alike have the same number.
std::vector<std::int32_t> stage_kinds(const RematIndex& index, const Chain& chain);

}  // namespace reprise::detail
