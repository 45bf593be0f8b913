// SPDX-License-Identifier: Apache-2.0
/// Training steps that are refused memory, at every moment in turn: the error is ours, nothing is
/// left behind, and the step runs as ever with enough.
#include "reprise/errors.h"
#include "reprise/memory.h"
#include "reprise/memory_budget.h"
#include "reprise/memory_timeline.h"

#include "tests/checkpoint_testing.h"
#include "tests/random_layers.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace reprise {
namespace {

using testing::Caller;
using testing::random_leaf;
using testing::Tensors;
using torch::Tensor;

using random_stacks::kKinds;

/// A layer twice, with a region around both and one around the second, and what it needs.
struct Network {
  explicit Network(const random_stacks::Kind& kind) {
    for (int i = 0; i < 2; ++i) {
      layers.push_back(kind.make());
      if (!layers[i].module) continue;
      testing::append(parameters, layers[i].module->parameters());
      testing::append(buffers, layers[i].module->buffers());
    }
  }

  Tensor loss(const Caller& call) const {
    const auto inner = [layer = layers[1]](const Tensor& t) {
      const LayerScope scope("inner");
      return layer.forward(t);
    };
    const auto outer = [&call, inner, layer = layers[0]](const Tensor& t) {
      const LayerScope scope("outer");
      return call(inner, layer.forward(t).sin());
    };
    const LayerScope scope("network");
    return call(outer, input * 2).square().sum();
  }

  std::vector<random_stacks::Layer> layers = {};
  Tensors parameters = {
      random_leaf({random_stacks::kBatch, random_stacks::kSteps, random_stacks::kWidth})};
  Tensor input = parameters[0];
  Tensors buffers = {};
};

struct Step {
  random_stacks::Kind kind;
  std::optional<CheckpointOptions> options;

  std::string name() const {
    auto name = std::string(kind.name) + " " + (options ? options->name : "plain");
    std::replace(name.begin(), name.end(), ' ', '_');
    return name;
  }
};

std::ostream& operator<<(std::ostream& out, const Step& step) {
  return out << step.name();
}

std::vector<Step> steps() {
  std::vector<Step> all;
  for (const auto& kind : kKinds) {
    all.push_back({kind, std::nullopt});
    for (const auto& options : testing::all_options()) all.push_back({kind, options});
  }
  return all;
}

class MemoryRefusal : public ::testing::TestWithParam<Step> {
 protected:
  MemoryRefusal() {
    label_parameters(network.parameters);
    if (GetParam().options) call = Caller(*GetParam().options);
  }

  Tensor loss() {
    torch::manual_seed(3);
    return network.loss(call);
  }

  void forget_gradients() {
    for (const auto& parameter : network.parameters) parameter.mutable_grad() = Tensor();
  }

  Network network = [] {
    torch::manual_seed(1);
    return Network(GetParam().kind);
  }();
  Caller call;
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
