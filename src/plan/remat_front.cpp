// SPDX-License-Identifier: Apache-2.0
#include "plan/remat_front.h"

#include <iterator>

namespace reprise::detail {

void Front::add(const RematIndex& index, const Schedule& schedule, std::int64_t most_bytes) {
  const Timeline line = lay_out(index, schedule, whole_step(index));
  if (!line.is_valid || line.peak_bytes > most_bytes) return;
  auto it = entries_.upper_bound(line.peak_bytes);
  if (it != entries_.begin() && std::prev(it)->second.replay_ms <= line.replay_ms) return;
  while (it != entries_.end() && it->second.replay_ms >= line.replay_ms) it = entries_.erase(it);
  entries_[line.peak_bytes] = {line.replay_ms, without_useless(schedule, line)};
}

const Front::Entry* Front::best(std::int64_t budget_bytes) const {
  const auto it = entries_.upper_bound(budget_bytes);
  return it == entries_.begin() ? nullptr : &std::prev(it)->second;
}

}  // namespace reprise::detail
