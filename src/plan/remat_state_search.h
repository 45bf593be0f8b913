// SPDX-License-Identifier: Apache-2.0
/// The best schedule by search over sets of values that are there, from the end of the backward
/// pass to its start.
///
/// Backwards in time the state is what must be there because it is used later, so that every
/// replay in a path is one that is needed. What a set must still cost at least is known (the
/// fractional knapsack at the end of forward), which orders and prunes the search. Where no set had
/// to be left out, the schedule found is the optimum.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/remat_schedule.h"

namespace reprise::detail {

class StateSearch {
 public:
  static constexpr std::int32_t kMostValues = 64;
  static constexpr double kNever = 1e300;

  /// Of a graph with at most `kMostValues` values.
  explicit StateSearch(const RematIndex& index);

  struct Result {
    std::optional<Schedule> schedule;  ///< that replays less than was known
    bool is_complete = true;           ///< none replays less than it, or than what was known
  };

  /// With at most so many sets of values before each event, and only schedules that replay less
  /// than `known_ms`.
  Result find(std::int64_t budget_bytes, double known_ms, std::size_t most_sets) const;

 private:
  friend class StateSearchRun;
  using Values = std::uint64_t;  // a bit for each

  struct Item {
    std::int32_t value = 0;
    double price = 0.0;  // ms for each byte, where all outputs of its operation are freed
  };

  void add_operation(std::int32_t i);
  void add_events();
  std::int64_t bytes_of(Values values) const;
  bool can_start_with(Values kept, std::int64_t budget_bytes) const;
  double least_more_ms(Values there, std::int32_t event, std::int64_t budget_bytes) const;

  const RematIndex& index_;
  std::int64_t fixed_bytes_ = 0;  // in the backward pass, whatever the plan
  std::vector<Item> items_;       // the cheapest first
  std::vector<Values> inputs_;    // per operation
  std::vector<Values> outputs_;
  std::vector<std::int64_t> run_bytes_;  // per operation: its outputs made anew, and temporaries
  std::vector<Values> in_use_;           // per event: after it; the first is before all events
  std::vector<Values> needed_;           // per event: before it
};

}  // namespace reprise::detail
