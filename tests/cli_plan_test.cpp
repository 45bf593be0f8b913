// SPDX-License-Identifier: Apache-2.0
// What `plan` prints of figures that are given.
#include "plan_check.h"
#include "plan_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace reprise {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Peaks of exactly `fixed_bytes` + `sample_bytes` * batch size; both multiples of the alignment.
PeakModel peak_model(std::int64_t fixed_bytes, std::int64_t sample_bytes) {
  const auto trace = [&](std::int64_t batch_size) {
    return MemoryTrace{batch_size, {{0, fixed_bytes}, {1, sample_bytes * batch_size}}};
  };
  return PeakModel::fit({trace(1), trace(2), trace(4)});
}

// Off takes 1 MB + 0.1 MB a window, aggressive 1 MB + 0.05 MB.
std::vector<TierPeaks> tiers() {
  std::vector<TierPeaks> tiers;
  tiers.push_back({.tier = "off", .peaks = peak_model(1'000'000, 100'032), .recomputes = false});
  tiers.push_back({.tier = "aggressive", .peaks = peak_model(1'000'000, 50'048)});
  return tiers;
}

std::vector<DevicePlan> plans() {
  return plan_batches(tiers(), {{"small", 5'000'000}, {"tiny", 500'000}}, 64);
}

PlanSubject plan_subject(std::int64_t train_windows = 1'000) {
  return {.file = "sales.parquet", .wanted_batch = 64, .train_windows = train_windows};
}

// (5,000,000 - 1,000,000) / 100,032 = 39.99: 39 windows take 4,901,248; of 50,048 bytes 79 do,
// which take 4,953,792. One window takes 1,100,032 or 1,050,048.
TEST(PlanText, HasARowPerDeviceAndTier) {
  EXPECT_THAT(plan_text(plan_subject(), tiers(), plans()),
              HasSubstr("device  usable [MB]  tier        largest batch  fixed [MB]  per window "
                        "[MB]  total [MB]  "
                        "headroom [MB]  recommended\n"
                        "small           5.0  off                    39         1.0            "
                        "0.100         4.9  "
                        "          0.1\n"
                        "small           5.0  aggressive             79         1.0            "
                        "0.050         5.0  "
                        "          0.0  yes\n"
                        "tiny            0.5  off                     0         1.0            "
                        "0.100         1.1  "
                        "         -0.6\n"
                        "tiny            0.5  aggressive              0         1.0            "
                        "0.050         1.1  "
                        "         -0.6\n"));
}

TEST(PlanText, RecommendsATierForEachDeviceAndSaysWhy) {
  const std::string text = plan_text(plan_subject(), tiers(), plans());
  EXPECT_THAT(text, HasSubstr("\nFor batches of 64 windows\n  small: batch 64 fits only with "
                              "aggressive checkpointing: "));
  EXPECT_THAT(text, HasSubstr("\n  tiny: not even one sample fits: "));
}

TEST(PlanText, SaysHowThePeaksWereFound) {
  EXPECT_THAT(plan_text(plan_subject(), tiers(), plans()),
              HasSubstr("off         replayed, allocation by allocation  "));
  std::vector<TierPeaks> lines;
  // One allocation more at the larger batch: nothing can be replayed.
  lines.push_back(
      {.tier = "off", .peaks = PeakModel::fit({{1, {{0, 640}}}, {2, {{0, 640}, {1, 640}}}})});
  EXPECT_THAT(plan_text(plan_subject(), lines, plan_batches(lines, {{"one", 64'000}}, 1)),
              HasSubstr("on a straight line above the measured ones"));
}

TEST(PlanText, SaysWhereABatchIsMoreThanTheTableHas) {
  EXPECT_THAT(plan_text(plan_subject(79), tiers(), plans()), Not(HasSubstr("training windows")));
  EXPECT_THAT(plan_text(plan_subject(78), tiers(), plans()),
              HasSubstr("The table has 78 training windows: a larger batch takes no more"));
}

TEST(PlanJson, HoldsBytesAsTheyAre) {
  const json document = json::parse(plan_json(plan_subject(), tiers(), plans()).dump());
  EXPECT_EQ(document["wanted_batch"], 64);
  EXPECT_EQ(document["train_windows"], 1'000);
  EXPECT_EQ(document["tiers"][1]["tier"], "aggressive");
  EXPECT_EQ(document["tiers"][1]["replays_events"], true);
  EXPECT_EQ(document["tiers"][1]["residual_bytes"], 0);
  const json& choice = document["devices"][0]["choices"][1];
  EXPECT_EQ(choice["largest_batch"], 79);
  EXPECT_EQ(choice["total_bytes"], 4'953'792);   // 1,000,000 + 79 * 50,048
  EXPECT_EQ(choice["headroom_bytes"], 46'208);   // 5,000,000 - 4,953,792
  EXPECT_EQ(choice["wanted_bytes"], 4'203'072);  // 1,000,000 + 64 * 50,048
  EXPECT_EQ(choice["bytes_per_window"], 50'048.0);
  EXPECT_EQ(choice["recommended"], true);
}

BatchCheck check(std::int64_t foretold, std::optional<LargestBatch> found) {
  return {.device = "small", .tier = "off", .foretold_batch = foretold, .found = found};
}

std::vector<BatchCheck> checks() {
  BatchCheck not_run = check(39, std::nullopt);
  not_run.not_run = "too large";
  return {check(39, LargestBatch{.batch_size = 39, .peak_bytes = 4'900'000}),
          check(39, LargestBatch{.batch_size = 1, .peak_bytes = 4'900'000}),
          check(0, LargestBatch{}),
          check(1'234, LargestBatch{.batch_size = 78, .is_limited_by_most = true}),
          check(77, LargestBatch{.batch_size = 78, .is_limited_by_most = true}),
          not_run};
}

TEST(ChecksText, SaysWhatWasFoundAndWhatWasForetold) {
  EXPECT_EQ(checks_text(checks()),
            "Run here, two steps of each batch within the bytes of the device\n"
            "  small, off: 39 windows fit, 40 do not, as foretold\n"
            "  small, off: 1 window fits, 2 do not; foretold was 39\n"
            "  small, off: not even one window fits, as foretold\n"
            "  small, off: all 78 training windows fit, as foretold\n"
            "  small, off: all 78 training windows fit; foretold was 77\n"
            "  small, off: not run: too large\n");
}

TEST(ChecksJson, SaysWhatWasFoundAndWhatWasForetold) {
  const json list = json::parse(checks_json(checks()).dump());
  std::vector<bool> as_foretold;
  for (std::size_t i = 0; i < 5; ++i) {
    as_foretold.push_back(list[i]["as_foretold"]);
  }
  EXPECT_THAT(as_foretold, ElementsAre(true, false, true, true, false));
  EXPECT_EQ(list[1]["foretold_batch"], 39);
  EXPECT_EQ(list[1]["largest_batch"], 1);
  EXPECT_EQ(list[3]["is_all_windows"], true);
  EXPECT_EQ(list[5]["not_run"], "too large");
  EXPECT_FALSE(list[5].contains("largest_batch"));
}

// The checks of the first of `plans`: 39 and 79 were foretold.
std::vector<BatchCheck> checks_of(const LargestBatch& off, const LargestBatch& aggressive) {
  return {check(39, off), check(79, aggressive)};
}

TEST(CorrectPlan, LeavesAPlanThatIsRight) {
  DevicePlan plan = plans().front();
  const std::string recommendation = plan.recommendation;
  correct_plan(plan,
               checks_of({.batch_size = 39, .peak_bytes = 1},
                         {.batch_size = 20, .peak_bytes = 1, .is_limited_by_most = true}),
               64);
  EXPECT_EQ(plan.choices[0].total_bytes, 4'901'248);  // as foretold, not as found
  EXPECT_EQ(plan.choices[1].largest_batch, 79);
  EXPECT_EQ(plan.recommendation, recommendation);
}

TEST(CorrectPlan, WritesWhatWasFound) {
  DevicePlan plan = plans().front();
  correct_plan(plan,
               checks_of({.batch_size = 38, .peak_bytes = 4'990'000},
                         {.batch_size = 63, .peak_bytes = 4'950'000}),
               64);
  EXPECT_EQ(plan.choices[0].largest_batch, 38);
  EXPECT_EQ(plan.choices[0].total_bytes, 4'990'000);
  EXPECT_EQ(plan.choices[0].headroom_bytes, 10'000);  // 5,000,000 - 4,990,000
  EXPECT_TRUE(plan.choices[1].is_recommended);
  EXPECT_EQ(plan.recommendation,
            "batch 64 fits in no tier; the largest is 63 with checkpointing aggressive: 63 windows "
            "take 5.0 MB of 5.0 MB, as run");
}

TEST(CorrectPlan, RecommendsTheFastestTierThatFitsAsRun) {
  DevicePlan plan = plans().front();
  correct_plan(plan,
               checks_of({.batch_size = 64, .peak_bytes = 4'000'000},
                         {.batch_size = 79, .peak_bytes = 4'953'792}),
               64);
  EXPECT_TRUE(plan.choices[0].is_recommended);
  EXPECT_FALSE(plan.choices[1].is_recommended);
  EXPECT_THAT(
      plan.recommendation,
      HasSubstr("batch 64 fits with checkpointing off: 64 windows take 4.0 MB of 5.0 MB, as run"));
}

TEST(CorrectPlan, RecommendsNothingWhereNothingFits) {
  DevicePlan plan = plans().front();
  correct_plan(plan, checks_of({}, {}), 64);
  EXPECT_FALSE(plan.choices[0].is_recommended);
  EXPECT_FALSE(plan.choices[1].is_recommended);
  EXPECT_EQ(plan.recommendation, "not even one window fits, as run");
}

}  // namespace
}  // namespace reprise
