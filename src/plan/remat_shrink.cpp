// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <limits>
#include <set>
#include <tuple>

#include "plan/remat_search.h"

namespace reprise::detail {
namespace {

constexpr std::size_t kMostRounds = 64;
constexpr std::size_t kMostWork = 100'000;  // operations and events, once for each round
constexpr std::size_t kFewestRounds = 8;
constexpr std::size_t kMostClosure = 256;  // operations for one value

/// Runs operations before a use, so that the value need not be there before.
struct Insertion {
  std::int32_t value = 0;
  std::int32_t position = 0;  // in the schedule
  std::int32_t before_event = 0;
  std::vector<std::int32_t> operations;
  std::int64_t freed_bytes = 0;  // at the moment of the peak
  double price = 0.0;            // ms for each byte
};

class Shrinker {
 public:
  Shrinker(const RematIndex& index, const Schedule& schedule, std::int64_t budget_bytes)
      : index_(index),
        schedule_(schedule),
        budget_bytes_(budget_bytes),
        line_(lay_out(index, schedule, whole_step(index))),
        holdings_of_(index.values) {
    for (std::size_t i = 0; i < line_.holdings.size(); ++i) {
      holdings_of_[line_.holdings[i].value].push_back(static_cast<std::int32_t>(i));
    }
    peak_ = static_cast<std::int32_t>(std::max_element(line_.level.begin(), line_.level.end()) -
                                      line_.level.begin());
  }

  std::int64_t peak_bytes() const { return line_.peak_bytes; }

  /// None: nothing can be freed.
  bool insert(Schedule& result) const {
    std::vector<Insertion> all = insertions();
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.price < b.price; });
    std::int64_t over = line_.peak_bytes - budget_bytes_;
    std::vector<Insertion> chosen;
    for (auto& it : all) {
      if (over <= 0) break;
      over -= it.freed_bytes;
      chosen.push_back(std::move(it));
    }
    std::stable_sort(chosen.begin(), chosen.end(), [](const auto& a, const auto& b) {
      return std::tuple(a.position, a.before_event) < std::tuple(b.position, b.before_event);
    });
    result.clear();
    std::size_t next = 0;
    for (std::size_t i = 0; i <= schedule_.size(); ++i) {
      for (; next < chosen.size() && chosen[next].position == static_cast<std::int64_t>(i);
           ++next) {
        for (const std::int32_t operation : chosen[next].operations) {
          result.push_back({chosen[next].before_event, operation});
        }
      }
      if (i < schedule_.size() && line_.is_useful[i]) result.push_back(schedule_[i]);
    }
    return !chosen.empty();
  }

 private:
  std::vector<Insertion> insertions() const {
    std::vector<Insertion> result;
    for (const auto& holding : line_.holdings) {
      if (holding.start >= peak_ || holding.end < peak_) continue;
      const auto& value = index_.graph.values[holding.value];
      if (holding.replay == kForward && peak_ <= value.held_until) continue;
      const std::int32_t use = idle_until(holding);
      if (use == kNone) continue;
      Insertion insertion = before(line_.uses[use], holding.value);
      if (insertion.freed_bytes > 0) result.push_back(std::move(insertion));
    }
    return result;
  }

  /// The next use, if the value only waits for it at the peak.
  std::int32_t idle_until(const Holding& holding) const {
    std::int32_t use = holding.first_use;
    while (use != kNone && line_.uses[use].moment <= peak_) {
      if (line_.uses[use].until >= peak_) return kNone;
      use = line_.uses[use].next;
    }
    return use;
  }

  Insertion before(const ValueUse& use, std::int32_t value) const {
    Insertion insertion;
    insertion.value = value;
    if (use.event == kNone) {
      insertion.position = use.replay;
      insertion.before_event = schedule_[use.replay].before_event;
    } else {
      insertion.before_event = use.event;
      const auto after = std::upper_bound(
          schedule_.begin(), schedule_.end(), use.event,
          [](std::int32_t event, const Replay& replay) { return event < replay.before_event; });
      insertion.position = static_cast<std::int32_t>(after - schedule_.begin());
    }
    close_over(insertion, use.moment);
    return insertion;
  }

  /// What else must run, and what must stay there for it, past the peak.
  void close_over(Insertion& insertion, std::int32_t moment) const {
    std::set<std::int32_t> operations;
    std::vector<std::int32_t> open{insertion.value};
    std::int64_t freed = index_.bytes(insertion.value);
    std::set<std::int32_t> extended;
    double time_ms = 0.0;
    while (!open.empty()) {
      const std::int32_t operation = index_.graph.values[open.back()].made_by;
      const bool is_asked = open.back() == insertion.value;
      const std::int32_t value = open.back();
      open.pop_back();
      if (!is_asked && is_there(value, moment)) continue;
      const bool can_run = index_.can_replay[operation] != 0;
      if (!is_asked && (!can_run || last_end(value, moment) >= peak_)) {
        if (last_end(value, moment) < peak_ && extended.insert(value).second) {
          freed -= index_.bytes(value);
        }
        continue;
      }
      if (!can_run || operations.size() > kMostClosure) return;
      if (!operations.insert(operation).second) continue;
      time_ms += index_.time_ms(operation);
      const auto& inputs = index_.graph.operations[operation].inputs;
      open.insert(open.end(), inputs.begin(), inputs.end());
    }
    insertion.operations.assign(operations.begin(), operations.end());
    insertion.freed_bytes = freed;
    insertion.price = time_ms / static_cast<double>(std::max<std::int64_t>(freed, 1));
  }

  bool is_there(std::int32_t value, std::int32_t moment) const {
    if (index_.is_permanent[value]) return true;
    return std::any_of(holdings_of_[value].begin(), holdings_of_[value].end(), [&](auto i) {
      return line_.holdings[i].start < moment && moment <= line_.holdings[i].end;
    });
  }

  /// Of the last holding before a moment, or of forward.
  std::int32_t last_end(std::int32_t value, std::int32_t moment) const {
    std::int32_t end = index_.graph.values[value].held_until;
    for (const std::int32_t i : holdings_of_[value]) {
      if (line_.holdings[i].start < moment) end = std::max(end, line_.holdings[i].end);
    }
    return end;
  }

  const RematIndex& index_;
  const Schedule& schedule_;
  std::int64_t budget_bytes_;
  Timeline line_;
  std::vector<std::vector<std::int32_t>> holdings_of_;  // per value
  std::int32_t peak_ = 0;                               // moment
};

}  // namespace

Schedule shrink(const RematIndex& index, Schedule schedule, std::int64_t budget_bytes) {
  Schedule best = schedule;
  std::int64_t best_peak = std::numeric_limits<std::int64_t>::max();
  const auto size = static_cast<std::size_t>(index.operations + index.events) + 1;
  const std::size_t rounds = std::clamp(kMostWork / size, kFewestRounds, kMostRounds);
  for (std::size_t round = 0; round < rounds; ++round) {
    const Shrinker shrinker(index, schedule, budget_bytes);
    if (shrinker.peak_bytes() < best_peak) {
      best_peak = shrinker.peak_bytes();
      best = schedule;
    }
    Schedule next;
    if (best_peak <= budget_bytes || !shrinker.insert(next)) break;
    schedule = std::move(next);
  }
  return best;
}

}  // namespace reprise::detail
