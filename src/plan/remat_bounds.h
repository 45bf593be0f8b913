// SPDX-License-Identifier: Apache-2.0
/// What no plan can do better.
#pragma once

#include "plan/remat_index.h"

namespace reprise::detail {

class Bounds {
 public:
  explicit Bounds(const RematIndex& index);

  /// Every plan takes at least that many bytes at some moment.
  std::int64_t least_budget_bytes() const;

  /// Every plan within the budget replays at least that long.
  double least_replay_ms(std::int64_t budget_bytes) const;

 private:
  /// An operation whose outputs are needed later.
  struct Item {
    std::int32_t operation = 0;
    double price = 0.0;  // ms for each byte
  };

  /// A gap of the backward pass: after `event`, or before the first (-1).
  struct Gap {
    std::int32_t event = 0;
    std::int64_t other_bytes = 0;   // with what is there whatever the plan
    std::int64_t needed_bytes = 0;  // of values that are needed later and not in use
  };

  /// What one gap costs at least.
  struct Knapsack {
    const Gap* gap = nullptr;
    double ms = 0.0;
    double price = 0.0;  // of the last operation that runs again
  };

  bool is_forced(std::int32_t value) const;
  bool can_be_freed(std::int32_t value, std::int32_t event) const;
  void add_gaps();
  void add_items();
  std::int64_t forward_bytes() const;
  Knapsack knapsack(const Gap& gap, std::int64_t budget_bytes) const;
  double closure_ms(const Knapsack& knapsack, std::int64_t budget_bytes) const;

  const RematIndex& index_;
  std::int64_t least_bytes_ = 0;
  std::vector<Gap> gaps_;    // those that take most
  std::vector<Item> items_;  // the cheapest first
};

}  // namespace reprise::detail
