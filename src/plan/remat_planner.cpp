// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "plan/remat_bounds.h"
#include "plan/remat_chain_solver.h"
#include "plan/remat_cuts.h"
#include "plan/remat_front.h"
#include "plan/remat_schedule.h"
#include "plan/remat_search.h"
#include "plan/remat_state_search.h"

namespace reprise {
namespace detail {
namespace {

constexpr std::int64_t kMostRungWork = 400'000;  // operations and events, once for each rung
constexpr std::int64_t kSmall = 100;             // operations and events
constexpr std::int64_t kLarge = 1'000;           // where there is no time for many tries
constexpr std::int32_t kMostSearched = 32;       // values
constexpr std::size_t kMostSets = 400;
constexpr double kRounding = 1.0 + 1e-9;
constexpr std::int64_t kMostBytes = std::numeric_limits<std::int64_t>::max();
constexpr std::int32_t kMostDescent = 2;  // replays, for each operation

void add_unkeepable(const RematIndex& index, std::int32_t value, std::int32_t event,
                    Schedule& schedule) {
  std::set<std::int32_t> operations;
  std::vector<std::int32_t> open{value};
  while (!open.empty()) {
    const auto& it = index.graph.values[open.back()];
    open.pop_back();
    if (it.can_be_kept || !operations.insert(it.made_by).second) continue;
    const auto& inputs = index.graph.operations[it.made_by].inputs;
    open.insert(open.end(), inputs.begin(), inputs.end());
  }
  for (const std::int32_t i : operations) schedule.push_back({event, i});
}

/// What must run again even where everything that can be kept is.
Schedule unavoidable(const RematIndex& index) {
  Schedule schedule;
  for (std::int32_t e = 0; e < index.events; ++e) {
    const auto& event = index.graph.events[e];
    if (event.kind == RematEvent::Kind::kNeed) add_unkeepable(index, event.value, e, schedule);
  }
  return schedule;
}

/// Schedules for a ladder of budgets.
///
/// The answer to a budget is the best of what was found on all rungs up to the first at or above
/// it. A larger budget has no fewer rungs, so it never gets a slower plan. Rungs that can be proven
/// to have nothing better are left out, which does not change that.
class Planner {
 public:
  explicit Planner(const RematGraph& graph)
      : index_(graph), bounds_(index_), schedule_(unavoidable(index_)) {
    front_.add(index_, schedule_, kMostBytes);
    plain_bytes_ = front_.entries().begin()->first;
    for (std::int32_t v = 0; v < index_.values; ++v) {
      const bool is_held = graph.values[v].held_until == index_.operations;
      if (is_held || index_.is_pinned[v]) fixed_bytes_ += index_.bytes(v);
    }
    fixed_bytes_ += graph.base_bytes;
    if (index_.values <= kMostSearched) states_.emplace(index_);
    make_rungs();
    undescended_ = static_cast<std::int32_t>(rungs_.size());
  }

  void solve(std::int64_t budget_bytes) {
    if (budget_bytes >= plain_bytes_) return;
    if (states_) {
      climb(budget_bytes);
    } else {
      search_down(budget_bytes);
    }
  }

  void solve_all() {
    descend_to(0);
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(rungs_.size()); ++i) visit(i);
  }

  const Front& front() const { return front_; }
  const RematIndex& index() const { return index_; }
  const Bounds& bounds() const { return bounds_; }

