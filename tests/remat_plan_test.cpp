// SPDX-License-Identifier: Apache-2.0
#include "reprise/remat_plan.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "remat_plan_graphs.h"

namespace reprise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

using Kind = RematAction::Kind;

/// Any graph: several inputs and outputs, values needed twice, held to the end, overwritten, and
/// operations that cannot run again.
RematGraph random_graph(std::int32_t operations, bool is_plain) {
  RematGraph graph;
  const auto below = [](int end) {
    return *rc::gen::inRange(0, end);
  };
  graph.base_bytes = below(20);
  graph.first_bytes = below(5);
  for (std::int32_t i = 0; i < operations; ++i) {
    RematOperation operation{"op", "", static_cast<double>(below(9)), below(4), {}, {}, true};
    const auto known = static_cast<std::int32_t>(graph.values.size());
    std::set<std::int32_t> inputs;
    for (int k = below(3); k >= 0 && known > 0; --k) {
      inputs.insert(std::max(0, known - 1 - below(below(4) == 0 ? known : 3)));
    }
    for (const std::int32_t v : inputs) {
      if (graph.values[v].can_be_kept || graph.values[v].held_until >= i - 1) {
        operation.inputs.push_back(v);
        graph.values[v].held_until = std::max(graph.values[v].held_until, i);
      }
    }
    operation.can_run_again = is_plain || below(6) != 0;
    for (int k = below(4) == 0 ? 1 : 0; k >= 0; --k) {
      operation.outputs.push_back(static_cast<std::int32_t>(graph.values.size()));
      graph.values.push_back({1 + below(9), i, i, is_plain || below(10) != 0});
    }
    graph.operations.push_back(operation);
  }
  for (auto& value : graph.values) {
    if (!is_plain && below(10) == 0) value.held_until = operations;
  }
  for (std::int32_t i = operations - 1; i >= 0; --i) {
    std::vector<std::int32_t> saved;
    for (const auto* list : {&graph.operations[i].inputs, &graph.operations[i].outputs}) {
      for (const std::int32_t v : *list) {
        if (graph.values[v].can_be_kept && below(3) != 0) saved.push_back(v);
      }
    }
    for (const std::int32_t v : saved) {
      graph.events.push_back({RematEvent::Kind::kNeed, v, static_cast<double>(below(5)), below(6)});
    }
    for (const std::int32_t v : saved) {
      graph.events.push_back({RematEvent::Kind::kRelease, v, 0.0, below(6)});
    }
  }
  return graph;
}

/// The peak the slow way: all that is somewhere is summed at every moment.
class Recount {
 public:
  Recount(const RematGraph& graph, const RematPlan& plan) : graph_(graph) {
    const auto end = static_cast<std::int32_t>(graph.operations.size());
    const std::set<std::int32_t> kept(plan.kept.begin(), plan.kept.end());
    const auto count = static_cast<std::int32_t>(graph.values.size());
    for (std::int32_t i = 0; i < end; ++i) {
      std::int64_t sum = graph.operations[i].temporary_bytes;
      for (std::int32_t v = 0; v < count; ++v) {
        const auto& value = graph.values[v];
        if (value.made_by <= i && (kept.count(v) > 0 || value.held_until >= i)) sum += value.bytes;
      }
      peak = std::max(peak, graph.base_bytes + sum);
    }
    for (std::int32_t v = 0; v < count; ++v) {
      const bool is_held = graph.values[v].held_until == end;
      if (kept.count(v) > 0 || (is_held && graph.values[v].can_be_kept)) {
        copies_[{v, 0}].is_there = true;
      } else if (is_held) {
        held_ += graph.values[v].bytes;
      }
      next_[v] = 1;
    }
    backward(plan);
  }

  std::int64_t peak = 0;
  double replay_ms = 0.0;

 private:
  struct Copy {
    bool is_there = false;
    int uses = 0;
  };

  void backward(const RematPlan& plan) {
    count(graph_.first_bytes);
    std::int64_t other = graph_.first_bytes;
    std::map<std::int32_t, std::vector<int>> in_use;
    for (std::size_t e = 0; e < graph_.events.size(); ++e) {
      for (const auto& action : plan.actions) {
        if (action.before_event == static_cast<std::int32_t>(e)) act(action, other);
      }
      const auto& event = graph_.events[e];
      other = event.other_bytes;
      if (event.kind == RematEvent::Kind::kNeed) {
        const int copy = there(event.value);
        ++copies_.at({event.value, copy}).uses;
        in_use[event.value].push_back(copy);
      } else {
        --copies_.at({event.value, in_use[event.value].front()}).uses;
        in_use[event.value].erase(in_use[event.value].begin());
      }
      count(other);
    }
  }

