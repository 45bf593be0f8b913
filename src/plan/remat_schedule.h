// SPDX-License-Identifier: Apache-2.0
/// Which operations run again, and when. All else follows: a value is there from where it is made
/// to its last use before it is made again, and forward keeps what is used before that.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/remat_index.h"
#include "reprise/remat_plan.h"

namespace reprise::detail {

struct Replay {
  std::int32_t before_event = 0;
  std::int32_t operation = 0;
};

/// In order; `before_event` never falls.
using Schedule = std::vector<Replay>;

constexpr std::int32_t kForward = -1;  ///< instead of a replay: what forward made
constexpr std::int32_t kNone = -1;

/// Something that must find a value there.
struct ValueUse {
  std::int32_t moment = 0;
  std::int32_t until = 0;       ///< moment up to which backward itself holds it; else `moment`
  std::int32_t event = kNone;   ///< a need
  std::int32_t replay = kNone;  ///< or a replayed operation that reads it
  std::int32_t next = kNone;    ///< the next use of the same holding
};

/// A value from where it is made to its last use.
struct Holding {
  std::int32_t value = 0;
  std::int32_t replay = kForward;  ///< that makes it
  std::int32_t start = 0;          ///< moment
  std::int32_t end = 0;            ///< moment, included
  std::int32_t first_use = kNone;
};

/// An output of a replay that is there already, as backward still holds it.
struct Duplicate {
  std::int32_t replay = 0;
  std::int32_t value = 0;
};

/// What happens moment by moment: each operation of forward, the gap after it, and then each
/// replayed operation and each gap after an event.
struct Timeline {
  bool is_valid = true;  ///< false: something would have to be kept that cannot be
  std::int64_t peak_bytes = 0;
  double replay_ms = 0.0;
  std::vector<std::int64_t> level;  ///< bytes in use at each moment
  std::vector<Holding> holdings;    ///< the latest first; without permanent values
  std::vector<ValueUse> uses;
  std::vector<Duplicate> duplicates;
  std::vector<char> is_useful;             ///< per replay: makes something that is used
  std::vector<std::int32_t> event_moment;  ///< per event: of the gap after it
  std::vector<std::int32_t> replay_moment;
};

/// A part of the backward pass. Values before `first_value` are there, and take no bytes.
struct Window {
  std::int32_t first_event = 0;
  std::int32_t end_event = 0;
  std::int32_t first_value = 0;
  bool has_forward = false;
};

Window whole_step(const RematIndex& index);

Timeline lay_out(const RematIndex& index, const Schedule& schedule, const Window& window);

/// Leaves out what makes nothing that is used.
Schedule without_useless(const Schedule& schedule, const Timeline& timeline);

/// With the drops; `schedule` must be valid.
RematPlan to_plan(const RematIndex& index, const Schedule& schedule);

}  // namespace reprise::detail
