// SPDX-License-Identifier: Apache-2.0
#include "plan/remat_state_search.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <queue>
#include <unordered_map>
#include <utility>

#include "plan/remat_gap.h"

namespace reprise::detail {
namespace {

using Values = std::uint64_t;

constexpr double kTolerance_ms = 1e-9;

Values only(std::int32_t value) {
  return Values{1} << static_cast<unsigned>(value);
}

template <typename Visit>
void for_each(Values set, const Visit& visit) {
  for (; set != 0; set &= set - 1) visit(static_cast<std::int32_t>(std::countr_zero(set)));
}

}  // namespace

StateSearch::StateSearch(const RematIndex& index)
    : index_(index),
      fixed_bytes_(index.graph.base_bytes),
      inputs_(index.operations, 0),
      outputs_(index.operations, 0),
      run_bytes_(index.operations, 0),
      in_use_(1, 0),
      needed_(1, 0) {
  for (std::int32_t v = 0; v < index.values; ++v) {
    if (index.graph.values[v].held_until == index.operations) fixed_bytes_ += index.bytes(v);
  }
  for (std::int32_t i = 0; i < index.operations; ++i) add_operation(i);
  std::stable_sort(items_.begin(), items_.end(),
                   [](const Item& a, const Item& b) { return a.price < b.price; });
  add_events();
}

void StateSearch::add_operation(std::int32_t i) {
  const auto& operation = index_.graph.operations[i];
  for (const std::int32_t v : operation.inputs) {
    if (!index_.is_permanent[v]) inputs_[i] |= only(v);
  }
  run_bytes_[i] = operation.temporary_bytes;
  for (const std::int32_t v : operation.outputs) {
    run_bytes_[i] += index_.bytes(v);
    if (!index_.is_permanent[v]) outputs_[i] |= only(v);
  }
  if (!index_.can_replay[i]) return;
  const auto bytes = static_cast<double>(std::max<std::int64_t>(1, bytes_of(outputs_[i])));
  for_each(outputs_[i], [&](std::int32_t v) { items_.push_back({v, operation.time_ms / bytes}); });
}

void StateSearch::add_events() {
  std::vector<std::int32_t> uses(index_.values, 0);
  for (const auto& event : index_.graph.events) {
    in_use_.push_back(in_use_.back());
    needed_.push_back(needed_.back());
    if (index_.is_permanent[event.value]) continue;
    const bool is_need = event.kind == RematEvent::Kind::kNeed;
    uses[event.value] += is_need ? 1 : -1;
    if (uses[event.value] == 0) in_use_.back() &= ~only(event.value);
    if (!is_need) continue;
    in_use_.back() |= only(event.value);
    needed_.back() |= only(event.value);
  }
}

std::int64_t StateSearch::bytes_of(Values values) const {
  std::int64_t bytes = 0;
  for_each(values, [&](std::int32_t v) { bytes += index_.bytes(v); });
  return bytes;
}

bool StateSearch::can_start_with(Values kept, std::int64_t budget_bytes) const {
  bool is_possible = true;
  std::vector<std::int64_t> change(index_.operations + 1, 0);
  for (std::int32_t v = 0; v < index_.values; ++v) {
    const auto& value = index_.graph.values[v];
    change[value.made_by] += value.bytes;
    const bool is_kept = (kept & only(v)) != 0;
    if (is_kept && !value.can_be_kept) is_possible = false;
    if (!is_kept && value.held_until < index_.operations) {
      change[value.held_until + 1] -= value.bytes;
    }
  }
  std::int64_t level = index_.graph.base_bytes;
  for (std::int32_t i = 0; i < index_.operations; ++i) {
    level += change[i];
    if (level + index_.graph.operations[i].temporary_bytes > budget_bytes) is_possible = false;
  }
  return is_possible;
}

/// Of what waits at the end of forward for something up to the event or after it, the bytes over
/// the budget are made again.
double StateSearch::least_more_ms(Values there, std::int32_t event,
                                  std::int64_t budget_bytes) const {
  const Values waiting = there | needed_[event];
  std::int64_t over = fixed_bytes_ + index_.graph.first_bytes + bytes_of(waiting) - budget_bytes;
  double time_ms = 0.0;
  for (const auto& item : items_) {
    if (over <= 0) break;
    if ((waiting & only(item.value)) == 0) continue;
    time_ms += item.price * static_cast<double>(std::min(over, index_.bytes(item.value)));
    over -= index_.bytes(item.value);
  }
  return over > 0 ? kNever : time_ms;
}

/// One search for one budget.
class StateSearchRun {
 public:
  StateSearchRun(const StateSearch& search, std::int64_t budget_bytes, double known_ms,
                 std::size_t most_sets)
      : search_(search),
        index_(search.index_),
        budget_(budget_bytes),
        limit_ms_(known_ms - kTolerance_ms),
        most_sets_(most_sets) {}

