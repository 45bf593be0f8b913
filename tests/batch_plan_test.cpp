// SPDX-License-Identifier: Apache-2.0
#include "reprise/batch_plan.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

namespace reprise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Bytes of a block at a batch size: fixed + per_sample * batch.
struct Size {
  std::int64_t fixed;
  std::int64_t per_sample;

  std::int64_t at(std::int64_t batch) const { return fixed + per_sample * batch; }
};

/// A program: allocates a block (`freed` < 0) or frees an earlier one.
struct Step {
  Size size = {0, 0};
  std::int64_t freed = -1;
};

using Program = std::vector<Step>;

MemoryTrace record(const Program& program, std::int64_t batch) {
  MemoryTrace trace{batch, {}};
  std::int64_t next = 0;
  for (const Step& step : program) {
    trace.events.push_back(step.freed < 0 ? MemoryTraceEvent{next++, step.size.at(batch)}
                                          : MemoryTraceEvent{step.freed, 0});
  }
  return trace;
}

/// The peak of a run, the slow way: all live blocks are summed after every step.
std::int64_t brute_force_peak(const Program& program, std::int64_t batch) {
  std::map<std::int64_t, std::int64_t> live;
  std::int64_t next = 0;
  std::int64_t peak = 0;
  for (const Step& step : program) {
    if (step.freed < 0) {
      const std::int64_t bytes = std::max<std::int64_t>(0, step.size.at(batch));
      live[next++] = (bytes + 63) / 64 * 64;
    } else {
      live.erase(step.freed);
    }
    std::int64_t sum = 0;
    for (const auto& [block, bytes] : live) sum += bytes;
    peak = std::max(peak, sum);
  }
  return peak;
}

PeakModel fit(const Program& program, const std::vector<std::int64_t>& batches) {
  std::vector<MemoryTrace> traces;
  for (const std::int64_t batch : batches) traces.push_back(record(program, batch));
  return PeakModel::fit(std::move(traces));
}

/// Weights and, one after the other, two moments: 6400 bytes, then 640 per sample. The peak is in
/// the first up to batch 10.
const Program kTwoMoments = {{{64, 0}}, {{6400, 0}}, {{}, 1}, {{0, 640}}, {{}, 2}};

TEST(PeakModel, IsExactWhereThePeakMovesToAnotherMoment) {
  const auto model = fit(kTwoMoments, {2, 4});
  EXPECT_TRUE(model.replays_events());
  EXPECT_EQ(model.residual_bytes(), 0);
  // A line through the peaks at 2 and 4 says 6464 at any batch.
  EXPECT_EQ(model.peak_bytes(2), 6464);     // 64 + 6400
  EXPECT_EQ(model.peak_bytes(4), 6464);     // 64 + 6400
  EXPECT_EQ(model.peak_bytes(10), 6464);    // 64 + max(6400, 6400)
  EXPECT_EQ(model.peak_bytes(11), 7104);    // 64 + 640 * 11
  EXPECT_EQ(model.peak_bytes(100), 64064);  // 64 + 640 * 100
}

TEST(PeakModel, SplitsThePeakIntoFixedAndPerSample) {
  const auto model = fit(kTwoMoments, {2, 4});
  EXPECT_EQ(model.parts(4).fixed_bytes, 6464);
  EXPECT_EQ(model.parts(4).per_sample_bytes, 0);
  EXPECT_EQ(model.parts(100).fixed_bytes, 64);
  EXPECT_EQ(model.parts(100).per_sample_bytes, 640);
}

TEST(PeakModel, LeavesFreedBlocksOutOfTheParts) {
  const auto model = fit({{{0, 64}}, {{}, 0}, {{128, 640}}}, {1, 2});
  EXPECT_EQ(model.parts(3).fixed_bytes, 128);
  EXPECT_EQ(model.parts(3).per_sample_bytes, 640);
}

TEST(PeakModel, RoundsEveryBlockUp) {
  // Two blocks of 10 * batch + 4 bytes are live at once.
  const auto model = fit({{{4, 10}}, {{4, 10}}}, {1, 2});
  EXPECT_EQ(model.peak_bytes(1), 128);  // 2 * (14 -> 64)
  EXPECT_EQ(model.peak_bytes(6), 128);  // 2 * (64 -> 64)
  EXPECT_EQ(model.peak_bytes(7), 256);  // 2 * (74 -> 128)
  EXPECT_EQ(model.largest_batch(255), 6);
  EXPECT_EQ(model.largest_batch(256), 12);  // 10 * 12 + 4 = 124
}

