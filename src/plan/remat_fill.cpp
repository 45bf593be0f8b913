// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <utility>

#include "plan/remat_search.h"

namespace reprise::detail {
namespace {

constexpr int kMostRounds = 8;

/// A value would have to be there between two of its holdings.
struct Extension {
  std::int32_t value = 0;
  std::int32_t first = 0;  // moment
  std::int32_t last = 0;
};

/// Removes one replayed operation.
struct Removal {
  std::int32_t replay = 0;
  std::vector<Extension> extensions;
};

class Filler {
 public:
  Filler(const RematIndex& index, const Schedule& schedule, std::int64_t budget_bytes)
      : index_(index),
        budget_bytes_(budget_bytes),
        line_(lay_out(index, schedule, whole_step(index))),
        schedule_(schedule),
        is_removed_(schedule.size(), 0),
        is_touched_(index.values, 0) {}

  /// False: nothing more is to be had.
  bool improve() {
    bool has_improved = false;
    for (const auto& removal : removals()) has_improved = apply(removal) || has_improved;
    return has_improved;
  }

  Schedule result() const {
    Schedule schedule;
    for (std::size_t i = 0; i < schedule_.size(); ++i) {
      if (line_.is_useful[i] && !is_removed_[i]) schedule.push_back(schedule_[i]);
    }
    return schedule;
  }

 private:
  std::vector<Removal> removals() const {
    std::vector<Removal> all(schedule_.size());
    std::vector<char> is_possible(schedule_.size(), 1);
    std::vector<std::int32_t> later(index_.values, kNone);  // holding of the same value
    const auto extend = [&](std::int32_t holding, std::int32_t end) {
      const auto& it = line_.holdings[holding];
      all[it.replay].extensions.push_back({it.value, end + 1, it.start - 1});
    };
    for (std::size_t i = 0; i < line_.holdings.size(); ++i) {
      const auto& holding = line_.holdings[i];
      if (later[holding.value] != kNone) extend(later[holding.value], holding.end);
      later[holding.value] = holding.replay == kForward ? kNone : static_cast<std::int32_t>(i);
    }
    for (std::int32_t value = 0; value < index_.values; ++value) {
      if (later[value] == kNone) continue;
      const auto& it = index_.graph.values[value];
      extend(later[value], it.held_until);
      if (!it.can_be_kept) is_possible[line_.holdings[later[value]].replay] = 0;
    }
    std::vector<std::pair<double, std::int32_t>> order;  // negative price and replay
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!is_possible[i] || !line_.is_useful[i]) continue;
      all[i].replay = static_cast<std::int32_t>(i);
      order.emplace_back(-price(all[i]), all[i].replay);
    }
    std::sort(order.begin(), order.end());
    std::vector<Removal> result;
    result.reserve(order.size());
    for (const auto& [price, replay] : order) result.push_back(std::move(all[replay]));
    return result;
  }

  /// In ms for each byte.
  double price(const Removal& removal) const {
    double bytes = 1.0;
    for (const auto& it : removal.extensions) bytes += static_cast<double>(index_.bytes(it.value));
    return index_.time_ms(schedule_[removal.replay].operation) / bytes;
  }

  bool apply(const Removal& removal) {
    for (const auto& it : removal.extensions) {
      if (is_touched_[it.value]) return false;  // until the timeline is laid out again
    }
    std::size_t added = 0;
    while (added < removal.extensions.size() && fits(removal.extensions[added])) {
      add(removal.extensions[added++], 1);
    }
    if (added < removal.extensions.size()) {
      while (added > 0) add(removal.extensions[--added], -1);
      return false;
    }
    for (const auto& it : removal.extensions) is_touched_[it.value] = 1;
    is_removed_[removal.replay] = 1;
    return true;
  }

  bool fits(const Extension& it) const {
    if (it.first > it.last) return true;
    const auto begin = line_.level.begin();
    const std::int64_t limit = budget_bytes_ - index_.bytes(it.value);
    return std::all_of(begin + it.first, begin + it.last + 1,
                       [limit](std::int64_t level) { return level <= limit; });
  }

  void add(const Extension& it, std::int64_t sign) {
    for (std::int32_t i = it.first; i <= it.last; ++i) {
      line_.level[i] += sign * index_.bytes(it.value);
    }
  }

  const RematIndex& index_;
  std::int64_t budget_bytes_;
  Timeline line_;
  const Schedule& schedule_;
  std::vector<char> is_removed_;
  std::vector<char> is_touched_;  // per value
};

}  // namespace

Schedule fill(const RematIndex& index, Schedule schedule, std::int64_t budget_bytes) {
  bool has_improved = true;
  for (int round = 0; has_improved && round < kMostRounds && !schedule.empty(); ++round) {
    Filler filler(index, schedule, budget_bytes);
    has_improved = filler.improve();
    schedule = filler.result();
  }
  return schedule;
}

}  // namespace reprise::detail
