// SPDX-License-Identifier: Apache-2.0
/// Training steps that are refused memory, at every moment in turn: the error is ours, nothing is
/// left behind, and the step runs as ever with enough.
#include "reprise/errors.h"
#include "reprise/memory.h"
#include "reprise/memory_budget.h"
#include "reprise/memory_timeline.h"

#include "tests/memory_steps.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace reprise {
namespace {

using memory_steps::steps;
using memory_steps::StepTest;
using testing::Tensors;
using torch::Tensor;

class MemoryRefusal : public StepTest {
 protected:
  /// The gradients and the loss of a step; the gradients are taken away again.
  Tensors outcome() {
    before.restore();
    auto value = loss();
    value.backward();
    Tensors result = {value.detach()};
    for (const auto& parameter : network.parameters) result.push_back(parameter.grad());
    forget_gradients();
    return result;
  }
  testing::Snapshot before{[this] {
    auto changed = network.buffers;
    testing::append(changed, network.parameters);
    return changed;
  }()};
};

/// Every height that memory reaches for the first time in a step.
std::vector<std::int64_t> rises(const MemoryTimeline& timeline) {
  std::vector<std::int64_t> all = {timeline.at_start().total()};
  for (const auto& event : timeline.events())
    if (event.total_bytes > all.back()) all.push_back(event.total_bytes);
  return all;
}

// The budget below each of them refuses another allocation of the step.
TEST_P(MemoryRefusal, LeaveNothingBehindWhereverTheyAreRefused) {
  const auto expected = outcome();
  std::vector<std::int64_t> heights;
  {
    MemoryTimeline timeline;
    outcome();
    timeline.stop();
    heights = rises(timeline);
  }
  const auto in_use = memory_stats().current_bytes;
  const std::size_t stride = std::max<std::size_t>(1, heights.size() / 40);
  for (std::size_t i = 1; i < heights.size(); i += stride) {
    SCOPED_TRACE("height " + std::to_string(heights[i]));
    const auto allowed = heights[i] - 1;
    reset_peak_memory();
    try {
      const MemoryBudget budget(allowed);
      outcome();
      ADD_FAILURE() << "not refused";
    } catch (const BudgetError& error) {
      EXPECT_EQ(error.allowed_bytes(), allowed);
      EXPECT_GE(error.needed_bytes(), heights[i]);
    }
    EXPECT_LE(memory_stats().peak_bytes, allowed);
    forget_gradients();
    EXPECT_EQ(memory_stats().current_bytes, in_use);
  }
  testing::expect_same_bytes(outcome(), expected);
  const MemoryBudget enough(heights.back());
  testing::expect_same_bytes(outcome(), expected);
}

INSTANTIATE_TEST_SUITE_P(All, MemoryRefusal, ::testing::ValuesIn(steps()),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace reprise
