// SPDX-License-Identifier: Apache-2.0
/// Random stacks of layers, cut into random regions within regions: gradients, buffers, result and
/// random numbers are byte for byte those of the plain stack.
#include "reprise/checkpoint.h"

#include "tests/checkpoint_testing.h"
#include "tests/random_layers.h"

#include <rapidcheck/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace reprise {

namespace random_stacks {

using torch::Tensor;

constexpr int kDepths = 3;  // of regions in regions

/// How the region that begins at a layer is run.
struct RegionStyle {
  int policy = 0;  // none, matmuls, compute-heavy, everything, by hash of the name
  int verification = 0;
  bool early_stop = true;
  int salt = 0;
};

struct LayerPlan {
  int kind = 0;
  bool is_frozen = false;
  int cut = kDepths;  // regions of this depth and deeper ones begin anew at this layer
  int regions = 0;    // bit d: what begins here at depth d is a region, not a plain call
  RegionStyle style = {};
};

/// All of a test case.
struct StackPlan {
  std::vector<LayerPlan> layers;
  bool needs_input_gradient = true;
  bool is_training = true;
  bool is_applied_twice = false;  // each layer runs twice before backward
  std::uint32_t seed = 0;
};

CheckpointOptions options_of(const RegionStyle& style) {
  CheckpointOptions options = {
      .name = "region",
      .verification = static_cast<Verification>(style.verification),
      .early_stop = style.early_stop,
  };
  if (style.policy == 1) options.save_policy = SavePolicy::matmuls();
  if (style.policy == 2) options.save_policy = SavePolicy::compute_heavy();
  if (style.policy == 3)
    options.save_policy = SavePolicy([](const SaveCandidate&) { return true; });
  if (style.policy == 4) {
    options.save_policy = SavePolicy([salt = style.salt](const SaveCandidate& candidate) {
      const auto hash = std::hash<std::string_view>{}(candidate.name);
      return ((hash >> (salt % 32)) & 1) != 0;
    });
  }
  return options;
}

void showValue(const StackPlan& plan, std::ostream& out) {
  out << "input gradient " << plan.needs_input_gradient << ", training " << plan.is_training
      << ", applied twice " << plan.is_applied_twice << ", seed " << plan.seed;
  for (const auto& layer : plan.layers) {
    out << "\n  " << kKinds.at(static_cast<std::size_t>(layer.kind)).name
        << (layer.is_frozen ? " (frozen)" : "") << ": cut at depth " << layer.cut << ", regions "
        << layer.regions << ", policy " << layer.style.policy << " (salt " << layer.style.salt
        << "), verification " << layer.style.verification << ", early stop "
        << layer.style.early_stop;
  }
  out << "\n";
}

/// The layers of a plan with their state.
class Stack {
 public:
  explicit Stack(const StackPlan& plan) : plan_(plan) {
    torch::manual_seed(plan.seed);
    for (const auto& layer_plan : plan_.layers) {
      auto layer = kKinds.at(static_cast<std::size_t>(layer_plan.kind)).make();
      if (layer.module) adopt(*layer.module, layer_plan.is_frozen);
      functions_.push_back(layer.forward);
    }
    input_ = torch::randn({kBatch, kSteps, kWidth});
    before_.emplace(state_);
  }

  /// Gradients, result, state and random numbers of a pass.
  Tensors run(bool use_regions) const {
    before_->restore();
    torch::manual_seed(plan_.seed + 1);
    const auto x = input_.clone().requires_grad_(plan_.needs_input_gradient);
    auto y = run_part(x, 0, functions_.size(), 0, use_regions);
    if (plan_.is_applied_twice) y = run_part(y, 0, functions_.size(), 0, use_regions);
    auto wanted = leaves_;
    if (plan_.needs_input_gradient) wanted.push_back(x);
    Tensors result;
    const auto loss = y.sin().sum();
    if (loss.requires_grad()) {
      result = torch::autograd::grad({loss}, wanted, {}, std::nullopt, false,
                                     /*allow_unused=*/true);
    }
    result.push_back(y.detach());
    testing::append(result, testing::clones_of(state_));
    testing::append(result, testing::next_random_numbers());
    return result;
  }

 private:
  void adopt(torch::nn::Module& module, bool is_frozen) {
    module.train(plan_.is_training);
    for (const auto& parameter : module.parameters()) {
      parameter.set_requires_grad(!is_frozen);
      if (!is_frozen) leaves_.push_back(parameter);
      state_.push_back(parameter);
    }
    testing::append(state_, module.buffers());
  }

