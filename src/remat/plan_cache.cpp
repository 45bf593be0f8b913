// SPDX-License-Identifier: Apache-2.0
#include "remat/plan_cache.h"

#include "remat/elapsed.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace reprise::detail {
namespace {

constexpr std::size_t kMostPlans = 8;
/// The first step is not yet as all later ones: gradients are allocated in it, kernels are made.
constexpr int kMostCorrections = 3;

constexpr std::size_t kMostSeen = 64;

std::uint64_t hash_of(const std::vector<std::uint64_t>& signature) {
  std::uint64_t hash = signature.size();
  for (const auto word : signature) hash = (hash ^ word) * 1099511628211U;  // as FNV-1a
  return hash;
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
void PlanCache::note_peak(const PlannedStep& plan, std::int64_t peak_bytes) {
  const std::lock_guard lock(mutex_);
  last_ = {plan.solution.forecast, peak_bytes, plan.solution.smallest_budget_bytes,
           plan.solution.least_replay_ms};
  if (peak_bytes != plan.solution.forecast.peak_bytes && corrections_ < kMostCorrections) {
    ++corrections_;
    is_profile_wanted_ = true;
  }
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
  planned->solution = plan_rematerialisation(step.graph, budget_bytes_);
  planning_ms_ += milliseconds_since(begin);
  if (!planned->solution.is_feasible) return;
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

double PlanCache::planning_ms() const {
  const std::lock_guard lock(mutex_);
  return planning_ms_;
}

std::optional<PlanCache::Comparison> PlanCache::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

}  // namespace reprise::detail