  int there(std::int32_t value) const {
    for (const auto& [key, copy] : copies_) {
      if (key.first == value && copy.is_there) return key.second;
    }
    return -1;
  }

  void act(const RematAction& action, std::int64_t other) {
    if (action.kind == Kind::kDrop) {
      copies_.at({action.index, there(action.index)}).is_there = false;
      return;
    }
    const auto& operation = graph_.operations[action.index];
    replay_ms += operation.time_ms;
    std::int64_t duplicates = 0;
    for (const std::int32_t v : operation.outputs) {
      if (there(v) >= 0) {
        duplicates += graph_.values[v].bytes;
      } else {
        copies_[{v, next_[v]++}].is_there = true;
      }
    }
    count(other + operation.temporary_bytes + duplicates);
  }

  void count(std::int64_t other) {
    std::int64_t sum = graph_.base_bytes + held_ + other;
    for (const auto& [key, copy] : copies_) {
      if (copy.is_there || copy.uses > 0) sum += graph_.values[key.first].bytes;
    }
    peak = std::max(peak, sum);
  }

  const RematGraph& graph_;
  std::int64_t held_ = 0;
  std::map<std::pair<std::int32_t, int>, Copy> copies_;
  std::map<std::int32_t, int> next_;
};

RC_GTEST_PROP(RematSimulator, AgreesWithARecount, ()) {
  const auto graph = random_graph(*rc::gen::inRange(1, 14), *rc::gen::arbitrary<bool>());
  graph.validate();
  for (const std::int64_t budget : budgets(graph)) {
    const auto solution = plan_rematerialisation(graph, budget);
    const Recount recount(graph, solution.plan);
    RC_ASSERT(simulate(graph, solution.plan).peak_bytes == recount.peak);
    RC_ASSERT(simulate(graph, solution.plan).replay_ms == recount.replay_ms);
  }
}

RC_GTEST_PROP(RematPlanner, FitsAndNeverGetsSlowerWithMoreMemory, ()) {
  const auto graph = random_graph(*rc::gen::inRange(1, 20), *rc::gen::arbitrary<bool>());
  double last_ms = std::numeric_limits<double>::max();
  bool was_feasible = false;
  for (const std::int64_t budget : budgets(graph)) {
    const auto solution = plan_rematerialisation(graph, budget);
    const std::int64_t peak = solution.forecast.peak_bytes;
    RC_ASSERT(solution.is_feasible == (peak <= budget));
    RC_ASSERT(solution.is_feasible || !was_feasible);
    RC_ASSERT(solution.is_feasible || peak == solution.smallest_budget_bytes);
    RC_ASSERT(solution.least_budget_bytes <= peak);
    was_feasible = solution.is_feasible;
    if (!solution.is_feasible) continue;
    RC_ASSERT(solution.forecast.replay_ms <= last_ms);
    RC_ASSERT(solution.least_replay_ms <= solution.forecast.replay_ms + 1e-6);
    last_ms = solution.forecast.replay_ms;
    const auto below = plan_rematerialisation(graph, peak - 1);
    RC_ASSERT(!below.is_feasible || below.forecast.peak_bytes < peak);
  }
  RC_ASSERT(was_feasible);
}

RC_GTEST_PROP(RematPlanner, IsDeterministicAndSurvivesJson, ()) {
  const auto graph = random_graph(*rc::gen::inRange(1, 14), false);
  const std::int64_t budget = budgets(graph)[6];
  const auto plan = plan_rematerialisation(graph, budget).plan;
  const auto text = to_json(plan, graph, budget);
  RC_ASSERT(text == to_json(plan_rematerialisation(graph, budget).plan, graph, budget));
  RC_ASSERT(text == to_json(plan_from_json(text, graph), graph, budget));
}

RC_GTEST_PROP(RematCurve, RisesInBytesAndFallsInTime, ()) {
  const auto graph = random_graph(*rc::gen::inRange(1, 14), true);
  const auto curve = rematerialisation_curve(graph);
  RC_ASSERT(!curve.empty());
  for (std::size_t i = 1; i < curve.size(); ++i) {
    RC_ASSERT(curve[i].budget_bytes > curve[i - 1].budget_bytes);
    RC_ASSERT(curve[i].replay_ms < curve[i - 1].replay_ms);
  }
}

