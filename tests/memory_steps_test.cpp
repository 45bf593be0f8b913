// SPDX-License-Identifier: Apache-2.0
/// Whole training steps: the books balance after every event, and LibTorch reports the same bytes.
#include "reprise/memory.h"
#include "reprise/memory_timeline.h"

#include "tests/memory_steps.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/allocation_recorder.h"

namespace reprise {
namespace {

using memory_steps::steps;
using memory_steps::StepTest;
using testing::Tensors;
using torch::Tensor;

class MemorySteps : public StepTest {};

/// Keeps its own books of the events of a recording.
class Books {
 public:
  explicit Books(const MemoryTimeline& timeline)
      : timeline_(timeline), sums_(timeline.at_start()) {}

  void expect_balanced() {
    const auto& events = timeline_.events();
    for (std::size_t i = 0; i < events.size() && !::testing::Test::HasFailure(); ++i) {
      SCOPED_TRACE("event " + std::to_string(i));
      enter(events[i]);
      if (i % 50 == 0 || i + 1 == events.size()) expect_same(timeline_.after(i));
    }
  }

  std::int64_t requested_peak() const { return requested_peak_; }
  std::int64_t requested() const { return requested_; }
  std::int64_t highest(MemoryCategory category) const {
    const auto found = highest_.find(category);
    return found == highest_.end() ? 0 : found->second;
  }

 private:
  struct Block {
    std::optional<MemoryCategory> category;
    std::int32_t layer = -1;
    std::int64_t requested = 0;
  };

  void enter(const MemoryEvent& event) {
    EXPECT_EQ(event.bytes, (event.requested_bytes + 63) / 64 * 64);
    EXPECT_GE(event.time_ns, last_ns_);
    last_ns_ = event.time_ns;
    EXPECT_TRUE(event.from || event.to);
    auto [block, is_new] = blocks_.try_emplace(event.block);
    if (!event.from) {
      EXPECT_TRUE(is_new) << "allocated twice";
      EXPECT_GT(event.block, last_block_);
      last_block_ = event.block;
      block->second.requested = event.requested_bytes;
      requested_ += event.requested_bytes;
      requested_peak_ = std::max(requested_peak_, requested_);
    } else if (!is_new) {
      EXPECT_EQ(event.from, block->second.category);
      EXPECT_EQ(event.from_layer, block->second.layer);
    }
    if (!event.to) requested_ -= block->second.requested;
    block->second.category = event.to;
    block->second.layer = event.to_layer;
    add(event.from, event.from_layer, -event.bytes);
    add(event.to, event.to_layer, event.bytes);
    EXPECT_EQ(sums_.total(), event.total_bytes);
  }

  void add(std::optional<MemoryCategory> category, std::int32_t layer, std::int64_t bytes) {
    if (!category) return;
    auto& sum = sums_.bytes[static_cast<std::size_t>(*category)];
    sum += bytes;
    EXPECT_GE(sum, 0);
    highest_[*category] = std::max(highest_[*category], sum);
    if (*category != MemoryCategory::kSavedActivations) return;
    auto& of_layer =
        sums_.saved_by_layer[layer < 0 ? "" : timeline_.layers()[static_cast<std::size_t>(layer)]];
    of_layer += bytes;
    EXPECT_GE(of_layer, 0);
  }

  void expect_same(const MemoryBreakdown& breakdown) {
    std::erase_if(sums_.saved_by_layer, [](const auto& entry) { return entry.second == 0; });
    EXPECT_EQ(breakdown.bytes, sums_.bytes);
    EXPECT_EQ(breakdown.saved_by_layer, sums_.saved_by_layer);
    std::int64_t saved = 0;
    for (const auto& [layer, bytes] : breakdown.saved_by_layer) saved += bytes;
    EXPECT_EQ(saved, breakdown[MemoryCategory::kSavedActivations]);
  }

  const MemoryTimeline& timeline_;
  MemoryBreakdown sums_;
  std::map<std::int64_t, Block> blocks_;
  std::map<MemoryCategory, std::int64_t> highest_;
  std::int64_t last_ns_ = 0;
  std::int64_t last_block_ = -1;
  std::int64_t requested_ = 0;
  std::int64_t requested_peak_ = 0;
};

/// Runs `step` under a timeline and LibTorch's own reports, and compares the two.
void expect_balanced(const std::function<void()>& step) {
  reset_peak_memory();
  MemoryTimeline timeline;
  const testing::AllocationRecorder recorder;
  step();
  timeline.stop();
  Books books(timeline);
  books.expect_balanced();
  EXPECT_EQ(timeline.peak_bytes(), memory_stats().peak_bytes);
  EXPECT_EQ(timeline.events().back().total_bytes, memory_stats().current_bytes);
  EXPECT_EQ(timeline.after(timeline.events().size() - 1).bytes, memory_stats().current.bytes);
  EXPECT_EQ(books.requested_peak(), recorder.peak_bytes());
  EXPECT_EQ(books.requested(), recorder.live_bytes());
  EXPECT_GT(books.highest(MemoryCategory::kSavedActivations), 0);
}

TEST_P(MemorySteps, BalanceAfterEveryEvent) {
  expect_balanced([&] {
    for (int i = 0; i < 2; ++i) loss().backward();
  });
  forget_gradients();
}

TEST_P(MemorySteps, BalanceWithARetainedGraphAndSecondDerivatives) {
  expect_balanced([&] {
    const auto value = loss();
    value.backward({}, /*retain_graph=*/true);
    value.backward({}, /*retain_graph=*/true, /*create_graph=*/true);
    forget_gradients();
    value.backward();
  });
  forget_gradients();
}

TEST_P(MemorySteps, LabelParametersAndGradients) {
  const auto before = memory_stats().current;
  loss().backward();
  std::int64_t bytes = 0;
  for (const auto& parameter : network.parameters) {
    if (parameter.grad().defined())
      bytes += (static_cast<std::int64_t>(parameter.nbytes()) + 63) / 64 * 64;
  }
  const auto after = memory_stats().current;
  EXPECT_EQ(after[MemoryCategory::kGradients] - before[MemoryCategory::kGradients], bytes);
  EXPECT_GE(after[MemoryCategory::kParameters], bytes);
  EXPECT_EQ(after[MemoryCategory::kParameters], before[MemoryCategory::kParameters]);
  EXPECT_EQ(after[MemoryCategory::kSavedActivations], 0);
  EXPECT_EQ(after[MemoryCategory::kRecomputed], 0);
  forget_gradients();
}

INSTANTIATE_TEST_SUITE_P(All, MemorySteps, ::testing::ValuesIn(steps()),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace reprise
