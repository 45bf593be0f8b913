// SPDX-License-Identifier: Apache-2.0
/// Training steps of every kind of layer, plain and with every kind of region.
#pragma once

#include "reprise/memory.h"
#include "reprise/memory_timeline.h"

#include "tests/checkpoint_testing.h"
#include "tests/random_layers.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace reprise::memory_steps {

using testing::Caller;
using testing::Tensors;
using torch::Tensor;

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
      testing::random_leaf({random_stacks::kBatch, random_stacks::kSteps, random_stacks::kWidth})};
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

inline std::ostream& operator<<(std::ostream& out, const Step& step) {
  return out << step.name();
}

inline std::vector<Step> steps() {
  std::vector<Step> all;
  for (const auto& kind : random_stacks::kKinds) {
    all.push_back({kind, std::nullopt});
    for (const auto& options : testing::all_options()) all.push_back({kind, options});
  }
  return all;
}

/// The step of one parameter, the same numbers each time.
class StepTest : public ::testing::TestWithParam<Step> {
 protected:
  StepTest() {
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
};

}  // namespace reprise::memory_steps