TEST(PeakModel, RoundsSizesBetweenTwoBytesUp) {
  // 63 bytes at batch 1 and 64 at batch 4: a third of a byte per sample.
  const auto model = PeakModel::fit({{1, {{0, 63}}}, {4, {{0, 64}}}});
  EXPECT_EQ(model.peak_bytes(3), 64);  // 63 2/3
  EXPECT_EQ(model.peak_bytes(4), 64);
  EXPECT_EQ(model.peak_bytes(5), 128);  // 64 1/3
  EXPECT_EQ(model.parts(5).per_sample_bytes, 1.0 / 3.0);
}

TEST(PeakModel, TakesTracesInAnyOrderAndChecksWithThoseBetween) {
  // The trace of batch 2 has 640 bytes more than 64 * 2.
  const auto model =
      PeakModel::fit({{8, {{0, 64 * 8}}}, {2, {{0, 64 * 2 + 640}}}, {1, {{0, 64 * 1}}}});
  EXPECT_TRUE(model.replays_events());
  EXPECT_EQ(model.peak_bytes(2), 128);
  EXPECT_EQ(model.peak_bytes(16), 1024);
  EXPECT_EQ(model.residual_bytes(), 640);
}

TEST(PeakModel, SaysZeroWhereNotEvenOneSampleFits) {
  const auto model = fit(kTwoMoments, {1, 2});
  EXPECT_EQ(model.largest_batch(6463), 0);
  EXPECT_EQ(model.largest_batch(6464), 10);
  EXPECT_EQ(model.largest_batch(6464, 7), 7);
  EXPECT_EQ(model.largest_batch(6464, 0), 0);
  EXPECT_EQ(model.peak_bytes(0), 6464);
}

TEST(PeakModel, StopsBlocksThatShrinkAtZero) {
  // 6400 - 64 * batch, and 64 * batch beside it only up to batch 100.
  const auto model = fit({{{6400, -64}}, {{0, 64}}}, {10, 20});
  EXPECT_EQ(model.peak_bytes(10), 6400);
  EXPECT_EQ(model.peak_bytes(100), 6400);
  EXPECT_EQ(model.peak_bytes(150), 9600);  // 0 + 64 * 150
  EXPECT_EQ(model.parts(150).per_sample_bytes, 64);
}

TEST(PeakModel, FindsTheLargestBatchThoughSmallerOnesDoNotFit) {
  // 64000 - 640 * batch in one moment, 64 * batch in the other.
  const auto model = fit({{{64000, -640}}, {{}, 0}, {{0, 64}}}, {10, 20});
  EXPECT_EQ(model.peak_bytes(80), 12800);           // 64000 - 640 * 80
  EXPECT_EQ(model.largest_batch(12800), 200);       // 64 * 200
  EXPECT_EQ(model.largest_batch(12800, 100), 100);  // 64 * 100
  EXPECT_EQ(model.largest_batch(12800, 79), 0);     // 64000 - 640 * 79 = 13440
}

