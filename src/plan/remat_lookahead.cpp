// SPDX-License-Identifier: Apache-2.0
#include "plan/remat_lookahead.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

namespace reprise::detail {
namespace {

/// Evicted values that hang together, and the time to compute them all.
class EvictedGroups {
 public:
  explicit EvictedGroups(std::size_t values) : parent_(values), time_ms_(values, 0.0) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }

  std::size_t group_of(std::size_t value) {
    while (parent_[value] != value) value = parent_[value] = parent_[parent_[value]];
    return value;
  }
  double time_ms(std::size_t group) const { return time_ms_[group]; }
  void add(std::size_t value, double time_ms) { time_ms_[group_of(value)] += time_ms; }
  void join(std::size_t a, std::size_t b) {
    a = group_of(a);
    b = group_of(b);
    if (a == b) return;
    parent_[b] = a;
    time_ms_[a] += time_ms_[b];
  }
  /// The value is there again. It stays in the group, which is an upper bound then.
  void remove(std::size_t value, double time_ms) {
    auto& time = time_ms_[group_of(value)];
    time = std::max(0.0, time - time_ms);
  }

 private:
  std::vector<std::size_t> parent_;
  std::vector<double> time_ms_;
};

class Lookahead {
 public:
  Lookahead(const RematGraph& graph, std::int64_t budget_bytes, double distance_exponent)
      : graph_(graph),
        limit_(budget_bytes - graph.base_bytes),
        exponent_(distance_exponent),
        state_(graph.values.size()),
        readers_(graph.values.size()),
        groups_(graph.values.size()) {
    for (std::size_t e = 0; e < graph.events.size(); ++e) {
      if (graph.events[e].kind == RematEvent::Kind::kNeed)
        at(graph.events[e].value).needs.push_back(static_cast<std::int32_t>(e));
    }
    for (auto& state : state_) std::reverse(state.needs.begin(), state.needs.end());
    for (std::size_t i = 0; i < graph.operations.size(); ++i) {
      for (const auto value : graph.operations[i].inputs)
        readers_[index(value)].push_back(static_cast<std::int32_t>(i));
    }
  }

  std::optional<RematPlan> plan() {
    if (!run_forward()) return std::nullopt;
    for (event_ = 0; event_ < std::ssize(graph_.events); ++event_) {
      if (!pass()) return std::nullopt;
    }
    return std::move(plan_);
  }

 private:
  struct State {
    bool is_there = false;
    bool is_pinned = false;           // read by the operation or the replay that runs
    std::int32_t uses = 0;            // by the backward pass, at the moment
    std::vector<std::int32_t> needs;  // events still to come, the next one last
  };

  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }
  State& at(std::int32_t value) { return state_[index(value)]; }
  std::int64_t bytes(std::int32_t value) const { return graph_.values[index(value)].bytes; }
  const RematOperation& maker(std::int32_t value) const {
    return graph_.operations[index(graph_.values[index(value)].made_by)];
  }
  bool is_permanent(std::int32_t value) const {
    const auto& it = graph_.values[index(value)];
    return it.can_be_kept && it.held_until == std::ssize(graph_.operations);
  }

  bool run_forward() {
    std::vector<std::vector<std::int32_t>> ends(graph_.operations.size() + 1);
    for (std::size_t i = 0; i < graph_.values.size(); ++i)
      ends[index(graph_.values[i].held_until)].push_back(static_cast<std::int32_t>(i));
    for (forward_ = 0; forward_ < std::ssize(graph_.operations); ++forward_) {
      const auto& operation = graph_.operations[index(forward_)];
      for (const auto value : operation.outputs) add(value);
      if (!make_room(operation.other_bytes + operation.temporary_bytes)) return false;
      for (const auto value : ends[index(forward_)]) {
        if (at(value).needs.empty() || !graph_.values[index(value)].can_be_kept) remove(value);
      }
    }
    if (!make_room(graph_.first_bytes)) return false;
    is_forward_ = false;
    for (std::size_t i = 0; i < state_.size(); ++i) {
      const auto value = static_cast<std::int32_t>(i);
      if (state_[i].is_there && graph_.values[i].can_be_kept) {
        if (!is_permanent(value)) plan_.kept.push_back(value);
      } else if (state_[i].is_there) {
        remove(value);
      }
    }
    return true;
  }

  /// One event of the backward pass.
  bool pass() {
    const auto& event = graph_.events[index(event_)];
    auto& state = at(event.value);
    if (event.kind == RematEvent::Kind::kNeed) {
      if (!state.is_there && !replay(event.value)) return false;
      state.needs.pop_back();
      ++state.uses;
      if (!make_room(event.other_bytes)) return false;
      if (state.needs.empty()) drop(event.value, event_ + 1);
      return true;
    }
    if (--state.uses == 0 && !state.is_there) level_ -= bytes(event.value);
    return make_room(event.other_bytes);
  }

  bool replay(std::int32_t wanted) {
    const std::int64_t other_bytes =
        event_ == 0 ? graph_.first_bytes : graph_.events[index(event_ - 1)].other_bytes;
    std::set<std::int32_t> operations;
    std::vector<std::int32_t> missing = {wanted};
    std::vector<std::int32_t> pinned;
    while (!missing.empty()) {
      const auto made_by = graph_.values[index(missing.back())].made_by;
      missing.pop_back();
      if (!operations.insert(made_by).second) continue;
      if (!graph_.operations[index(made_by)].can_run_again) return false;
      for (const auto input : graph_.operations[index(made_by)].inputs) {
        ++reads_[input];
        if (at(input).is_there) {
          at(input).is_pinned = true;
          pinned.push_back(input);
        } else {
          missing.push_back(input);
        }
      }
    }
    bool fits = true;
    for (const auto operation : operations) {
      fits = fits && run(operation, wanted, other_bytes, pinned);
    }
    for (const auto value : pinned) at(value).is_pinned = false;
    reads_.clear();
    return fits;
  }

