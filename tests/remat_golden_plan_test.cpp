// SPDX-License-Identifier: Apache-2.0
// Plans of 30 small graphs against the optimum that tests/golden/remat_optimum.py has found with
// another solver.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "remat_brute_force.h"
#include "reprise/remat_plan.h"

namespace reprise {
namespace {

struct GoldenBudget {
  std::int64_t bytes = 0;
  double least_replay_ms = 0.0;
};

struct GoldenGraph {
  std::string name;
  RematGraph graph;
  std::int64_t least_budget_bytes = 0;  ///< for which there is a plan
  std::vector<GoldenBudget> budgets;
};

RematGraph read_graph(const nlohmann::json& json) {
  RematGraph graph;
  graph.base_bytes = json["base_bytes"];
  graph.first_bytes = json["first_bytes"];
  for (const auto& it : json["operations"]) {
    graph.operations.push_back({"op", "", it[0], it[1], it[2], it[3], it[4] == 1});
  }
  for (const auto& it : json["values"]) {
    graph.values.push_back({it[0], it[1], it[2], it[3] == 1});
  }
  for (const auto& it : json["events"]) {
    const auto kind = it[0] == 1 ? RematEvent::Kind::kNeed : RematEvent::Kind::kRelease;
    graph.events.push_back({kind, it[1], 0.0, it[2]});
  }
  graph.validate();
  return graph;
}

std::vector<GoldenGraph> read_golden() {
  std::ifstream file(std::filesystem::path(REPRISE_TEST_DIR) / "golden" / "remat_optimum.json");
  std::vector<GoldenGraph> result;
  for (const auto& it : nlohmann::json::parse(file)) {
    result.push_back({it["name"], read_graph(it), it["least_budget_bytes"], {}});
    for (std::size_t i = 0; i < it["budgets"].size(); ++i) {
      result.back().budgets.push_back({it["budgets"][i], it["least_replay_ms"][i]});
    }
  }
  return result;
}

TEST(RematGolden, PlansAreWithinThreePercentOfTheOptimum) {
  const auto golden = read_golden();
  ASSERT_EQ(golden.size(), 30U);
  double least_sum_ms = 0.0;
  double found_sum_ms = 0.0;
  double worst = 1.0;
  for (const auto& it : golden) {
    for (const auto& budget : it.budgets) {
      SCOPED_TRACE(it.name + ", " + std::to_string(budget.bytes) + " bytes");
      const auto solution = plan_rematerialisation(it.graph, budget.bytes);
      EXPECT_TRUE(solution.is_feasible);
      const double found_ms = solution.forecast.replay_ms;
      EXPECT_GE(found_ms, budget.least_replay_ms) << "the two models are not the same";
      EXPECT_LE(found_ms, 1.03 * budget.least_replay_ms);
      EXPECT_LE(solution.least_replay_ms, budget.least_replay_ms + 1e-6);
      least_sum_ms += budget.least_replay_ms;
      found_sum_ms += found_ms;
      if (found_ms > 0.0) worst = std::max(worst, found_ms / budget.least_replay_ms);
    }
  }
  RecordProperty("found_over_optimum", std::to_string(found_sum_ms / least_sum_ms));
  RecordProperty("worst_over_optimum", std::to_string(worst));
}

TEST(RematGolden, NoPlanTakesLessThanTheLeastBudget) {
  for (const auto& it : read_golden()) {
    SCOPED_TRACE(it.name);
    const auto solution = plan_rematerialisation(it.graph, it.least_budget_bytes - 1);
    EXPECT_FALSE(solution.is_feasible);
    EXPECT_LE(solution.least_budget_bytes, it.least_budget_bytes);
    EXPECT_GE(solution.smallest_budget_bytes, it.least_budget_bytes);
  }
}

// Two ways to the optimum that share nothing.
TEST(RematGolden, AgreesWithTheBestOfAllSchedules) {
  int compared = 0;
  for (const auto& it : read_golden()) {
    if (it.name.rfind("plain", 0) != 0) continue;
    EXPECT_LT(BruteForce(it.graph, it.least_budget_bytes - 1).least_ms(), 0.0);
    for (const auto& budget : it.budgets) {
      EXPECT_EQ(BruteForce(it.graph, budget.bytes).least_ms(), budget.least_replay_ms) << it.name;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 15);
}

}  // namespace
}  // namespace reprise