  StateSearch::Result run() {
    paths_.push_back({});
    layer_.push_back(0);
    for (std::int32_t event = index_.events - 1; event >= 0; --event) {
      start_layer(event);
      search_layer(event);
    }
    StateSearch::Result result{std::nullopt, is_complete_};
    if (!layer_.empty()) result.schedule = schedule(layer_.front());
    return result;
  }

 private:
  struct Path {
    Values there = 0;
    double ms = 0.0;
    double least_ms = 0.0;       // with what must follow
    std::int32_t later = kNone;  // the path that this one prolongs
    Replay replay = {0, kNone};  // that prolongs it
  };

  /// The state right before the event, as far as nothing is replayed for it.
  void start_layer(std::int32_t event) {
    best_.clear();
    open_ = {};
    const auto& it = index_.graph.events[event];
    const bool is_need = it.kind == RematEvent::Kind::kNeed && !index_.is_permanent[it.value];
    for (const std::int32_t path : layer_) {
      const Values after = paths_[path].there | search_.in_use_[event + 1];
      if (search_.fixed_bytes_ + search_.bytes_of(after) + it.other_bytes > budget_) continue;
      Path next = paths_[path];
      if (is_need) next.there |= only(it.value);
      next.later = path;
      next.replay = {event, kNone};
      add(next, event);
    }
  }

  /// The cheapest first; leaves those that can be there after the event before.
  void search_layer(std::int32_t event) {
    layer_.clear();
    for (std::size_t sets = 0; !open_.empty(); ++sets) {
      if (sets == most_sets_) is_complete_ = false;
      if (sets == most_sets_ || (event == 0 && !layer_.empty())) return;
      const std::int32_t path = open_.top().second;
      open_.pop();
      const Values there = paths_[path].there;
      if (best_.at(there) != path) continue;
      if (fits_in_gap(there, event)) layer_.push_back(path);
      for (const std::int32_t i : operations_that_make(there & ~search_.in_use_[event])) {
        replay(path, i, event);
      }
    }
  }

  void add(Path path, std::int32_t event) {
    path.least_ms = path.ms + search_.least_more_ms(path.there, event, budget_);
    if (path.least_ms >= limit_ms_) return;
    const auto [it, is_new] = best_.try_emplace(path.there, kNone);
    if (!is_new && paths_[it->second].ms <= path.ms) return;
    it->second = static_cast<std::int32_t>(paths_.size());
    open_.emplace(path.least_ms, it->second);
    paths_.push_back(path);
  }

  const std::vector<std::int32_t>& operations_that_make(Values values) {
    operations_.clear();
    for_each(values, [&](std::int32_t v) {
      const std::int32_t operation = index_.graph.values[v].made_by;
      if (operations_.empty() || operations_.back() != operation) operations_.push_back(operation);
    });
    return operations_;
  }

  void replay(std::int32_t later, std::int32_t operation, std::int32_t event) {
    if (!index_.can_replay[operation]) return;
    const Values in_use = search_.in_use_[event];
    const Values others = paths_[later].there & ~(search_.outputs_[operation] & ~in_use);
    Path next;
    next.there = others | search_.inputs_[operation];
    const std::int64_t bytes = search_.bytes_of(next.there | in_use) +
                               search_.run_bytes_[operation] + search_.fixed_bytes_ +
                               bytes_in_gap_before(index_.graph, event);
    if (bytes > budget_) return;
    next.ms = paths_[later].ms + index_.time_ms(operation);
    next.later = later;
    next.replay = {event, operation};
    add(next, event);
  }

  bool fits_in_gap(Values there, std::int32_t event) const {
    if (event == 0) {
      return search_.fixed_bytes_ + search_.bytes_of(there) + index_.graph.first_bytes <= budget_ &&
             search_.can_start_with(there, budget_);
    }
    const Values before = there | search_.in_use_[event];
    return search_.fixed_bytes_ + search_.bytes_of(before) +
               bytes_in_gap_before(index_.graph, event) <=
           budget_;
  }

  Schedule schedule(std::int32_t path) const {
    Schedule result;
    for (; path != kNone; path = paths_[path].later) {
      if (paths_[path].replay.operation != kNone) result.push_back(paths_[path].replay);
    }
    return result;
  }

  const StateSearch& search_;
  const RematIndex& index_;
  std::int64_t budget_;
  double limit_ms_;
  std::size_t most_sets_;
  bool is_complete_ = true;
  std::vector<Path> paths_;
  std::vector<std::int32_t> layer_;
  std::vector<std::int32_t> operations_;
  std::unordered_map<Values, std::int32_t> best_;
  using Entry = std::pair<double, std::int32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open_;
};

StateSearch::Result StateSearch::find(std::int64_t budget_bytes, double known_ms,
                                      std::size_t most_sets) const {
  return StateSearchRun(*this, budget_bytes, known_ms, most_sets).run();
}

}  // namespace reprise::detail