  bool run(std::int32_t index_of, std::int32_t wanted, std::int64_t other_bytes,
           std::vector<std::int32_t>& pinned) {
    const auto& operation = graph_.operations[index(index_of)];
    std::int64_t duplicates = 0;
    for (const auto value : operation.outputs) {
      if (at(value).is_there) {
        duplicates += bytes(value);
        continue;
      }
      add(value);
      groups_.remove(index(value), operation.time_ms);
      at(value).is_pinned = true;
      pinned.push_back(value);
    }
    plan_.actions.push_back({static_cast<std::int32_t>(event_), RematAction::Kind::kRun, index_of});
    const std::size_t run_action = plan_.actions.size() - 1;
    if (!make_room(other_bytes + operation.temporary_bytes + duplicates)) return false;
    // Room is made before the operation runs.
    std::rotate(plan_.actions.begin() + static_cast<std::ptrdiff_t>(run_action),
                plan_.actions.begin() + static_cast<std::ptrdiff_t>(run_action) + 1,
                plan_.actions.end());
    for (const auto value : operation.outputs) {
      if (value != wanted && reads_[value] == 0) unpin(value);
    }
    for (const auto value : operation.inputs) {
      if (--reads_[value] == 0) unpin(value);
    }
    return true;
  }

  /// The replay no longer reads the value.
  void unpin(std::int32_t value) {
    auto& state = at(value);
    state.is_pinned = false;
    if (state.is_there && state.needs.empty()) drop(value, event_);
  }

  void add(std::int32_t value) {
    auto& state = at(value);
    if (!state.is_there && state.uses == 0) level_ += bytes(value);
    state.is_there = true;
  }

  void remove(std::int32_t value) {
    auto& state = at(value);
    if (!state.is_there) return;
    state.is_there = false;
    if (state.uses == 0) level_ -= bytes(value);
    note_evicted(value);
  }

  /// In the backward pass: by an action of the plan.
  void drop(std::int32_t value, std::int64_t before_event) {
    if (!at(value).is_there || is_permanent(value)) return;
    remove(value);
    plan_.actions.push_back(
        {static_cast<std::int32_t>(before_event), RematAction::Kind::kDrop, value});
  }

  void note_evicted(std::int32_t value) {
    groups_.add(index(value), maker(value).time_ms);
    for_evicted_neighbours(value,
                           [&](std::int32_t other) { groups_.join(index(value), index(other)); });
  }

  template <typename Visit>
  void for_evicted_neighbours(std::int32_t value, Visit visit) {
    for (const auto input : maker(value).inputs) {
      if (!at(input).is_there) visit(input);
    }
    for (const auto reader : readers_[index(value)]) {
      for (const auto output : graph_.operations[index(reader)].outputs) {
        const auto& made = state_[index(output)];
        if (!made.is_there && !made.needs.empty() &&
            graph_.values[index(output)].made_by <= forward_)
          visit(output);
      }
    }
  }

  bool make_room(std::int64_t more_bytes) {
    while (level_ + more_bytes > limit_) {
      const auto victim = cheapest();
      if (victim < 0) return false;
      if (is_forward_) {
        remove(victim);
      } else {
        drop(victim, event_);
      }
    }
    return true;
  }

  std::int32_t cheapest() {
    std::int32_t best = -1;
    double best_score = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < state_.size(); ++i) {
      const auto& state = state_[i];
      const auto& value = graph_.values[i];
      if (!state.is_there || state.is_pinned || state.uses > 0 || value.bytes == 0) continue;
      if (forward_ < std::ssize(graph_.operations) && value.held_until >= forward_) continue;
      const auto id = static_cast<std::int32_t>(i);
      if (is_permanent(id) || !maker(id).can_run_again) continue;
      const double score = score_of(id);
      if (score < best_score) {
        best_score = score;
        best = id;
      }
    }
    return best;
  }

  double score_of(std::int32_t value) {
    double time_ms = maker(value).time_ms;
    seen_.clear();
    for_evicted_neighbours(value, [&](std::int32_t other) {
      const auto group = groups_.group_of(index(other));
      if (std::find(seen_.begin(), seen_.end(), group) != seen_.end()) return;
      seen_.push_back(group);
      time_ms += groups_.time_ms(group);
    });
    const auto& needs = state_[index(value)].needs;
    const std::int64_t next = needs.empty() ? std::ssize(graph_.events) : needs.back();
    const auto distance =
        static_cast<double>(next - event_ + (std::ssize(graph_.operations) - forward_) + 1);
    return time_ms / (static_cast<double>(bytes(value)) * std::pow(distance, exponent_));
  }

  const RematGraph& graph_;
  const std::int64_t limit_;
  const double exponent_;
  std::vector<State> state_;
  std::vector<std::vector<std::int32_t>> readers_;  // operations, by value
  EvictedGroups groups_;
  std::vector<std::size_t> seen_;
  std::unordered_map<std::int32_t, std::int32_t> reads_;  // still to come in the running replay
  std::int64_t level_ = 0;
  std::int64_t forward_ = 0;  // operation; their number in the backward pass
  bool is_forward_ = true;
  std::int64_t event_ = 0;
  RematPlan plan_;
};

}  // namespace

std::optional<RematPlan> plan_by_lookahead(const RematGraph& graph, std::int64_t budget_bytes,
                                           double distance_exponent) {
  return Lookahead(graph, budget_bytes, distance_exponent).plan();
}

}  // namespace reprise::detail
