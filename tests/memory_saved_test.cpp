// SPDX-License-Identifier: Apache-2.0
/// Saved activations by layer, recompute buffers, gradients: what autograd's memory counts as, and
/// when.
#include "reprise/checkpoint.h"
#include "reprise/memory.h"
#include "reprise/memory_timeline.h"

#include "tests/checkpoint_testing.h"

#include <gmock/gmock.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace reprise {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using testing::random_leaf;
using testing::random_tensor;
using testing::Tensors;
using ::testing::UnorderedElementsAre;
using torch::Tensor;

constexpr std::int64_t kElements = 1600;
constexpr std::int64_t kBytes = 6400;  // of one tensor of so many floats

std::int64_t now(MemoryCategory category) {
  return memory_stats().current[category];
}

MemoryBreakdown at_end(const MemoryTimeline& timeline) {
  return timeline.events().empty() ? timeline.at_start()
                                   : timeline.after(timeline.events().size() - 1);
}

Tensor leaf() {
  return random_leaf({kElements});
}

TEST(MemorySaved, CountsByTheLayerThatSavedFirst) {
  const auto x = leaf();
  MemoryTimeline timeline;
  auto y = x.exp();  // saves its result, outside every layer
  {
    const LayerScope a("a");
    y = y.exp();
    {
      const LayerScope b("b");
      y = y.exp().exp();
    }
    const auto again = y.sin();  // saves the last result once more
  }
  timeline.stop();
  EXPECT_THAT(at_end(timeline).saved_by_layer,
              UnorderedElementsAre(Pair("", kBytes), Pair("a", kBytes), Pair("a/b", 2 * kBytes)));
  EXPECT_EQ(now(MemoryCategory::kSavedActivations), 4 * kBytes);
}

TEST(MemorySaved, IsToldByLayerWhileItIsThere) {
  const auto x = leaf();
  const MemoryTimeline timeline;
  const LayerScope layer("a");
  const auto y = x.exp();
  EXPECT_THAT(memory_stats().current.saved_by_layer, UnorderedElementsAre(Pair("a", kBytes)));
}

TEST(MemorySaved, CountsAsLongAsAutogradHoldsIt) {
  const auto x = leaf();
  MemoryTimeline timeline;
  const auto y = x.exp().exp();
  EXPECT_EQ(now(MemoryCategory::kSavedActivations), 2 * kBytes);
  const auto temporaries = now(MemoryCategory::kTemporaries);
  auto loss = y.sum();
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_EQ(now(MemoryCategory::kSavedActivations), 2 * kBytes);
  loss.backward();
  EXPECT_EQ(now(MemoryCategory::kSavedActivations), 0);
  // The result is still there, the gradient, and the loss.
  EXPECT_EQ(now(MemoryCategory::kTemporaries), temporaries + 2 * kBytes + 64);
  timeline.stop();
  EXPECT_THAT(at_end(timeline).saved_by_layer, IsEmpty());
}

TEST(MemorySaved, CountsAViewAsItsWholeMemoryOnce) {
  const auto base = random_tensor({kElements});
  const auto x = random_leaf({10});
  const MemoryTimeline timeline;
  const auto y = x * base.narrow(0, 0, 10);
  const auto z = x * base.narrow(0, 10, 10);
  EXPECT_EQ(now(MemoryCategory::kSavedActivations), kBytes);
}

TEST(MemorySaved, FollowsAGraphThatIsDroppedAndMemoryThatIsUsedAgain) {
  const auto x = leaf();
  MemoryTimeline timeline;
  for (int i = 0; i < 3; ++i) {
    auto y = x.exp();
    EXPECT_EQ(now(MemoryCategory::kSavedActivations), kBytes);
    y.reset();
    EXPECT_EQ(now(MemoryCategory::kSavedActivations), 0);
    const auto other = random_tensor({kElements});  // may lie at the same place
    EXPECT_EQ(now(MemoryCategory::kSavedActivations), 0);
  }
}

// Labelled for good: what autograd does besides takes nothing away.
TEST(MemorySaved, KeepsALabelOfTheCaller) {
  const auto x = leaf();
  MemoryTimeline timeline;
  auto kept = random_tensor({kElements});
  label_memory(kept, MemoryCategory::kSavedActivations);
  {
    const LayerScope layer("a");
    (x * kept).sum().backward();
  }
  EXPECT_EQ(now(MemoryCategory::kSavedActivations), kBytes);
  kept.reset();
  timeline.stop();
  EXPECT_THAT(at_end(timeline).saved_by_layer, IsEmpty());
}

/// Bytes that a layer held as saved, and that were recomputed, at their highest.
struct Highest {
  std::int64_t saved = 0;
  std::int64_t recomputed = 0;

  explicit Highest(const MemoryTimeline& timeline) {
    for (std::size_t i = 0; i < timeline.events().size(); ++i) {
      const auto breakdown = timeline.after(i);
      saved = std::max(saved, breakdown[MemoryCategory::kSavedActivations]);
      recomputed = std::max(recomputed, breakdown[MemoryCategory::kRecomputed]);
    }
  }
};

