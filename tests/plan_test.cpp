// SPDX-License-Identifier: Apache-2.0
#include "reprise/plan.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <limits>

namespace reprise {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<SegmentCost> kThreeSegments = {{100, 1.0}, {400, 1.0}, {200, 9.0}};

TEST(PlanRecomputation, KeepsEverythingThatFits) {
  EXPECT_THAT(plan_recomputation(kThreeSegments, 700), IsEmpty());  // 100 + 400 + 200
  EXPECT_THAT(plan_recomputation({}, 0), IsEmpty());
}

TEST(PlanRecomputation, FreesTheCheapestBytesFirst) {
  EXPECT_THAT(plan_recomputation(kThreeSegments, 300), ElementsAre(1));     // 700 - 400
  EXPECT_THAT(plan_recomputation(kThreeSegments, 200), ElementsAre(0, 1));  // 700 - 500
  EXPECT_THAT(plan_recomputation(kThreeSegments, 0), ElementsAre(0, 1, 2));
}

TEST(PlanRecomputation, IsNotFooledByTheBestRatio) {
  // Greedy takes the first (100 bytes per ms) and then needs the second as well; the second alone
  // is enough.
  EXPECT_THAT(plan_recomputation({{100, 1.0}, {150, 2.0}}, 100), ElementsAre(1));
}

TEST(PlanRecomputation, RefusesWhatCannotBe) {
  EXPECT_THROW(plan_recomputation(kThreeSegments, -1), std::invalid_argument);
  EXPECT_THROW(plan_recomputation({{-1, 1.0}}, 10), std::invalid_argument);
  EXPECT_THROW(plan_recomputation({{1, std::numeric_limits<double>::quiet_NaN()}}, 10),
               std::invalid_argument);
}

/// Least extra time over all subsets that fit.
double brute_force_ms(const std::vector<SegmentCost>& segments, std::int64_t budget_bytes) {
  double best = std::numeric_limits<double>::infinity();
  for (unsigned subset = 0; subset < (1U << segments.size()); ++subset) {
    std::int64_t kept = 0;
    double ms = 0;
    for (std::size_t i = 0; i < segments.size(); ++i) {
      if ((subset >> i) & 1U) {
        ms += segments[i].forward_ms;
      } else {
        kept += segments[i].activation_bytes;
      }
    }
    if (kept <= budget_bytes) best = std::min(best, ms);
  }
  return best;
}

RC_GTEST_PROP(PlanRecomputation, IsOptimal, ()) {
  const auto bytes =
      *rc::gen::container<std::vector<int>>(*rc::gen::inRange(0, 11), rc::gen::inRange(0, 50));
  std::vector<SegmentCost> segments;
  std::int64_t total = 0;
  for (int b : bytes) {
    segments.push_back({b, static_cast<double>(*rc::gen::inRange(0, 20))});
    total += b;
  }
  const std::int64_t budget = *rc::gen::inRange<std::int64_t>(0, total + 2);
  std::int64_t kept = total;
  double ms = 0;
  for (std::size_t i : plan_recomputation(segments, budget)) {
    kept -= segments[i].activation_bytes;
    ms += segments[i].forward_ms;
  }
  RC_ASSERT(kept <= budget);
  RC_ASSERT(ms == brute_force_ms(segments, budget));
}

}  // namespace
}  // namespace reprise
