// SPDX-License-Identifier: Apache-2.0
/// Schedules of which none is both smaller and faster than another.
#pragma once

#include <cstdint>
#include <map>

#include "plan/remat_schedule.h"

namespace reprise::detail {

class Front {
 public:
  /// Unless it takes more than `most_bytes`.
  void add(const RematIndex& index, const Schedule& schedule, std::int64_t most_bytes);

  struct Entry {
    double replay_ms = 0.0;
    Schedule schedule;
  };

  /// The fastest within the budget, or nothing.
  const Entry* best(std::int64_t budget_bytes) const;

  const std::map<std::int64_t, Entry>& entries() const { return entries_; }

 private:
  std::map<std::int64_t, Entry> entries_;  // by peak
};

}  // namespace reprise::detail