TEST(PeakModel, StaysAtTheLargestNumberWhereBytesCannotBeCounted) {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const Size size = {0, 1'000'000'000};
  const auto model = fit({{size}, {size}, {{}, 0}, {{}, 1}}, {1, 2});
  EXPECT_EQ(model.peak_bytes(6'000'000'000), most);  // 1.2e19
  EXPECT_EQ(model.peak_bytes(most), most);
  EXPECT_EQ(model.largest_batch(4'000'000'000'000, most), 2000);
}

TEST(PeakModel, RefusesTracesThatCannotBe) {
  const auto refusal = [](std::vector<MemoryTraceEvent> events, const std::string& what) {
    EXPECT_THAT(([&] { PeakModel::fit({{8, events}, {16, events}}); }),
                ThrowsMessage<std::invalid_argument>(HasSubstr(what)));
  };
  refusal({{0, 10}, {1, 0}}, "batch size 8, event 1: block 1 is freed, but never allocated");
  refusal({{-1, 0}}, "block -1 is freed, but never allocated");
  refusal({{0, 10}, {0, 0}, {0, 0}}, "event 2: block 0 is freed twice");
  refusal({{0, 10}, {2, 10}}, "event 1: block 2 is allocated, but the next number is 1");
  refusal({{0, 10}, {0, 10}}, "event 1: block 0 is allocated, but the next number is 1");
  refusal({{0, -10}}, "event 0: block 0 has -10 bytes");
  refusal({{0, std::numeric_limits<std::int64_t>::max()}}, "batch size 8 has more than 2^53 bytes");
}

TEST(PeakModel, NeedsTwoBatchSizes) {
  const MemoryTrace one = record(kTwoMoments, 4);
  EXPECT_THROW(PeakModel::fit({}), std::invalid_argument);
  EXPECT_THROW(PeakModel::fit({one}), std::invalid_argument);
  EXPECT_THROW(PeakModel::fit({one, one}), std::invalid_argument);
  EXPECT_THROW(PeakModel::fit({one, {0, one.events}}), std::invalid_argument);
  EXPECT_THROW(fit(kTwoMoments, {1, 2}).peak_bytes(-1), std::invalid_argument);
  EXPECT_THROW(fit(kTwoMoments, {1, 2}).parts(-1), std::invalid_argument);
  EXPECT_THROW(fit(kTwoMoments, {1, 2}).largest_batch(1, -1), std::invalid_argument);
}

/// One block that is allocated as a whole, or in the given number of pieces of 64 bytes.
MemoryTrace pieces(std::int64_t batch, std::int64_t count) {
  MemoryTrace trace{batch, {}};
  for (std::int64_t i = 0; i < count; ++i) trace.events.push_back({i, 64});
  return trace;
}

TEST(PeakModel, DrawsALineWhereSequencesDiffer) {
  // Peaks 64, 192, 256 at batches 1, 2, 3: least squares has slope 96; raised until it goes through
  // the second peak.
  const auto model = PeakModel::fit({pieces(1, 1), pieces(2, 3), pieces(3, 4)});
  EXPECT_FALSE(model.replays_events());
  EXPECT_EQ(model.peak_bytes(2), 192);
  EXPECT_EQ(model.peak_bytes(1), 128);  // 192 - 96 = 96, rounded up to 64s
  EXPECT_EQ(model.peak_bytes(3), 320);  // 192 + 96 = 288, rounded up to 64s
  EXPECT_EQ(model.residual_bytes(), 64);
  EXPECT_EQ(model.peak_bytes(12), 1152);  // 192 + 10 * 96
  EXPECT_EQ(model.largest_batch(1151), 11);
  EXPECT_EQ(model.parts(12).per_sample_bytes, 96);
}

TEST(PeakModel, NeverFallsWhereSequencesDiffer) {
  const auto model = PeakModel::fit({pieces(1, 5), pieces(2, 3)});
  EXPECT_EQ(model.peak_bytes(1), 320);  // 5 * 64
  EXPECT_EQ(model.peak_bytes(1000), 320);
  EXPECT_EQ(model.residual_bytes(), 128);  // (5 - 3) * 64
}

TEST(PeakModel, DrawsALineWhereOnlyTheThirdSequenceDiffers) {
  auto larger = record(kTwoMoments, 6);
  larger.events.push_back({3, 64});
  EXPECT_FALSE(
      PeakModel::fit({record(kTwoMoments, 2), record(kTwoMoments, 4), larger}).replays_events());
}

TEST(PeakModel, ReplaysHundredsOfThousandsOfEvents) {
  // 150,000 blocks of 64 * batch, of which at most 100 are live, beside one of 6400 bytes.
  Program program = {{{6400, 0}}};
  for (std::int64_t block = 1; block <= 150'000; ++block) {
    program.push_back({{0, 64}});
    if (block >= 100) program.push_back({{}, block - 99});
  }
  EXPECT_GT(program.size(), 299'000U);
  const auto model = fit(program, {1, 2, 3});
  EXPECT_EQ(model.residual_bytes(), 0);
  EXPECT_EQ(model.peak_bytes(1000), 6'406'400);  // 6400 + 100 * 64 * 1000
  EXPECT_EQ(model.largest_batch(6'406'400), 1000);
  EXPECT_EQ(model.largest_batch(6'406'399), 999);
}

/// Random allocations and releases whose blocks do not shrink below a byte at any batch.
Program arbitrary_program() {
  Program program;
  std::vector<std::int64_t> live;
  std::int64_t next = 0;
  const int length = *rc::gen::inRange(1, 40);
  for (int i = 0; i < length; ++i) {
    if (!live.empty() && *rc::gen::inRange(0, 5) < 2) {
      const auto freed = *rc::gen::inRange<std::size_t>(0, live.size());
      program.push_back({{}, live[freed]});
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(freed));
    } else {
      const bool grows = *rc::gen::inRange(0, 3) > 0;
      program.push_back({{*rc::gen::inRange<std::int64_t>(1, 20'000),
                          grows ? *rc::gen::inRange<std::int64_t>(0, 500) : 0}});
      live.push_back(next++);
    }
  }
  return program;
}

RC_GTEST_PROP(PeakModel, IsExactAtAnyBatch, ()) {
  const auto program = arbitrary_program();
  const auto first = *rc::gen::inRange<std::int64_t>(1, 9);
  const auto model = fit(program, {first, first + *rc::gen::inRange<std::int64_t>(1, 9)});
  const auto batch = *rc::gen::inRange<std::int64_t>(0, 3000);
  RC_ASSERT(model.replays_events());
  RC_ASSERT(model.residual_bytes() == 0);
  RC_ASSERT(model.peak_bytes(batch) == brute_force_peak(program, batch));
}

RC_GTEST_PROP(PeakModel, FindsTheLargestBatchThatFits, ()) {
  auto program = arbitrary_program();
  program.push_back({{1, *rc::gen::inRange<std::int64_t>(1, 500)}});  // so that there is an end
  const auto model = fit(program, {1, 3});
  const std::int64_t limit = brute_force_peak(program, *rc::gen::inRange<std::int64_t>(1, 3000)) +
                             *rc::gen::inRange<std::int64_t>(-200, 200);
  const std::int64_t largest = model.largest_batch(limit);
  RC_ASSERT(largest == 0 || brute_force_peak(program, largest) <= limit);
  RC_ASSERT(brute_force_peak(program, largest + 1) > limit);
}

RC_GTEST_PROP(PeakModel, FindsTheLargestBatchOfBlocksThatShrink, ()) {
  // Multiples of 64 leave no rounding, so the answer is exact.
  Program program;
  const int blocks = *rc::gen::inRange(1, 6);
  for (int i = 0; i < blocks; ++i) {
    program.push_back({{64 * *rc::gen::inRange<std::int64_t>(301, 2000),
                        64 * *rc::gen::inRange<std::int64_t>(-30, 30)}});
    if (*rc::gen::arbitrary<bool>()) program.push_back({{}, i});
  }
  const auto model = fit(program, {1, 10});
  const auto limit = *rc::gen::inRange<std::int64_t>(0, 300'000);
  std::int64_t expected = 0;
  for (std::int64_t batch = 1; batch <= 200; ++batch) {
    if (brute_force_peak(program, batch) <= limit) expected = batch;
  }
  RC_ASSERT(model.largest_batch(limit, 200) == expected);
}

RC_GTEST_PROP(PeakModel, IsNeverBelowAMeasuredPeak, ()) {
  std::vector<MemoryTrace> traces;
  const int count = *rc::gen::inRange(2, 6);
  std::int64_t batch = 0;
  for (int i = 0; i < count; ++i) {
    batch += *rc::gen::inRange<std::int64_t>(1, 20);
    traces.push_back(pieces(batch, 0));
    // Other numbers of blocks, so that the sequences differ.
    for (std::int64_t block = 0; block <= i; ++block) {
      traces.back().events.push_back({block, *rc::gen::inRange<std::int64_t>(1, 100'000)});
    }
  }
  const auto model = PeakModel::fit(traces);
  RC_ASSERT(!model.replays_events());
  std::int64_t residual = 0;
  for (const auto& trace : traces) {
    std::int64_t measured = 0;  // nothing is freed
    for (const auto& event : trace.events) measured += (event.bytes + 63) / 64 * 64;
    const std::int64_t over = model.peak_bytes(trace.batch_size) - measured;
    RC_ASSERT(over >= 0);
    residual = std::max(residual, over);
  }
  RC_ASSERT(model.residual_bytes() == residual);
}

/// Weights of `fixed_mb` MB and `per_sample_mb` MB for every sample (10^6 bytes are a multiple of
/// 64).
TierPeaks tier(const std::string& name, std::int64_t fixed_mb, std::int64_t per_sample_mb) {
  const Program program = {{{fixed_mb * 1'000'000, 0}}, {{0, per_sample_mb * 1'000'000}}};
  return {name, fit(program, {1, 2}), name != "off"};
}

const DeviceMemory kDevice = {"12 GB", 11'000'000'000};

BatchChoice only_choice(const DevicePlan& plan) {
  return plan.choices.at(0);
}

TEST(CommonDevices, AreFour) {
  std::vector<std::pair<std::string, std::int64_t>> devices;
  for (const auto& device : common_devices())
    devices.emplace_back(device.name, device.usable_bytes);
  EXPECT_THAT(devices,
              ElementsAre(std::pair("4 GB", 3'700'000'000), std::pair("12 GB", 11'000'000'000),
                          std::pair("24 GB", 22'000'000'000), std::pair("48 GB", 44'000'000'000)));
}

TEST(PlanBatches, TakesTheFastestTierThatFits) {
  // 280 + 60 * 64 = 4120; (11000 - 280) / 60 = 178.7; 280 + 60 * 178 = 10960
  const auto plan =
      plan_batches({tier("off", 280, 60), tier("minimal", 280, 40)}, {kDevice}, 64)[0];
  const auto& off = plan.choices[0];
  EXPECT_EQ(off.tier, "off");
  EXPECT_EQ(off.largest_batch, 178);
  EXPECT_EQ(off.total_bytes, 10'960'000'000);
  EXPECT_EQ(off.headroom_bytes, 40'000'000);
  EXPECT_EQ(off.wanted_bytes, 4'120'000'000);
  EXPECT_TRUE(off.is_recommended);
  EXPECT_EQ(off.reason, "batch 64 fits without recomputing anything: 4,120 of 11,000 MB");
  EXPECT_EQ(plan.recommendation, off.reason);
  EXPECT_FALSE(plan.choices[1].is_recommended);
  EXPECT_EQ(plan.choices[1].reason,  // 280 + 40 * 64
            "batch 64 also fits with minimal checkpointing: 2,840 of 11,000 MB");
}

TEST(PlanBatches, TakesALaterTierWhereOnlyThatFits) {
  const std::vector<TierPeaks> tiers = {tier("off", 200, 200), tier("aggressive", 200, 150)};
  const auto plan = plan_batches(tiers, {kDevice}, 64)[0];
  EXPECT_FALSE(plan.choices[0].is_recommended);
  EXPECT_EQ(plan.choices[0].reason,  // 200 + 200 * 64; (11000 - 200) / 200
            "batch 64 does not fit without recomputing anything: it needs 13,000 of 11,000 MB, "
            "54 samples fit");
  EXPECT_TRUE(plan.choices[1].is_recommended);
  EXPECT_EQ(plan.recommendation,  // 200 + 150 * 64
            "batch 64 fits only with aggressive checkpointing: 9,800 of 11,000 MB");
}

TEST(PlanBatches, TakesTheFastestOfTheLaterTiersThatFit) {
  const auto plan =
      plan_batches({tier("off", 200, 200), tier("minimal", 200, 150), tier("aggressive", 200, 100)},
                   {kDevice}, 64)[0];
  EXPECT_TRUE(plan.choices[1].is_recommended);
  EXPECT_EQ(plan.recommendation, "batch 64 fits with minimal checkpointing: 9,800 of 11,000 MB");
  EXPECT_FALSE(plan.choices[2].is_recommended);
}

TEST(PlanBatches, SaysOnlyOfNoTierThatIsTheFirst) {
  EXPECT_EQ(plan_batches({tier("off", 280, 60)}, {kDevice}, 64)[0].recommendation,
            "batch 64 fits without recomputing anything: 4,120 of 11,000 MB");
}

TEST(PlanBatches, TakesTheFasterOfTwoThatAreEqual) {
  const auto plan =
      plan_batches({tier("off", 200, 200), tier("minimal", 200, 200)}, {kDevice}, 64)[0];
  EXPECT_TRUE(plan.choices[0].is_recommended);
  EXPECT_FALSE(plan.choices[1].is_recommended);
}

TEST(PlanBatches, NamesTheLargestBatchWhereTheWantedOneFitsInNoTier) {
  // (11000 - 640) / 280 = 37; 640 + 280 * 37 = 11000
  const auto plan =
      plan_batches({tier("off", 640, 500), tier("aggressive", 640, 280)}, {kDevice}, 64)[0];
  EXPECT_EQ(plan.choices[0].largest_batch, 20);  // (11000 - 640) / 500 = 20.7
  EXPECT_FALSE(plan.choices[0].is_recommended);
  EXPECT_TRUE(plan.choices[1].is_recommended);
  EXPECT_EQ(plan.recommendation,
            "batch 64 fits in no tier; the largest is 37 with aggressive checkpointing (11,000 of "
            "11,000 MB); micro-batches of it must be smaller than that");
}

TEST(PlanBatches, SaysWhatOneSampleNeedsWhereNoneFits) {
  const auto plan =
      plan_batches({tier("off", 12'000, 500), tier("aggressive", 12'000, 280)}, {kDevice}, 64)[0];
  for (const auto& choice : plan.choices) {
    EXPECT_FALSE(choice.is_recommended);
    EXPECT_EQ(choice.largest_batch, 0);
  }
  EXPECT_EQ(plan.choices[1].total_bytes, 12'280'000'000);     // 12000 + 280
  EXPECT_EQ(plan.choices[1].headroom_bytes, -1'280'000'000);  // 11000 - 12280
  EXPECT_EQ(plan.choices[0].reason,
            "not even one sample fits without recomputing anything: it needs 12,500 of 11,000 MB");
  EXPECT_EQ(plan.recommendation,
            "not even one sample fits: needs at least 12,280 MB, there are 11,000");
}

TEST(PlanBatches, SpeaksOfOneSampleAsOne) {
  // 8000 + 2000 fits, 8000 + 2 * 2000 does not.
  const auto plan = plan_batches({tier("off", 8000, 2000), tier("minimal", 1, 9)}, {kDevice}, 2);
  EXPECT_THAT(plan[0].choices[0].reason, HasSubstr("12,000 of 11,000 MB, 1 sample fits"));
}

TEST(PlanBatches, SeparatesThousands) {
  // (11000 - 1000) / 8 = 1250; 1234567 / 1250 = 987.7
  EXPECT_EQ(plan_batches({tier("off", 1000, 8)}, {kDevice}, 1'234'567)[0].recommendation,
            "batch 1,234,567 fits in no tier; the largest is 1,250 without recomputing anything "
            "(11,000 of 11,000 MB); micro-batches of it must be smaller than that");
}

TEST(PlanBatches, PlansEveryDeviceByItself) {
  const auto plans = plan_batches({tier("off", 200, 100)}, common_devices(), 64);
  std::vector<std::int64_t> largest;
  for (const auto& plan : plans) largest.push_back(only_choice(plan).largest_batch);
  EXPECT_THAT(largest, ElementsAre(35, 108, 218, 438));  // (3700 - 200) / 100 and so on
  EXPECT_EQ(plans[3].device.name, "48 GB");
}

TEST(PlanBatches, WritesSmallNumbersWithTenths) {
  const auto reason = [](std::int64_t usable_bytes) {
    const auto bytes = PeakModel::fit({{1, {{0, 1'250'048}}}, {2, {{0, 1'250'048}}}});
    return plan_batches({{"off", bytes}}, {{"", usable_bytes}}, 1)[0].choices[0].reason;
  };
  // What fits is never written as more than there is, what does not fit never as less.
  EXPECT_THAT(reason(1'250'050), HasSubstr(": 1.3 of 1.3 MB"));
  EXPECT_THAT(reason(1'250'047), HasSubstr("it needs 1.3 of 1.2 MB"));
  EXPECT_THAT(reason(2'000'000'000), HasSubstr(": 1.3 of 2,000 MB"));
}

TEST(PlanBatches, RefusesWhatCannotBe) {
  const auto off = tier("off", 200, 100);
  EXPECT_THROW(plan_batches({}, {kDevice}, 64), std::invalid_argument);
  EXPECT_THROW(plan_batches({off}, {kDevice}, 0), std::invalid_argument);
  EXPECT_THROW(plan_batches({off}, {{"none", -1}}, 64), std::invalid_argument);
}

}  // namespace
}  // namespace reprise
