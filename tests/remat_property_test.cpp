// SPDX-License-Identifier: Apache-2.0
/// Random stacks of layers of every kind under random budgets: what a step leaves is byte for byte
/// what a plain one leaves.
#include "tests/random_layers.h"
#include "tests/remat_testing.h"

#include <rapidcheck/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace reprise {

namespace random_steps {

using random_stacks::kKinds;
using testing::Tensors;
using testing::TrainingStep;
using torch::Tensor;

struct LayerPlan {
  int kind = 0;
  int skip_from = 0;  // adds the output of that layer, if it comes before this one
  bool is_frozen = false;
  bool is_checkpointed = false;
};

/// All of a test case.
struct StepPlan {
  std::vector<LayerPlan> layers;
  bool is_training = true;
  bool is_applied_twice = false;
  int percent = 50;  // of the memory of a plain step
  std::uint32_t seed = 0;
};

void showValue(const StepPlan& plan, std::ostream& out) {
  out << "training " << plan.is_training << ", applied twice " << plan.is_applied_twice << ", "
      << plan.percent << " %, seed " << plan.seed;
  for (const auto& layer : plan.layers) {
    out << "\n  " << kKinds.at(static_cast<std::size_t>(layer.kind)).name
        << (layer.is_frozen ? " (frozen)" : "") << (layer.is_checkpointed ? " (region)" : "")
        << ", skip from " << layer.skip_from;
  }
  out << "\n";
}

class Stack {
 public:
  explicit Stack(const StepPlan& plan) : plan_(plan) {
    torch::manual_seed(plan.seed);
    input_ = torch::randn({random_stacks::kBatch, random_stacks::kSteps, random_stacks::kWidth})
                 .requires_grad_();
    step_.leaves.push_back(input_);
    for (const auto& layer_plan : plan_.layers) {
      layers_.push_back(kKinds.at(static_cast<std::size_t>(layer_plan.kind)).make());
      if (auto& module = layers_.back().module) adopt(*module, layer_plan.is_frozen);
    }
    step_.loss = [this] {
      return loss();
    };
  }

  const TrainingStep& step() const { return step_; }

 private:
  void adopt(torch::nn::Module& module, bool is_frozen) {
    module.train(plan_.is_training);
    for (const auto& parameter : module.parameters()) {
      parameter.set_requires_grad(!is_frozen);
      if (!is_frozen) step_.leaves.push_back(parameter);
      step_.buffers.push_back(parameter);  // some layers normalise their weights
    }
    testing::append(step_.buffers, module.buffers());
  }

  Tensor loss() const {
    auto y = pass(input_ * 1);
    if (plan_.is_applied_twice) y = pass(y);
    return y.sin().sum();
  }

  Tensor pass(Tensor y) const {
    std::vector<Tensor> outputs = {y};
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const auto& layer = plan_.layers[i];
      y = layer.is_checkpointed ? checkpoint(layers_[i].forward, y) : layers_[i].forward(y);
      if (layer.skip_from < static_cast<int>(outputs.size()))
        y = y + outputs[static_cast<std::size_t>(layer.skip_from)];
      outputs.push_back(y);
    }
    return y;
  }

  StepPlan plan_;
  std::vector<random_stacks::Layer> layers_;
  Tensor input_;
  TrainingStep step_;
};

template <typename T>
rc::Gen<T> in_range(T begin, T end) {
  return rc::gen::resize(rc::kNominalSize, rc::gen::inRange<T>(begin, end));
}

rc::Gen<StepPlan> step_plans() {
  constexpr int kMostLayers = 8;
  const auto layer = rc::gen::build<LayerPlan>(
      rc::gen::set(&LayerPlan::kind, in_range(0, static_cast<int>(kKinds.size()))),
      rc::gen::set(&LayerPlan::skip_from, in_range(0, 2 * kMostLayers)),
      rc::gen::set(&LayerPlan::is_frozen,
                   rc::gen::map(in_range(0, 4), [](int i) { return i == 3; })),
      rc::gen::set(&LayerPlan::is_checkpointed,
                   rc::gen::map(in_range(0, 6), [](int i) { return i == 5; })));
  return rc::gen::build<StepPlan>(
      rc::gen::set(
          &StepPlan::layers,
          rc::gen::resize(kMostLayers,
                          rc::gen::nonEmpty(rc::gen::container<std::vector<LayerPlan>>(layer)))),
      rc::gen::set(&StepPlan::is_training), rc::gen::set(&StepPlan::is_applied_twice),
      rc::gen::set(&StepPlan::percent, in_range(40, 101)),
      rc::gen::set(&StepPlan::seed, in_range<std::uint32_t>(0, 1000)));
}

RC_GTEST_PROP(RandomStep, LeavesWhatAPlainStepLeaves, ()) {
  const auto plan = *step_plans();
  const Stack stack(plan);
  const testing::Snapshot before(stack.step().buffers);
  const auto expected = testing::outcome_of(stack.step());
  before.restore();
  const auto bytes = testing::plain_bytes_of(stack.step());
  const auto run = testing::run_within(stack.step(), expected, plan.percent / 100.0, bytes, 3);
  RC_ASSERT(!::testing::Test::HasFailure());
  RC_CLASSIFY(run.is_feasible, "fits");
  RC_CLASSIFY(run.stats.replayed_operations > 0, "replays");
  RC_CLASSIFY(run.stats.is_planned, "planned");
}

/// Each kind of layer alone, under ever smaller budgets: easier to read than a random failure.
TEST(EveryLayer, IsExactWithinItsBudgets) {
  for (int kind = 0; kind < static_cast<int>(kKinds.size()); ++kind) {
    StepPlan plan;
    plan.layers.resize(3, {.kind = kind, .skip_from = 1});
    SCOPED_TRACE(kKinds.at(static_cast<std::size_t>(kind)).name);
    const Stack stack(plan);
    testing::expect_exact_within_budgets(stack.step(), 3);
  }
}

}  // namespace random_steps
}  // namespace reprise
