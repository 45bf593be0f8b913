// SPDX-License-Identifier: Apache-2.0
// Layers named by the parameters that operators read, and handlers that own tensors.
#include "reprise/checkpoint.h"
#include "reprise/errors.h"
#include "reprise/memory_budget.h"
#include "reprise/memory_timeline.h"
#include "reprise/verify_gradients.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <optional>
#include <set>

namespace reprise {
namespace {

using ::testing::IsSupersetOf;
using torch::Tensor;

struct Net : torch::nn::Module {
  Net() {
    register_module("first", first);
    register_module("second", second);
  }

  Tensor forward(const Tensor& x) { return second->forward(first->forward(x).sigmoid()).sigmoid(); }

  torch::nn::Linear first{8, 16};
  torch::nn::Linear second{16, 4};
};

std::set<std::string> recomputed_layers(const MemoryTimeline& timeline) {
  std::set<std::string> layers;
  for (const auto& span : timeline.spans()) {
    if (span.is_recomputed) layers.insert(span.name);
  }
  return layers;
}

TEST(ParameterLayers, NameWhatAModelWithoutScopesSaves) {
  Net net;
  const auto x = torch::randn({32, 8});
  MemoryTimeline timeline;
  {
    const ParameterLayers layers(named_tensors(net));
    const auto y = net.forward(x).sum();
    timeline.stop();
    const auto saved = timeline.after(timeline.events().size() - 1).saved_by_layer;
    // The input, which is no parameter, and the sigmoid's result; the other sigmoid's, and weights
    // that nobody has labelled: the second of them, whose input needs a gradient.
    EXPECT_EQ(saved.at("first"), 32 * 8 * 4 + 32 * 16 * 4);
    EXPECT_EQ(saved.at("second"), 32 * 4 * 4 + 4 * 16 * 4);
    EXPECT_EQ(saved.size(), 2U);
  }
}

TEST(ParameterLayers, NameRegionsByTheirLastLayer) {
  Net net;
  const auto x = torch::randn({32, 8}).requires_grad_(true);
  MemoryTimeline timeline;
  {
    const ParameterLayers layers(named_tensors(net));
    const auto y = checkpoint([&](const Tensor& v) { return net.forward(v); }, x);
    y.sum().backward();
  }
  timeline.stop();
  EXPECT_THAT(recomputed_layers(timeline), ::testing::ElementsAre("second"));
}

TEST(ParameterLayers, LeaveTheThreadAsTheyFoundIt) {
  Net net;
  {
    const ParameterLayers layers(named_tensors(net));
    net.forward(torch::randn({2, 8}));
  }
  MemoryTimeline timeline;
  const auto y = torch::randn({64}).requires_grad_(true).exp();
  timeline.stop();
  EXPECT_EQ(timeline.after(timeline.events().size() - 1).saved_by_layer,
            (std::map<std::string, std::int64_t>{{"", 256}}));
}

TEST(PressureHandlers, MayOwnTensors) {
  auto cache = torch::empty({1 << 20}, torch::kByte);
  const MemoryBudget budget(memory_stats().current_bytes + (1 << 19));
  {
    const MemoryPressureHandler handler(
        [kept = std::exchange(cache, Tensor())](std::int64_t) mutable {
          const bool is_there = kept.defined();
          kept.reset();
          return is_there;
        });
    EXPECT_EQ(torch::empty({1 << 20}, torch::kByte).numel(), 1 << 20);
  }
  const auto other = torch::empty({64}, torch::kByte);
  {
    const MemoryPressureHandler unused([other](std::int64_t) { return other.defined(); });
  }
  EXPECT_EQ(other.numel(), 64);
}

}  // namespace
}  // namespace reprise