TEST(RematPlanner, FitsAThousandEqualLayersIntoATwentieth) {
  const auto graph = chain(std::vector<std::int64_t>(1001, 1000));
  const auto solution = plan_rematerialisation(graph, 50'000);
  ASSERT_TRUE(solution.is_feasible);
  EXPECT_LE(solution.forecast.peak_bytes, 50'000);
  // Revolve (Griewank and Walther 2000): with some 48 places between, C(48 + 2, 48) = 1225 steps
  // need at most two runs of each besides the first.
  EXPECT_LE(solution.forecast.replay_ms, 2000.0);
}

TEST(RematPlanner, KeepsEverythingWhereItFits) {
  const auto graph = chain({4, 3, 2, 1});
  const auto solution = plan_rematerialisation(graph, 1000);
  EXPECT_TRUE(solution.is_feasible);
  EXPECT_THAT(solution.plan.kept, ElementsAre(0, 1, 2));
  EXPECT_EQ(solution.forecast.replay_ms, 0.0);
  EXPECT_EQ(solution.forecast.peak_bytes, 10);  // 4 + 3 + 2 + 1
}

TEST(RematPlanner, CountsTheInputsOfWhatRunsAgainInItsBound) {
  // Only the second value is needed. At the end of forward there is room for half of either, so by
  // itself its operation must run at least half, but not without the one before.
  auto graph = chain({10, 10, 10});
  graph.operations[0].time_ms = 10.0;
  graph.events = {{RematEvent::Kind::kNeed, 1, 0.0, 0}, {RematEvent::Kind::kRelease, 1, 0.0, 0}};
  graph.first_bytes = 15;
  const auto solution = plan_rematerialisation(graph, 20);
  EXPECT_GT(solution.least_replay_ms, 5.0);
  EXPECT_LE(solution.least_replay_ms, 11.0);
}

TEST(RematSimulator, CountsMoments) {
  auto graph = chain({10, 20, 40});
  graph.base_bytes = 1000;
  graph.first_bytes = 3;
  graph.events[0].other_bytes = 5;
  graph.events[1].other_bytes = 7;
  graph.operations[0].temporary_bytes = 100;
  // Forward keeps 0; 1 is made again for its need, and not kept for longer than it.
  const RematPlan plan{{0}, {{0, Kind::kRun, 1}, {1, Kind::kDrop, 1}, {3, Kind::kDrop, 0}}};
  const auto forecast = simulate(graph, plan);
  EXPECT_EQ(forecast.peak_bytes, 1110);  // 1000 + 10 + 100: the first operation
  graph.operations[0].temporary_bytes = 0;
  EXPECT_EQ(simulate(graph, plan).peak_bytes, 1070);  // 1000 + 10 + 20 + 40: the last operation
  graph.values[1].held_until = 1;
  graph.operations[2].inputs = {};
  EXPECT_EQ(simulate(graph, plan).peak_bytes, 1050);  // 1000 + 10 + 40
  EXPECT_EQ(forecast.kept_bytes, 10);
  EXPECT_EQ(forecast.forward_ms, 3.0);
  EXPECT_EQ(forecast.backward_ms, 4.0);
  EXPECT_EQ(forecast.replay_ms, 1.0);
  EXPECT_EQ(forecast.replayed_operations, 1);
}

/// `plan` of a chain of three values is refused.
void expect_refused(
    const RematPlan& plan, const std::string& what,
    const std::function<void(RematGraph&)>& change = [](auto&) {}) {
  auto graph = chain({1, 1, 1});
  change(graph);
  EXPECT_THAT([&] { simulate(graph, plan); },
              ThrowsMessage<std::invalid_argument>(HasSubstr(what)));
}

TEST(RematSimulator, RefusesPlansThatCannotBeCarriedOut) {
  expect_refused({{0}, {}}, "event 0 needs value 1, which is not there");
  expect_refused({{1}, {{0, Kind::kRun, 1}}}, "reads value 0, which is not there");
  expect_refused({{0, 1}, {{0, Kind::kRun, 7}}}, "operation 7 of 3");
  expect_refused({{0, 1}, {{0, Kind::kDrop, 2}}}, "value 2 is dropped, but not there");
  expect_refused({{0, 1}, {{9, Kind::kDrop, 1}}}, "before event 9");
  expect_refused({{0, 1}, {{2, Kind::kDrop, 1}, {1, Kind::kDrop, 0}}}, "before event 1");
  expect_refused({{1, 0}, {}}, "value 0 cannot be kept");
  expect_refused({{0}, {{0, Kind::kRun, 1}}}, "cannot be run again",
                 [](auto& graph) { graph.operations[1].can_run_again = false; });
  expect_refused({{0, 1}, {}}, "forward overwrites it",
                 [](auto& graph) { graph.values[1].can_be_kept = false; });
  expect_refused({{0, 1}, {{0, Kind::kDrop, 0}}}, "holds it to the end",
                 [](auto& graph) { graph.values[0].held_until = 3; });
}

void expect_invalid(const std::string& what, const std::function<void(RematGraph&)>& change) {
  auto graph = chain({1, 1, 1});
  change(graph);
  EXPECT_THAT([&] { graph.validate(); }, ThrowsMessage<std::invalid_argument>(HasSubstr(what)));
}

TEST(RematGraph, NamesWhatCannotBe) {
  expect_invalid("value 0 is -1 bytes", [](auto& g) { g.values[0].bytes = -1; });
  expect_invalid("value 1 is made by operation 5 of 3", [](auto& g) { g.values[1].made_by = 5; });
  expect_invalid("is made before value 0", [](auto& g) { g.values[0] = {1, 2, 2, true}; });
  expect_invalid("value 2 is held until operation 4", [](auto& g) { g.values[2].held_until = 4; });
  expect_invalid("reads value 2, made later", [](auto& g) { g.operations[1].inputs = {2}; });
  expect_invalid("held until operation 0 only", [](auto& g) { g.values[0].held_until = 0; });
  expect_invalid("names value 9 of 3", [](auto& g) { g.operations[1].inputs = {9}; });
  expect_invalid("no ascending order", [](auto& g) { g.operations[2].inputs = {1, 0}; });
  expect_invalid("makes value 0, made by operation 0",
                 [](auto& g) { g.operations[1].outputs = {0, 1}; });
  expect_invalid("is no output", [](auto& g) { g.operations[2].outputs = {}; });
  expect_invalid("takes nan ms", [](auto& g) { g.operations[0].time_ms = std::nan(""); });
  expect_invalid("releases value 1, which is not in use",
                 [](auto& g) { g.events.erase(g.events.begin()); });
  expect_invalid("can neither be kept nor be computed again", [](auto& g) {
    g.values[1].can_be_kept = false;
    g.operations[1].can_run_again = false;
  });
}

TEST(RematGraph, HashIsOfStructureAndNotOfTimes) {
  auto graph = chain({1, 2, 3});
  const auto hash = graph.hash();
  EXPECT_EQ(hash, chain({1, 2, 3}).hash());
  graph.operations[0].time_ms = 7.0;
  graph.events[0].time_ms = 7.0;
  EXPECT_EQ(hash, graph.hash());
  graph.events[0].other_bytes = 7;
  EXPECT_NE(hash, graph.hash());
  EXPECT_NE(hash, chain({1, 2, 4}).hash());
}

TEST(RematPlanJson, IsRefusedWhereItIsNoPlanOfTheGraph) {
  const auto graph = chain({1, 1, 1});
  const std::string text = to_json({{0}, {{0, Kind::kRun, 1}}}, graph, 5);
  const auto expect_refused_text = [&](const std::string& from, const std::string& to,
                                       const std::string& what) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    EXPECT_THAT([&] { plan_from_json(changed, graph); },
                ThrowsMessage<std::invalid_argument>(HasSubstr(what)));
  };
  expect_refused_text("{", "[", "is no JSON");
  expect_refused_text("\"version\": 1", "\"version\": 2", "version 2 is not known");
  expect_refused_text("\"kept\"", "\"keep\"", "there is no \"kept\"");
  expect_refused_text("[0]", "[3]", "the kept value 3 is not one of 3");
  expect_refused_text("[0]", "[1, 0]", "no ascending order");
  expect_refused_text("\"run\"", "\"jump\"", "\"jump\" is not known");
  expect_refused_text("\"run\", 1", "\"run\", 3", "the operation 3 is not one of 3");
  expect_refused_text("[0, \"run\"", "[9, \"run\"", "the event of an action 9");
  expect_refused_text("\"run\", 1", "\"run\", 2", "was changed after it was written");
  expect_refused_text("_bytes\": 5", "_bytes\": 6", "was changed after it was written");
  EXPECT_THAT([&] { plan_from_json(text, chain({1, 1, 2})); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("make a new plan")));
}

}  // namespace
}  // namespace reprise