 private:
  /// Half in equal ratios, since a smaller budget needs finer steps, and half in equal steps.
  void make_rungs() {
    const std::int64_t count = std::clamp<std::int64_t>(kMostRungWork / (size() + 1), 80, 200) / 2;
    const std::int64_t floor = index_.graph.base_bytes;  // in use at all moments
    const std::int64_t least_bytes = bounds_.least_budget_bytes();
    const auto least = static_cast<double>(std::max<std::int64_t>(1, least_bytes - floor));
    const auto most = static_cast<double>(plain_bytes_ - floor);
    for (std::int64_t i = 0; i <= count; ++i) {
      const double share = static_cast<double>(i) / static_cast<double>(count);
      for (const double bytes :
           {least + (most - least) * share, least * std::pow(most / least, share)}) {
        rungs_.push_back(
            std::clamp(floor + static_cast<std::int64_t>(bytes), least_bytes, plain_bytes_));
      }
    }
    std::sort(rungs_.begin(), rungs_.end());
    rungs_.erase(std::unique(rungs_.begin(), rungs_.end()), rungs_.end());
  }

  /// From the bottom, as each rung starts from what those below have found.
  void climb(std::int64_t budget_bytes) {
    descend_to(0);
    const std::int32_t last = first_rung_from(budget_bytes);
    const std::int32_t within = rungs_[last] == budget_bytes ? last : last - 1;
    bool has_searched = !states_ || within < 0;
    for (std::int32_t i = 0; i <= last; ++i) {
      visit(i);
      if (has_searched || front_.best(rungs_[i]) == nullptr) continue;
      has_searched = true;
      if (finds_optimum(within)) break;
    }
  }

  /// Nothing is better below a rung whose bound is above what was found.
  void search_down(std::int64_t budget_bytes) {
    const std::int32_t last = first_rung_from(budget_bytes);
    for (std::int32_t i = last; i >= 0; --i) {
      const auto* best = front_.best(budget_bytes);
      if (i < last && best != nullptr &&
          bounds_.least_replay_ms(rungs_[i + 1]) > best->replay_ms * kRounding) {
        return;
      }
      descend_to(i);
      visit(i);
    }
    if (front_.best(budget_bytes) != nullptr) return;
    for (std::int32_t i = last + 1; front_.best(rungs_[i - 1]) == nullptr; ++i) visit(i);
  }

  std::int32_t first_rung_from(std::int64_t budget_bytes) const {
    return static_cast<std::int32_t>(std::lower_bound(rungs_.begin(), rungs_.end(), budget_bytes) -
                                     rungs_.begin());
  }

  /// What takes more belongs to a higher rung, which can then be left out or visited alone.
  void add(const Schedule& schedule, std::int32_t rung) {
    const bool is_last = rung + 1 == static_cast<std::int32_t>(rungs_.size());
    front_.add(index_, schedule, is_last ? kMostBytes : rungs_[rung + 1]);
  }

  /// From keeping everything down, by moves alone.
  void descend_to(std::int32_t rung) {
    const auto most_replays = static_cast<std::size_t>(kMostDescent * index_.operations);
    // On a chain the table does nearly as well by itself.
    const auto step = 1 + static_cast<std::int32_t>(size() / (index_.is_chain ? kSmall : kLarge));
    while (undescended_ > rung) {
      const std::int32_t next = undescended_ - 1;
      undescended_ -= step;
      // A step at a time, deep recomputation never becomes good; that is for the chain.
      if (schedule_.size() > most_replays) continue;
      schedule_ = shrink(index_, std::move(schedule_), rungs_[next]);
      add(schedule_, next);
      add(fill(index_, schedule_, rungs_[next]), next);
    }
  }

  /// Leaves no trace where it does not: what other rungs find must not depend on the budget.
  bool finds_optimum(std::int32_t rung) {
    const auto found = search_states(rung);
    if (found.is_complete && found.schedule) add(*found.schedule, rung);
    return found.is_complete;
  }

  StateSearch::Result search_states(std::int32_t rung) const {
    const auto* known = front_.best(rungs_[rung]);
    return states_->find(rungs_[rung], known == nullptr ? StateSearch::kNever : known->replay_ms,
                         kMostSets);
  }

