// SPDX-License-Identifier: Apache-2.0
// Plans of small graphs against the best of all schedules.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "remat_brute_force.h"
#include "remat_plan_graphs.h"
#include "reprise/remat_plan.h"

namespace reprise {
namespace {

RC_GTEST_PROP(RematPlanner, FindsTheOptimumOfChains, ()) {
  std::vector<std::int64_t> bytes;
  for (int i = *rc::gen::inRange(2, 7); i > 0; --i) bytes.push_back(*rc::gen::inRange(1, 6));
  auto graph = chain(bytes);
  for (auto& operation : graph.operations) operation.time_ms = *rc::gen::inRange(1, 9);
  for (const std::int64_t budget : budgets(graph)) {
    const double least_ms = BruteForce(graph, budget).least_ms();
    const auto solution = plan_rematerialisation(graph, budget);
    RC_ASSERT(solution.is_feasible == (least_ms >= 0.0));
    if (!solution.is_feasible) continue;
    RC_ASSERT(solution.forecast.replay_ms == least_ms);
    RC_ASSERT(solution.least_replay_ms <= least_ms + 1e-6);
    RC_ASSERT(solution.least_budget_bytes <= budget);
  }
}

/// Operations that read one or two of the last values, or a far one.
RematGraph small_graph(std::mt19937& random, std::int32_t operations) {
  const auto below = [&](std::uint32_t end) {
    return static_cast<std::int32_t>(random() % end);
  };
  RematGraph graph;
  for (std::int32_t i = 0; i < operations; ++i) {
    std::set<std::int32_t> inputs;
    if (i > 0) inputs.insert(i - 1 - below(i > 1 ? 2U : 1U));
    if (i > 1 && below(2) == 0) inputs.insert(below(static_cast<std::uint32_t>(i)));
    for (const std::int32_t v : inputs) graph.values[v].held_until = i;
    graph.operations.push_back(
        {"op", "", 1.0 + below(8), 0, {inputs.begin(), inputs.end()}, {i}, true});
    graph.values.push_back({1 + below(6), i, i, true});
  }
  for (std::int32_t i = operations - 1; i >= 0; --i) {
    for (const std::int32_t v : graph.operations[i].inputs) {
      graph.events.push_back({RematEvent::Kind::kNeed, v, 1.0, 0});
      graph.events.push_back({RematEvent::Kind::kRelease, v, 0.0, 0});
    }
  }
  return graph;
}

TEST(RematPlanner, FindsTheOptimumOfSmallGraphs) {
  std::mt19937 random(1);
  int feasible = 0;
  for (int i = 0; i < 30; ++i) {
    const auto graph = small_graph(random, 5 + i % 3);
    const std::int64_t plain = simulate(graph, plan_without_replay(graph)).peak_bytes;
    for (const std::int64_t budget : {plain * 6 / 10, plain * 75 / 100, plain * 9 / 10}) {
      const double least_ms = BruteForce(graph, budget).least_ms();
      const auto solution = plan_rematerialisation(graph, budget);
      EXPECT_EQ(solution.is_feasible, least_ms >= 0.0);
      if (!solution.is_feasible) continue;
      ++feasible;
      EXPECT_EQ(solution.forecast.replay_ms, least_ms);
      EXPECT_LE(solution.least_replay_ms, least_ms + 1e-6);
      EXPECT_LE(solution.least_budget_bytes, budget);
    }
  }
  EXPECT_GE(feasible, 50);
}

// Large enough that budgets below the one that is asked for are left out.
TEST(RematPlanner, NeverGetsSlowerWithMoreMemoryOnLargerGraphs) {
  std::mt19937 random(2);
  for (int i = 0; i < 3; ++i) {
    const auto graph = small_graph(random, 70);
    const std::int64_t plain = simulate(graph, plan_without_replay(graph)).peak_bytes;
    double last_ms = std::numeric_limits<double>::max();
    int feasible = 0;
    for (std::int64_t budget = plain / 2; budget <= plain; budget += 1 + plain / 60) {
      const auto solution = plan_rematerialisation(graph, budget);
      EXPECT_EQ(solution.is_feasible, solution.forecast.peak_bytes <= budget);
      EXPECT_TRUE(solution.is_feasible || feasible == 0);
      if (!solution.is_feasible) continue;
      ++feasible;
      EXPECT_LE(solution.forecast.replay_ms, last_ms);
      EXPECT_LE(solution.least_replay_ms, solution.forecast.replay_ms + 1e-6);
      last_ms = solution.forecast.replay_ms;
    }
    EXPECT_GT(feasible, 10);
  }
}

}  // namespace
}  // namespace reprise