  /// Layers `begin` to `end` at `depth`, in the parts into which the plan cuts them.
  Tensor run_part(const Tensor& input, std::size_t begin, std::size_t end, int depth,
                  bool use_regions) const {
    auto y = input;
    for (std::size_t first = begin; first < end;) {
      std::size_t last = first + 1;
      while (last < end && plan_.layers[last].cut > depth) ++last;
      const auto& layer = plan_.layers[first];
      const auto inside = [this, first, last, depth, use_regions](const Tensor& t) {
        return depth + 1 < kDepths ? run_part(t, first, last, depth + 1, use_regions)
                                   : run_layers(t, first, last);
      };
      const bool is_region = use_regions && ((layer.regions >> depth) & 1) != 0;
      y = is_region ? checkpoint(options_of(layer.style), inside, y) : inside(y);
      first = last;
    }
    return y;
  }

  Tensor run_layers(const Tensor& input, std::size_t first, std::size_t last) const {
    auto y = input;
    for (std::size_t i = first; i < last; ++i) y = functions_[i](y);
    return y;
  }

  StackPlan plan_;
  std::vector<std::function<Tensor(const Tensor&)>> functions_;
  Tensors leaves_;
  Tensors state_;  // parameters and buffers
  Tensor input_;
  std::optional<testing::Snapshot> before_;
};

template <typename T>
rc::Gen<T> in_range(T begin, T end) {
  // rapidcheck makes ranges smaller for small sizes; every kind of layer is wanted at every size.
  return rc::gen::resize(rc::kNominalSize, rc::gen::inRange<T>(begin, end));
}

rc::Gen<LayerPlan> layer_plans() {
  const auto style = rc::gen::build<RegionStyle>(
      rc::gen::set(&RegionStyle::policy, in_range(0, 5)),
      rc::gen::set(&RegionStyle::verification, in_range(0, 3)),
      rc::gen::set(&RegionStyle::early_stop), rc::gen::set(&RegionStyle::salt, in_range(0, 32)));
  return rc::gen::build<LayerPlan>(
      rc::gen::set(&LayerPlan::kind, in_range(0, static_cast<int>(kKinds.size()))),
      rc::gen::set(&LayerPlan::is_frozen,
                   rc::gen::map(in_range(0, 4), [](int i) { return i == 3; })),
      rc::gen::set(&LayerPlan::cut, in_range(0, kDepths + 1)),
      rc::gen::set(&LayerPlan::regions, in_range(0, 1 << kDepths)),
      rc::gen::set(&LayerPlan::style, style));
}

rc::Gen<StackPlan> stack_plans() {
  constexpr int kMostLayers = 8;
  return rc::gen::build<StackPlan>(
      rc::gen::set(
          &StackPlan::layers,
          rc::gen::resize(kMostLayers, rc::gen::nonEmpty(rc::gen::container<std::vector<LayerPlan>>(
                                           layer_plans())))),
      rc::gen::set(&StackPlan::needs_input_gradient), rc::gen::set(&StackPlan::is_training),
      rc::gen::set(&StackPlan::is_applied_twice),
      rc::gen::set(&StackPlan::seed, in_range<std::uint32_t>(0, 1000)));
}

RC_GTEST_PROP(RandomStack, OfRegionsLeavesWhatThePlainStackLeaves, ()) {
  const auto plan = *stack_plans();
  const Stack stack(plan);
  const auto expected = stack.run(/*use_regions=*/false);
  const auto actual = stack.run(/*use_regions=*/true);
  RC_ASSERT(actual.size() == expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i)
    RC_ASSERT(testing::is_same_bytes(actual[i], expected[i]));
}

/// Each kind of layer alone, and twice: a failure here is easier to read than a random one.
TEST(EveryLayer, IsExactInARegion) {
  for (int kind = 0; kind < static_cast<int>(kKinds.size()); ++kind) {
    for (int policy = 0; policy < 5; ++policy) {
      for (const bool is_applied_twice : {false, true}) {
        LayerPlan layer;
        layer.kind = kind;
        layer.regions = 1;
        layer.style = {.policy = policy, .verification = 2, .early_stop = !is_applied_twice};
        StackPlan plan;
        plan.layers = {layer};
        plan.is_applied_twice = is_applied_twice;
        SCOPED_TRACE(std::string(kKinds.at(static_cast<std::size_t>(kind)).name) + ", policy " +
                     std::to_string(policy));
        const Stack stack(plan);
        testing::expect_same_bytes(stack.run(true), stack.run(false));
      }
    }
  }
}

}  // namespace random_stacks
}  // namespace reprise
