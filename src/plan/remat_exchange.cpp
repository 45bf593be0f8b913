// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <utility>

#include "plan/remat_search.h"

namespace reprise::detail {
namespace {

constexpr std::size_t kMostWork = 150'000;  // operations, events and replays, once for each try

/// Without one replay: what it makes is kept, and where that is too much, other values are not.
Schedule without(const RematIndex& index, Schedule schedule, std::size_t replay,
                 std::int64_t budget_bytes) {
  schedule.erase(schedule.begin() + static_cast<std::ptrdiff_t>(replay));
  return fill(index, shrink(index, std::move(schedule), budget_bytes), budget_bytes);
}

}  // namespace

Schedule exchange(const RematIndex& index, Schedule schedule, std::int64_t budget_bytes) {
  const Timeline line = lay_out(index, schedule, whole_step(index));
  if (line.peak_bytes > budget_bytes) return schedule;
  double best_ms = line.replay_ms;
  const auto size = static_cast<std::size_t>(index.operations + index.events) + schedule.size();
  std::size_t since_better = 0;
  std::size_t replay = 0;
  for (std::size_t tries = kMostWork / size; tries > 0 && since_better < schedule.size(); --tries) {
    ++since_better;
    if (++replay >= schedule.size()) replay = 0;
    Schedule other = without(index, schedule, replay, budget_bytes);
    const Timeline other_line = lay_out(index, other, whole_step(index));
    const bool fits = other_line.is_valid && other_line.peak_bytes <= budget_bytes;
    if (!fits || other_line.replay_ms >= best_ms) continue;
    schedule = without_useless(other, other_line);
    best_ms = other_line.replay_ms;
    since_better = 0;
  }
  return schedule;
}

}  // namespace reprise::detail