TEST(MemorySaved, BecomesRecomputeBuffersInARegion) {
  const auto x = leaf();
  const auto input = x.exp();
  MemoryTimeline timeline;
  const LayerScope layer("encoder");
  const auto y = checkpoint(
      [](const Tensor& t) {
        const LayerScope inner("block");
        return t.exp().exp().exp();
      },
      input);
  EXPECT_EQ(now(MemoryCategory::kSavedActivations), kBytes);  // the region's input
  EXPECT_EQ(now(MemoryCategory::kRecomputed), 0);
  y.sum().backward();
  EXPECT_EQ(now(MemoryCategory::kRecomputed), 0);
  timeline.stop();
  const Highest highest(timeline);
  EXPECT_EQ(highest.saved, kBytes);
  EXPECT_EQ(highest.recomputed, 3 * kBytes);
  std::vector<std::string> layers;
  for (const auto& span : timeline.spans()) {
    EXPECT_TRUE(span.is_layer);
    layers.push_back(span.name + (span.is_recomputed ? " again" : ""));
  }
  EXPECT_THAT(layers,
              UnorderedElementsAre("encoder/block", "encoder/block again", "encoder again"));
}

TEST(MemorySaved, IsRecomputedForTheLayerOfForwardWhereverBackwardRuns) {
  const auto x = leaf();
  MemoryTimeline timeline;
  Tensor y;
  {
    const LayerScope layer("here");
    y = checkpoint([](const Tensor& t) { return t.exp().exp(); }, x);
  }
  const LayerScope elsewhere("elsewhere");
  y.sum().backward();
  timeline.stop();
  for (const auto& span : timeline.spans()) EXPECT_EQ(span.name, "here");
  EXPECT_EQ(timeline.spans().size(), 2U);
}

/// A change in place of something that autograd saved, or of a relative of it.
struct Change {
  std::string name;
  std::function<void(Tensor& saved)> change;
};

std::vector<Change> changes() {
  return {{"none", [](Tensor&) {}},
          {"itself", [](Tensor& saved) { saved.add_(1); }},
          {"a view", [](Tensor& saved) { saved.narrow(0, 0, 1).zero_(); }},
          {"detached", [](Tensor& saved) { saved.detach().add_(1); }},
          {"data", [](Tensor& saved) { saved.tensor_data().add_(1); }},
          {"a copy", [](Tensor& saved) { saved.clone().add_(1); }},
          {"let go of", [](Tensor& saved) { saved.reset(); }}};
}

/// The error of backward after a change; empty where there is none.
std::string error_after(const Change& change, Tensor (*save)(const Tensor&)) {
  const auto x = leaf();
  auto value = save(x);
  const auto loss = value.exp().sin().sum() + value.sin().sum();
  const torch::NoGradGuard no_grad;
  change.change(value);
  const torch::AutoGradMode with_gradients(true);
  const auto error = testing::error_of([&] { loss.backward(); });
  return error.substr(0, error.find(':'));
}

TEST(MemorySaved, IsRefusedWhereItWasChangedAsPlainAutogradDoes) {
  for (const auto save : {+[](const Tensor& x) { return x.sigmoid(); },  // output
                          +[](const Tensor& x) { return x * 2; }}) {     // input of the next
    for (const auto& change : changes()) {
      SCOPED_TRACE(change.name);
      const auto expected = error_after(change, save);
      MemoryTimeline timeline;
      const auto actual = error_after(change, save);
      EXPECT_EQ(actual, expected);
    }
  }
}

// Gradients.

TEST(MemoryGradients, AreLabelledTheMomentTheyAreAccumulated) {
  const Tensors parameters = {leaf(), random_leaf({10})};
  label_parameters(parameters);
  const auto before = now(MemoryCategory::kGradients);
  std::vector<std::int64_t> seen;
  parameters[0].register_hook(
      [&](const Tensor&) { seen.push_back(now(MemoryCategory::kGradients)); });
  const auto y = (parameters[1] * 2).sum();
  auto loss = y * parameters[0].sum();
  loss.backward();
  EXPECT_EQ(now(MemoryCategory::kGradients) - before, kBytes + 64);
  EXPECT_EQ(now(MemoryCategory::kParameters), kBytes + 64);
  (parameters[0] * parameters[0]).sum().backward();  // into the same memory
  EXPECT_EQ(now(MemoryCategory::kGradients) - before, kBytes + 64);
  for (const auto& parameter : parameters) parameter.mutable_grad() = Tensor();
  EXPECT_EQ(now(MemoryCategory::kGradients), before);
}

TEST(MemoryGradients, AreLabelledWhereTheyAreThereAlready) {
  const Tensors parameters = {leaf(), random_tensor({10}),
                              Tensor()};  // a frozen one, an undefined one
  parameters[0].mutable_grad() = torch::zeros({kElements});
  const auto before = now(MemoryCategory::kGradients);
  label_parameters(parameters);
  label_parameters(parameters);  // twice is once
  EXPECT_EQ(now(MemoryCategory::kGradients), before + kBytes);
}

class Counter : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit Counter(int& calls) : calls_(calls) {}
  void operator()(const torch::autograd::Variable& /*parameter*/) override { ++calls_; }

 private:
  int& calls_;
};

TEST(MemoryGradients, LeaveHooksThatAreThereAlone) {
  const auto x = leaf();
  int calls = 0;
  torch::autograd::impl::set_post_acc_grad_hooks(x, std::make_unique<Counter>(calls));
  int gradients = 0;
  x.register_hook([&](const Tensor&) { ++gradients; });
  const auto before = now(MemoryCategory::kGradients);
  label_parameters(std::vector<Tensor>{x});
  x.sum().backward();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(gradients, 1);
  EXPECT_EQ(now(MemoryCategory::kGradients), before + kBytes);
}

}  // namespace
}  // namespace reprise