  void visit(std::int32_t rung) {
    const std::int64_t bytes = rungs_[rung];
    if (bytes > fixed_bytes_ && plain_bytes_ > fixed_bytes_) {
      const auto found = solver(bytes).schedule(bytes - fixed_bytes_);
      if (found) try_on(*found, rung);
    }
    if (!states_) return;
    const auto found = search_states(rung);
    if (found.schedule) add(*found.schedule, rung);
    std::vector<Schedule> known;
    for (const auto& [peak_bytes, entry] : front_.entries()) {
      if (peak_bytes <= bytes) known.push_back(entry.schedule);
    }
    for (const auto& schedule : known) add(fill(index_, schedule, bytes), rung);
  }

  std::int64_t size() const { return index_.operations + index_.events; }

  void try_on(const Schedule& schedule, std::int32_t rung) {
    const Schedule small = shrink(index_, schedule, rungs_[rung]);
    add(small, rung);
    Schedule full = fill(index_, small, rungs_[rung]);
    add(full, rung);
    if (size() <= kLarge && !index_.is_chain) {
      add(exchange(index_, std::move(full), rungs_[rung]), rung);
    }
  }

  /// One table for all budgets between two powers of 8, where its slots are fine enough, up to the
  /// first budget that is asked for; up to the power where more is asked for then.
  const ChainSolver& solver(std::int64_t rung) {
    const std::int64_t bytes = rung - fixed_bytes_;
    std::int64_t most = plain_bytes_ - fixed_bytes_;
    while (most / 8 >= std::max<std::int64_t>(bytes, 64)) most /= 8;
    if (!chain_) {
      chain_ = std::make_unique<Chain>(choose_chain(index_));
      costs_ = std::make_unique<ChainCosts>(chain_costs(index_, *chain_));
    }
    auto& solver = solvers_[most];
    if (!solver || solver->needed_bytes() < bytes) {
      const std::int64_t needed = solver ? most : bytes;
      solver = std::make_unique<ChainSolver>(index_, *chain_, *costs_, most, needed);
    }
    return *solver;
  }

  RematIndex index_;
  Bounds bounds_;
  Schedule schedule_;             // of the descent
  std::int32_t undescended_ = 0;  // rungs
  std::int64_t plain_bytes_ = 0;
  std::int64_t fixed_bytes_ = 0;  // in use whatever the plan
  std::vector<std::int64_t> rungs_;
  std::optional<StateSearch> states_;
  Front front_;
  std::unique_ptr<Chain> chain_;
  std::unique_ptr<ChainCosts> costs_;
  std::map<std::int64_t, std::unique_ptr<ChainSolver>> solvers_;
};

}  // namespace
}  // namespace detail

RematPlan plan_without_replay(const RematGraph& graph) {
  graph.validate();
  const detail::RematIndex index(graph);
  return detail::to_plan(index, detail::unavoidable(index));
}

RematSolution plan_rematerialisation(const RematGraph& graph, std::int64_t budget_bytes) {
  graph.validate();
  detail::Planner planner(graph);
  planner.solve(budget_bytes);
  const auto& front = planner.front();
  const auto* best = front.best(budget_bytes);
  RematSolution solution;
  solution.is_feasible = best != nullptr;
  if (best == nullptr) best = &front.entries().begin()->second;
  solution.plan = detail::to_plan(planner.index(), best->schedule);
  solution.forecast = simulate(graph, solution.plan);
  solution.least_replay_ms = planner.bounds().least_replay_ms(budget_bytes);
  solution.smallest_budget_bytes = front.entries().begin()->first;
  solution.least_budget_bytes = planner.bounds().least_budget_bytes();
  return solution;
}

std::vector<RematPoint> rematerialisation_curve(const RematGraph& graph) {
  graph.validate();
  detail::Planner planner(graph);
  planner.solve_all();
  std::vector<RematPoint> curve;
  for (const auto& [peak_bytes, entry] : planner.front().entries()) {
    curve.push_back({peak_bytes, entry.replay_ms});
  }
  return curve;
}

}  // namespace reprise
