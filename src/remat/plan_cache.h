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
#include <string>
#include <vector>

namespace reprise::detail {

/// Plans steps that were recorded, when the next one begins. Thread-safe.
class PlanCache : public StepPlans {
 public:
  /// `saved_plan`: JSON, or empty.
  PlanCache(std::int64_t budget_bytes, std::string saved_plan)
      : budget_bytes_(budget_bytes), saved_plan_(std::move(saved_plan)) {}

  std::shared_ptr<const PlannedStep> find(
      const std::vector<std::uint64_t>& signature) const override;
  void note_miss() override;
  void add(StepGraph step) override;
  void note_peak(std::shared_ptr<const PlannedStep> plan, std::int64_t peak_bytes) override;

  /// The plan to begin the next step with, and whether that step is to be recorded for the planner.
  struct Next {
    std::shared_ptr<const PlannedStep> plan;
    bool is_profiled = true;
  };
  Next next();

  /// The last planned step: what was foretold, and what it took.
  struct Comparison {
    std::shared_ptr<const PlannedStep> plan;
    std::int64_t peak_bytes = 0;
  };
  std::optional<Comparison> last() const;
  double planning_ms() const;  ///< in all
  std::int64_t saved_plan_uses() const;

 private:
  void record_once_more();
  void make_plan(StepGraph step);
  RematSolution solve(const RematGraph& graph);
  std::optional<RematSolution> saved_solution(const RematGraph& graph) const;

  const std::int64_t budget_bytes_;
  const std::string saved_plan_;
  mutable std::mutex mutex_;
  std::list<std::shared_ptr<const PlannedStep>> plans_;  ///< the last used first
  std::optional<StepGraph> recorded_;                    ///< to be planned
  bool is_profile_wanted_ = true;
  bool is_first_ = true;
  std::deque<std::uint64_t> seen_;  ///< steps that were recorded
  int corrections_ = 0;
  double planning_ms_ = 0.0;
  std::int64_t saved_plan_uses_ = 0;
  std::optional<Comparison> last_;
};

}  // namespace reprise::detail
