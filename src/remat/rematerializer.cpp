// SPDX-License-Identifier: Apache-2.0
#include "reprise/rematerializer.h"

#include "remat/elapsed.h"
#include "remat/plan_cache.h"
#include "remat/recorder.h"
#include "reprise/errors.h"
#include "reprise/memory_budget.h"

#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace reprise {
namespace {

thread_local bool is_recording = false;

}  // namespace

struct Rematerializer::Impl {
  explicit Impl(const RematerializerOptions& options)
      : handler([this](std::int64_t missing_bytes) { return evict(missing_bytes); }) {
    if (options.budget_bytes < 0) {
      throw OptionError("budget_bytes", "budget_bytes: must not be negative, got " +
                                            std::to_string(options.budget_bytes));
    }
    check_saved_plan(options.saved_plan);
    if (options.budget_bytes == 0) return;
    budget.emplace(options.budget_bytes);
    plans = std::make_shared<detail::PlanCache>(options.budget_bytes, options.saved_plan);
  }

  static void check_saved_plan(const std::string& plan) {
    if (plan.empty()) return;
    try {
      graph_hash_of_json(plan);
    } catch (const std::invalid_argument& error) {
      throw OptionError("saved_plan", std::string("saved_plan: ") + error.what());
    }
  }

  bool evict(std::int64_t missing_bytes) {
    const auto begin = std::chrono::steady_clock::now();
    const auto note_time = c10::make_scope_exit(
        [&] { detail::Tape::eviction_ms() += detail::milliseconds_since(begin); });
    // Nobody waits for a lock here: two threads that need memory would wait for each other.
    constexpr int kMostTries = 100;
    for (int i = 0; i < kMostTries; ++i) {
      bool is_busy = false;
      if (evict_once(missing_bytes, is_busy) > 0) return true;
      if (!is_busy) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return false;
  }

  std::int64_t evict_once(std::int64_t missing_bytes, bool& is_busy) {
    std::int64_t freed_bytes = 0;
    for (const auto& tape : live_tapes()) {
      if (freed_bytes >= missing_bytes) break;
      const auto freed = tape->evict(missing_bytes - freed_bytes);
      freed_bytes += freed.value_or(0);
      is_busy = is_busy || !freed;
    }
    return freed_bytes;
  }

  std::vector<std::shared_ptr<detail::Tape>> live_tapes() {
    std::vector<std::shared_ptr<detail::Tape>> live;
    const std::lock_guard lock(mutex);
    for (const auto& weak : tapes) {
      if (auto tape = weak.lock()) live.push_back(std::move(tape));
    }
    return live;
  }

  std::shared_ptr<detail::Tape> new_tape() {
    detail::TapeOptions tape_options;
    if (plans) {
      const auto next = plans->next();
      tape_options = {plans, next.plan, next.is_profiled};
    }
    auto tape = std::make_shared<detail::Tape>(counters, std::move(tape_options));
    const std::lock_guard lock(mutex);
    std::erase_if(tapes, [](const auto& weak) { return weak.expired(); });
    tapes.push_back(tape);
    ++steps;
    return tape;
  }

  std::shared_ptr<detail::TapeCounters> counters = std::make_shared<detail::TapeCounters>();
  std::mutex mutex;  ///< of those below
  std::vector<std::weak_ptr<detail::Tape>> tapes;
  std::int64_t steps = 0;
  std::optional<MemoryBudget> budget;
  std::shared_ptr<detail::PlanCache> plans;
  MemoryPressureHandler handler;
};

Rematerializer::Rematerializer(const RematerializerOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}

Rematerializer::~Rematerializer() = default;

RematerializerStats Rematerializer::stats() const {
  const std::lock_guard lock(impl_->mutex);
  const auto& counters = *impl_->counters;
  RematerializerStats stats{.steps = impl_->steps,
                            .operations = counters.operations,
                            .evictions = counters.evictions,
                            .evicted_bytes = counters.evicted_bytes,
                            .replayed_operations = counters.replayed_operations,
                            .replay_ms = static_cast<double>(counters.replay_ns) / 1e6};
  if (!impl_->plans) return stats;
  stats.planning_ms = impl_->plans->planning_ms();
  stats.saved_plan_uses = impl_->plans->saved_plan_uses();
  if (const auto last = impl_->plans->last()) {
    const auto& solution = last->plan->solution;
    stats.is_planned = true;
    stats.predicted_peak_bytes = solution.forecast.peak_bytes;
    stats.predicted_replay_ms = solution.forecast.replay_ms;
    stats.measured_peak_bytes = last->peak_bytes;
    stats.least_replay_ms = solution.least_replay_ms;
  }
  return stats;
}

std::optional<RematStep> Rematerializer::planned_step() const {
  const auto last = impl_->plans ? impl_->plans->last() : std::nullopt;
  if (!last) return std::nullopt;
  return RematStep{last->plan->step.graph, last->plan->solution};
}

struct Rematerializer::Recording::State {
  explicit State(Impl& impl) : recorder(impl.new_tape()) { is_recording = true; }
  ~State() { is_recording = false; }

  detail::Recorder recorder;
};

Rematerializer::Recording::Recording(Rematerializer& rematerializer) {
  if (!is_recording) state_ = std::make_unique<State>(*rematerializer.impl_);
}

Rematerializer::Recording::~Recording() = default;

}  // namespace reprise
