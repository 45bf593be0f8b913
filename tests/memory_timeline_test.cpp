// SPDX-License-Identifier: Apache-2.0
/// What a timeline records, on cases worked out by hand.
#include "reprise/memory_timeline.h"

#include "reprise/batch_plan.h"
#include "reprise/checkpoint.h"
#include "reprise/memory.h"

#include "tests/checkpoint_testing.h"
#include "tests/memory_testing.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace reprise {
namespace {

using testing::bytes_tensor;
using ::testing::ElementsAre;
using testing::in_use;
using ::testing::IsEmpty;
using testing::random_leaf;
using testing::Tensors;
using torch::Tensor;

TEST(MemoryTimeline, RecordsAllocationsLabelsAndReleases) {
  const auto before = in_use();
  MemoryTimeline timeline;
  {
    const auto a = bytes_tensor(100);
    const auto b = bytes_tensor(200'000);
    label_memory(a, MemoryCategory::kBatch);
    label_memory(a, MemoryCategory::kOptimizerState);
    label_memory(a, MemoryCategory::kBatch);  // changes nothing
  }
  timeline.stop();
  const auto& events = timeline.events();
  ASSERT_EQ(events.size(), 6U);
  const auto none = std::optional<MemoryCategory>();
  using enum MemoryCategory;
  const std::vector<std::optional<MemoryCategory>> from = {none,   none,         kTemporaries,
                                                           kBatch, kTemporaries, kOptimizerState};
  const std::vector<std::optional<MemoryCategory>> to = {kTemporaries,    kTemporaries, kBatch,
                                                         kOptimizerState, none,         none};
  const std::vector<std::int64_t> totals = {128, 200'128, 200'128, 200'128, 128, 0};
  for (std::size_t i = 0; i < events.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(events[i].from, from[i]);
    EXPECT_EQ(events[i].to, to[i]);
    EXPECT_EQ(events[i].total_bytes, before + totals[i]);
    const bool is_a = events[i].block == events[0].block;
    EXPECT_EQ(events[i].requested_bytes, is_a ? 100 : 200'000);
    EXPECT_EQ(events[i].bytes, is_a ? 128 : 200'000);
  }
  EXPECT_EQ(events[1].block, events[0].block + 1);
  EXPECT_EQ(timeline.peak_event(), 1U);
  EXPECT_EQ(timeline.peak_bytes(), before + 200'128);
  EXPECT_EQ(timeline.at_peak().total(), before + 200'128);
  EXPECT_EQ(timeline.after(3)[kOptimizerState] - timeline.at_start()[kOptimizerState], 128);
}

TEST(MemoryTimeline, StartsWithWhatIsThere) {
  const auto batch = bytes_tensor(1000);
  label_memory(batch, MemoryCategory::kBatch);
  const auto before = memory_stats().current;
  MemoryTimeline timeline;
  timeline.stop();
  EXPECT_EQ(timeline.at_start().bytes, before.bytes);
  EXPECT_GE(timeline.at_start()[MemoryCategory::kBatch], 1024);
  EXPECT_THAT(timeline.events(), IsEmpty());
  EXPECT_EQ(timeline.peak_event(), std::nullopt);
  EXPECT_EQ(timeline.peak_bytes(), before.total());
  EXPECT_EQ(timeline.at_peak().bytes, before.bytes);
  EXPECT_DOUBLE_EQ(timeline.average_bytes(), static_cast<double>(before.total()));
}

TEST(MemoryTimeline, HearsNothingAfterItsStop) {
  MemoryTimeline timeline;
  const auto a = bytes_tensor(1);
  timeline.stop();
  const auto b = bytes_tensor(1);
  EXPECT_EQ(timeline.events().size(), 1U);
  const auto duration = timeline.duration_ns();
  timeline.stop();  // again: nothing
  EXPECT_EQ(timeline.duration_ns(), duration);
}

TEST(MemoryTimeline, HasPhasesAndLayersAsSpans) {
  MemoryTimeline timeline;
  timeline.mark("forward");
  {
    const LayerScope outer("encoder");
    const LayerScope inner("0");
    bytes_tensor(1);
  }
  timeline.mark("backward");
  bytes_tensor(1);
  timeline.stop();
  const auto& spans = timeline.spans();
  ASSERT_EQ(spans.size(), 4U);
  std::vector<std::string> names;
  for (const auto& span : spans) {
    names.push_back(span.name);
    EXPECT_LE(0, span.begin_ns);
    EXPECT_LE(span.begin_ns, span.end_ns);
    EXPECT_LE(span.end_ns, timeline.duration_ns());
    EXPECT_FALSE(span.is_recomputed);
    EXPECT_EQ(span.is_layer, span.name.starts_with("encoder"));
  }
  EXPECT_THAT(names, ElementsAre("forward", "backward", "encoder/0", "encoder"));
  EXPECT_LE(spans[0].end_ns, spans[1].begin_ns);  // a phase ends where the next begins
  EXPECT_LE(spans[3].begin_ns, spans[2].begin_ns);
  EXPECT_LE(spans[2].end_ns, spans[3].end_ns);
  EXPECT_LE(spans[0].begin_ns, spans[3].begin_ns);
  EXPECT_LE(spans[3].end_ns, spans[0].end_ns);
  EXPECT_GE(timeline.events().back().time_ns, spans[1].begin_ns);
}

// Bytes times their duration, over the whole.
TEST(MemoryTimeline, AveragesOverTime) {
  MemoryTimeline timeline;
  auto a = bytes_tensor(64'000);
  bytes_tensor(1'000'000);
  a.reset();
  timeline.stop();
  const auto& events = timeline.events();
  ASSERT_EQ(events.size(), 4U);
  const auto base = static_cast<double>(timeline.at_start().total());
  const auto lasted = [&](std::size_t from, std::size_t to) {
    return static_cast<double>(events[to].time_ns - events[from].time_ns);
  };
  const double byte_ns = 64e3 * lasted(0, 3) + 1e6 * lasted(1, 2);
  const double expected = base + byte_ns / static_cast<double>(timeline.duration_ns());
  EXPECT_NEAR(timeline.average_bytes(), expected, expected * 1e-9);
  EXPECT_GT(timeline.average_bytes(), base);
  EXPECT_LT(timeline.average_bytes(), base + 1'064'000);
}

/// Peak of a trace, replayed here.
std::int64_t replayed_peak(const MemoryTrace& trace) {
  std::map<std::int64_t, std::int64_t> live;
  std::int64_t current = 0;
  std::int64_t peak = 0;
  for (const auto& event : trace.events) {
    if (event.bytes > 0) {
      EXPECT_TRUE(live.emplace(event.block, (event.bytes + 63) / 64 * 64).second);
      current += live[event.block];
    } else {
      current -= live.at(event.block);
      live.erase(event.block);
    }
    peak = std::max(peak, current);
  }
  return peak;
}

/// Two layers, a step of gradients.
void train(const Tensors& weights, std::int64_t batch_size) {
  const auto input = torch::ones({batch_size, 100});
  const auto hidden = torch::gelu(input.matmul(weights[0]));
  torch::softmax(hidden.matmul(weights[1]), -1).square().sum().backward();
  for (const auto& weight : weights) weight.mutable_grad() = Tensor();
}

TEST(MemoryTimeline, GivesATraceThatForetellsOtherBatchSizes) {
  const auto held = bytes_tensor(333'333);
  const Tensors weights = {random_leaf({100, 300}), random_leaf({300, 10})};
  std::vector<MemoryTrace> traces;
  std::map<std::int64_t, std::int64_t> peaks;
  for (const std::int64_t batch_size : {3, 7, 32, 250}) {
    MemoryTimeline timeline;
    train(weights, batch_size);
    timeline.stop();
    const auto trace = timeline.trace(batch_size);
    EXPECT_EQ(trace.batch_size, batch_size);
    EXPECT_EQ(replayed_peak(trace), timeline.peak_bytes());
    peaks[batch_size] = timeline.peak_bytes();
    if (traces.size() < 2) traces.push_back(trace);
  }
  const auto model = PeakModel::fit(traces);
  EXPECT_TRUE(model.replays_events());
  for (const auto& [batch_size, peak] : peaks)
    EXPECT_EQ(model.peak_bytes(batch_size), peak) << batch_size;
}

TEST(MemoryTimeline, MayLieInAnother) {
  const auto x = random_leaf({1000});
  MemoryTimeline outer;
  const auto before = bytes_tensor(100);
  std::size_t count = 0;
  {
    MemoryTimeline inner;
    x.sin().sum().backward();
    inner.stop();
    count = inner.events().size();
    EXPECT_EQ(inner.peak_bytes(), inner.at_peak().total());
    EXPECT_GE(inner.at_peak()[MemoryCategory::kSavedActivations], 4032);
  }
  const auto y = x.cos();  // saved for the outer one
  EXPECT_EQ(memory_stats().current[MemoryCategory::kSavedActivations], 4032);
  outer.stop();
  // Besides: the first tensor, the cosine, and its input that is saved.
  EXPECT_EQ(outer.events().size(), count + 3);
  EXPECT_EQ(outer.after(outer.events().size() - 1).bytes, memory_stats().current.bytes);
  x.mutable_grad() = Tensor();
}

TEST(MemoryTimeline, MayEndBeforeItsGraph) {
  const auto x = random_leaf({1000});
  Tensor y;
  {
    MemoryTimeline timeline;
    const LayerScope layer("a");
    y = x.sin().exp();
  }
  EXPECT_EQ(memory_stats().current[MemoryCategory::kSavedActivations], 2 * 4032);  // x, result
  MemoryTimeline later;
  EXPECT_TRUE(torch::equal(torch::autograd::grad({y.sum()}, {x})[0], x.sin().exp() * x.cos()));
  later.stop();
  EXPECT_EQ(later.at_start()[MemoryCategory::kSavedActivations], 2 * 4032);
  EXPECT_THAT(later.at_start().saved_by_layer, ElementsAre(std::pair("a", 2 * 4032)));
  EXPECT_EQ(memory_stats().current[MemoryCategory::kSavedActivations], 0);
}

TEST(MemoryTimeline, RecordsAllThreads) {
  MemoryTimeline timeline;
  std::thread([] { bytes_tensor(5000); }).join();
  timeline.stop();
  ASSERT_EQ(timeline.events().size(), 2U);
  EXPECT_EQ(timeline.events()[0].requested_bytes, 5000);
}

// A timeline inside a region's function changes no gradient.
TEST(MemoryTimeline, MayLieInARegion) {
  const auto x = random_leaf({100});
  const auto f = [](const Tensor& t) {
    MemoryTimeline timeline;
    auto y = t.sin().exp().sigmoid();
    timeline.stop();
    return y * 2;
  };
  const auto expected = torch::autograd::grad({f(x).sum()}, {x})[0];
  for (const auto& options : testing::all_options()) {
    const auto gradient = torch::autograd::grad({checkpoint(options, f, x).sum()}, {x})[0];
    EXPECT_TRUE(testing::is_same_bytes(gradient, expected)) << options.name;
  }
}

}  // namespace
}  // namespace reprise
