// SPDX-License-Identifier: Apache-2.0
#include "remat/plan_cache.h"

#include "plan/fnv1a.h"
#include "remat/elapsed.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

namespace reprise::detail {
namespace {

constexpr std::size_t kMostPlans = 8;
/// The first step is not yet as all later ones: gradients are allocated in it, kernels are made.
constexpr int kMostCorrections = 3;

constexpr std::size_t kMostSeen = 64;

std::uint64_t hash_of(const std::vector<std::uint64_t>& signature) {
  Fnv1a hash;
  for (const auto word : signature) hash.add(static_cast<std::int64_t>(word));
  return hash.value();
}

bool begins_with(const std::vector<std::uint64_t>& all, const std::vector<std::uint64_t>& first) {
  return all.size() >= first.size() && std::equal(first.begin(), first.end(), all.begin());
}

}  // namespace

std::shared_ptr<const PlannedStep> PlanCache::find(
    const std::vector<std::uint64_t>& signature) const {
  const std::lock_guard lock(mutex_);
  for (const auto& plan : plans_) {
    if (begins_with(plan->step.signature, signature)) return plan;
  }
  return nullptr;
}

void PlanCache::note_miss() {
  const std::lock_guard lock(mutex_);
  is_profile_wanted_ = true;
  corrections_ = 0;
}

void PlanCache::add(StepGraph step) {
  const std::lock_guard lock(mutex_);
  // A plan pays off where the same step comes again: the first one does, as a rule.
  const bool is_first = std::exchange(is_first_, false);
  const auto hash = hash_of(step.signature);
  const bool has_plan = std::ranges::any_of(
      plans_, [&](const auto& plan) { return plan->step.signature == step.signature; });
  if (is_first || has_plan || std::ranges::find(seen_, hash) != seen_.end()) {
    recorded_ = std::move(step);
    return;
  }
  seen_.push_back(hash);
  if (seen_.size() > kMostSeen) seen_.pop_front();
}

/// A step that takes more or less than was foretold is recorded once more.
void PlanCache::note_peak(std::shared_ptr<const PlannedStep> plan, std::int64_t peak_bytes) {
  const std::lock_guard lock(mutex_);
  last_ = {std::move(plan), peak_bytes};
  if (peak_bytes != last_->plan->solution.forecast.peak_bytes) record_once_more();
}

/// As a step that is not the first may take more or less.
void PlanCache::record_once_more() {
  if (corrections_ == kMostCorrections) return;
  ++corrections_;
  is_profile_wanted_ = true;
}

PlanCache::Next PlanCache::next() {
  const std::lock_guard lock(mutex_);
  if (recorded_) {
    try {
      make_plan(*std::exchange(recorded_, std::nullopt));
    } catch (const std::exception&) {
      // A step without a plan takes longer; it is not wrong.
    }
  }
  Next next;
  if (!plans_.empty()) next.plan = plans_.front();
  next.is_profiled = std::exchange(is_profile_wanted_, false);
  return next;
}

void PlanCache::make_plan(StepGraph step) {
  const auto begin = std::chrono::steady_clock::now();
  auto planned = std::make_shared<PlannedStep>();
  planned->solution = solve(step.graph);
  planning_ms_ += milliseconds_since(begin);
  if (!planned->solution.is_feasible) return record_once_more();
  planned->is_kept.resize(step.tape_values, false);
  for (const auto value : planned->solution.plan.kept) {
    const auto id = static_cast<std::size_t>(step.values[static_cast<std::size_t>(value)]);
    planned->is_kept[id] = true;
  }
  std::erase_if(plans_, [&](const auto& plan) { return plan->step.signature == step.signature; });
  planned->step = std::move(step);
  plans_.push_front(std::move(planned));
  if (plans_.size() > kMostPlans) plans_.pop_back();
}

RematSolution PlanCache::solve(const RematGraph& graph) {
  auto saved = saved_solution(graph);
  if (!saved) return plan_rematerialisation(graph, budget_bytes_);
  ++saved_plan_uses_;
  return *std::move(saved);
}

/// None where the saved plan is not of that graph, or does not fit.
std::optional<RematSolution> PlanCache::saved_solution(const RematGraph& graph) const {
  if (saved_plan_.empty()) return std::nullopt;
  RematSolution solution;
  try {
    solution.plan = plan_from_json(saved_plan_, graph);
    solution.forecast = simulate(graph, solution.plan);
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  }
  solution.is_feasible = solution.forecast.peak_bytes <= budget_bytes_;
  if (!solution.is_feasible) return std::nullopt;
  solution.smallest_budget_bytes = solution.forecast.peak_bytes;
  return solution;
}

std::int64_t PlanCache::saved_plan_uses() const {
  const std::lock_guard lock(mutex_);
  return saved_plan_uses_;
}

double PlanCache::planning_ms() const {
  const std::lock_guard lock(mutex_);
  return planning_ms_;
}

std::optional<PlanCache::Comparison> PlanCache::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

}  // namespace reprise::detail
