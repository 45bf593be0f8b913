// SPDX-License-Identifier: Apache-2.0
/// The plans of the steps that a rematerialiser has seen.
#pragma once

#include "remat/tape.h"

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace reprise::detail {

/// Plans steps that were recorded, when the next one begins. Thread-safe.
class PlanCache : public StepPlans {
 public:
  explicit PlanCache(std::int64_t budget_bytes) : budget_bytes_(budget_bytes) {}

  std::shared_ptr<const PlannedStep> find(
      const std::vector<std::uint64_t>& signature) const override;
  void note_miss() override;
  void add(StepGraph step) override;
  void note_peak(const PlannedStep& plan, std::int64_t peak_bytes) override;

  /// The plan to begin the next step with, and whether that step is to be recorded for the planner.
  struct Next {
    std::shared_ptr<const PlannedStep> plan;
    bool is_profiled = true;
  };
  Next next();

  /// The last planned step: what was foretold, and what it took.
  struct Comparison {
    RematForecast forecast;
    std::int64_t peak_bytes = 0;
    std::int64_t smallest_budget_bytes = 0;
    double least_replay_ms = 0.0;
  };
  std::optional<Comparison> last() const;
  double planning_ms() const;  ///< in all

 private:
  void make_plan(StepGraph step);

  const std::int64_t budget_bytes_;
  mutable std::mutex mutex_;
  std::list<std::shared_ptr<const PlannedStep>> plans_;  ///< the last used first
  std::optional<StepGraph> recorded_;                    ///< to be planned
  bool is_profile_wanted_ = true;
  bool is_first_ = true;
  std::deque<std::uint64_t> seen_;  ///< steps that were recorded and not planned
  int corrections_ = 0;
  double planning_ms_ = 0.0;
  std::optional<Comparison> last_;
};

}  // namespace reprise::detail
