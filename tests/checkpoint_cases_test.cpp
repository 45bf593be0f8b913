// SPDX-License-Identifier: Apache-2.0
/// Gradients through regions in every place where autograd can meet one. The ids are those of
/// faults that people met in other systems.
#include "reprise/checkpoint.h"

#include "tests/checkpoint_testing.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

namespace reprise {
namespace {

using testing::Caller;
using testing::expect_exact;
using ::testing::HasSubstr;
using testing::random_leaf;
using testing::random_tensor;
using testing::Tensors;
using torch::Tensor;
using torch::autograd::AutogradContext;

class CheckpointGradients : public testing::SeededTest {
 protected:
  Tensor activation(const Tensor& t) {
    return second_(torch::dropout(first_(t).relu(), 0.5, true));
  }
  Tensors leaves() const { return {x_, first_->weight, first_->bias, second_->weight}; }

  torch::nn::Linear first_{8, 8};
  torch::nn::Linear second_{8, 8};
  Tensor x_ = random_leaf({4, 8}, 2);
};

// B1: frozen layers, an input without gradient.
TEST_F(CheckpointGradients, AreNeededExactlyWhereAPlainCallNeedsThem) {
  for (int bits = 0; bits < 8; ++bits) {
    SCOPED_TRACE(bits);
    Tensors wanted;
    const auto set = [&](const Tensor& tensor, bool needs_gradient) {
      tensor.detach_();
      tensor.set_requires_grad(needs_gradient);
      if (needs_gradient) wanted.push_back(tensor);
    };
    set(first_->weight, (bits & 1) != 0);
    set(first_->bias, (bits & 1) != 0);
    set(second_->weight, (bits & 2) != 0);
    set(second_->bias, (bits & 2) != 0);
    set(x_, (bits & 4) != 0);
    const auto f = [this](const Tensor& t) {
      return activation(t);
    };
    EXPECT_EQ(checkpoint(f, x_).requires_grad(), bits != 0);
    if (bits != 0) expect_exact([&](const Caller& call) { return call(f, x_); }, {wanted});
  }
}

// B3
TEST_F(CheckpointGradients, StopWhereTheFunctionDetaches) {
  const auto f = [this](const Tensor& t) {
    Tensor scale;
    {
      const torch::NoGradGuard no_grad;
      scale = activation(t).exp();
    }
    auto y = activation(t) * scale;
    return std::make_pair(y, y.detach());
  };
  const auto model = [&](const Caller& call) {
    auto [y, detached] = call(f, x_);
    EXPECT_TRUE(y.requires_grad());
    EXPECT_FALSE(detached.requires_grad());
    return y + detached.sin();
  };
  expect_exact(model, {leaves()});
}

// B43: a captured weight that the recomputation forgets is never trained.
TEST_F(CheckpointGradients, TrainEveryCapturedParameter) {
  const auto trained = [&](bool use_checkpointing) {
    torch::manual_seed(3);
    torch::nn::TransformerEncoderLayer layer(
        torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.25));
    torch::optim::Adam optimizer(layer->parameters(), 0.01);
    const auto input = random_tensor({3, 2, 8}, 4);
    for (int step = 0; step < 3; ++step) {
      const auto f = [layer](const Tensor& t) mutable {
        return layer->forward(t);
      };
      const Caller call = use_checkpointing ? Caller(CheckpointOptions{}) : Caller();
      const auto y = call(f, input);
      optimizer.zero_grad();
      y.pow(2).sum().backward();
      optimizer.step();
    }
    return layer->parameters();
  };
  testing::expect_same_bytes(trained(true), trained(false));
}

// B17, B18: one reentrant backward pass per region runs them more than once.
class CountedHook : public torch::autograd::FunctionPostHook {
 public:
  explicit CountedHook(int& calls) : calls_(calls) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    ++calls_;
    return outputs;
  }

 private:
  int& calls_;
};

TEST_F(CheckpointGradients, OfASharedWeightAreAccumulatedOnce) {
  int tensor_hook_calls = 0;
  int accumulations = 0;
  const auto& weight = first_->weight;
  weight.register_hook([&](const Tensor&) { ++tensor_hook_calls; });
  const auto accumulator = torch::autograd::impl::grad_accumulator(weight);
  accumulator->add_post_hook(std::make_unique<CountedHook>(accumulations));
  const auto loss = [&](const Caller& call) {
    const auto f = [this, &call](const Tensor& t) {
      return call([this](const Tensor& u) { return first_(u).sigmoid(); }, activation(t)).sin();
    };
    torch::manual_seed(5);
    return (first_(call(f, call(f, x_))) * weight[0]).pow(2).sum();
  };
  loss(Caller(CheckpointOptions{})).backward();
  EXPECT_EQ(tensor_hook_calls, 1);
  EXPECT_EQ(accumulations, 1);
  const auto with_regions = weight.grad().clone();
  weight.mutable_grad().reset();
  loss(Caller()).backward();
  EXPECT_TRUE(testing::is_same_bytes(with_regions, weight.grad()));
}

// B19
TEST_F(CheckpointGradients, TellNestedFunctionsThatTheyRunAgain) {
  std::vector<bool> inner_seen;
  std::vector<bool> outer_seen;
  const auto inner = [&](const Tensor& t) {
    inner_seen.push_back(in_recompute());
    return t.exp();
  };
  auto y = checkpoint(
      [&](const Tensor& t) {
        outer_seen.push_back(in_recompute());
        return checkpoint(inner, t.sin()).tanh();
      },
      x_);
  EXPECT_EQ(inner_seen, std::vector<bool>{false});
  y.sum().backward();
  EXPECT_EQ(outer_seen, (std::vector<bool>{false, true}));
  ASSERT_GE(inner_seen.size(), 2U);
  for (std::size_t i = 1; i < inner_seen.size(); ++i) EXPECT_TRUE(inner_seen[i]) << i;
  EXPECT_FALSE(in_recompute());
}

// B20: forces are a gradient of the energy. Trap 1: a backward pass while operators are observed.
TEST_F(CheckpointGradients, CanBeTakenInsideTheFunction) {
  const auto forces = [this](const Tensor& position) {
    const auto energy = second_(first_(position).tanh()).pow(2).sum();
    return torch::autograd::grad({energy}, {position}, {}, true, true)[0];
  };
  expect_exact([&](const Caller& call) { return call(forces, x_); }, {leaves()},
               testing::options_without_policy());
  expect_exact([&](const Caller& call) { return call(forces, x_ * 2); }, {leaves()},
               testing::options_without_policy());
  const auto local = [this](const Tensor& t) {
    const auto leaf = t.detach().requires_grad_();
    second_(leaf).exp().sum().backward({}, false, false, {leaf});
    return t * leaf.grad();
  };
  expect_exact([&](const Caller& call) { return call(local, x_); }, {leaves()},
               testing::options_without_policy());
}

// B21
TEST_F(CheckpointGradients, CanBeAskedForSomeTensorsOnly) {
  for (const auto& leaf : leaves()) {
    expect_exact(
        [&](const Caller& call) {
          return call([this](const Tensor& t) { return activation(activation(t).sin()); }, x_);
        },
        {{leaf}});
  }
  torch::manual_seed(2);
  auto y = checkpoint([this](const Tensor& t) { return activation(t); }, x_);
  y.sum().backward({}, false, false, {first_->weight});
  EXPECT_TRUE(first_->weight.grad().defined());
  EXPECT_FALSE(x_.grad().defined());
  EXPECT_FALSE(second_->weight.grad().defined());
}

// Functions that run in backward capture other functions by value: the model has returned by then.
TEST_F(CheckpointGradients, OfRegionsInRegionsInRegionsAreThoseOfAPlainCall) {
  const auto inner = [this](const Tensor& t) {
    return activation(t).sin();
  };
  expect_exact(
      [&](const Caller& call) {
        const auto middle = [&call, inner](const Tensor& t) {
          return call(inner, torch::dropout(call(inner, t), 0.3, true)).cos();
        };
        const auto outer = [&call, middle](const Tensor& t) {
          return call(middle, call(middle, t.exp()) + t);
        };
        return call(outer, call(outer, x_));
      },
      {leaves()});
}

TEST_F(CheckpointGradients, OfGradientsAreThoseOfAPlainCall) {
  const auto inner = [this](const Tensor& t) {
    return second_(t.sin() * first_(t).tanh());
  };
  const auto model = [&](const Caller& call) {
    const auto f = [&call, inner](const Tensor& t) {
      return call(inner, torch::dropout(call(inner, t), 0.3, true)).sigmoid();
    };
    const auto y = call(f, x_).pow(2).sum();
    const auto first = torch::autograd::grad({y}, {x_, first_->weight}, {}, true, true);
    const auto second = torch::autograd::grad({first[0].pow(2).sum()}, {x_}, {}, true, true);
    return second[0] + first[1].mean();
  };
  expect_exact(model, {{x_, first_->weight, second_->weight}}, testing::options_without_policy());
}

TEST_F(CheckpointGradients, CanBeTakenSeveralTimesAndInParts) {
  const auto f = [this](const Tensor& t) {
    return Tensors{activation(t).exp(), t.sin().exp()};
  };
  for (const auto& options : testing::all_options()) {
    SCOPED_TRACE(options.name);
    const auto run = [&](const Caller& call) {
      torch::manual_seed(6);
      const auto outputs = call(f, x_);
      Tensors all;
      for (const bool retain : {true, true, false}) {
        for (const auto& output : outputs)
          all.push_back(torch::autograd::grad({output.sum()}, {x_}, {}, retain)[0]);
      }
      return all;
    };
    testing::expect_same_bytes(run(Caller(options)), run(Caller()));
  }
}

// B35
struct FailsOnce : torch::autograd::Function<FailsOnce> {
  static inline int failures_left = 0;

  static Tensor forward(AutogradContext*, const Tensor& x) { return x.clone(); }
  static Tensors backward(AutogradContext*, Tensors gradients) {
    if (failures_left-- > 0) throw std::runtime_error("a node that fails");
    return gradients;
  }
};

TEST(CheckpointErrors, OfANodeLeaveTheRegionUsable) {
  for (const auto& options : testing::all_options()) {
    SCOPED_TRACE(options.name);
    const auto x = random_leaf({4, 8});
    const auto f = [](const Tensor& t) {
      return FailsOnce::apply(torch::dropout(t, 0.5, true).exp()).sin();
    };
    FailsOnce::failures_left = 0;
    torch::manual_seed(4);
    const auto expected = torch::autograd::grad({f(x).sum()}, {x})[0];
    torch::manual_seed(4);
    const auto y = checkpoint(options, f, x).sum();
    FailsOnce::failures_left = 2;
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(testing::error_of([&] { torch::autograd::grad({y}, {x}, {}, true); }),
                  HasSubstr("a node that fails"));
    }
    EXPECT_FALSE(in_recompute());
    EXPECT_TRUE(testing::is_same_bytes(torch::autograd::grad({y}, {x})[0], expected));
  }
}

TEST(CheckpointErrors, InForwardComeOutUnchanged) {
  const auto x = random_leaf({4, 8});
  const auto f = [](const Tensor& t) -> Tensor {
    if (t.exp().sum().item<float>() > 0) throw std::out_of_range("of the user's function");
    return t;
  };
  EXPECT_THROW(checkpoint(f, x), std::out_of_range);
  EXPECT_THROW(checkpoint([](const Tensor& t) { return t.mm(torch::ones({3, 3})); }, x),
               c10::Error);
  EXPECT_FALSE(in_recompute());
  expect_exact([&](const Caller& call) { return call([](const Tensor& t) { return t.exp(); }, x); },
               {{x}});
}

/// Its backward pass trains on a region of its own.
struct RegionInBackward : torch::autograd::Function<RegionInBackward> {
  static inline bool use_checkpointing = false;

  static Tensor forward(AutogradContext* context, const Tensor& x) {
    context->save_for_backward({x});
    return x.sin().exp();
  }
  static Tensors backward(AutogradContext* context, Tensors gradients) {
    const torch::AutoGradMode with_gradients(true);
    const auto x = context->get_saved_variables()[0].detach().requires_grad_();
    const auto f = [](const Tensor& t) {
      return torch::dropout(t.sin().exp(), 0.5, true).tanh();
    };
    const auto y = use_checkpointing ? checkpoint(f, x) : f(x);
    return {torch::autograd::grad({y}, {x}, {gradients[0]})[0]};
  }
};

TEST(CheckpointOfUserFunctions, WorksInsideAndAroundThem) {
  const auto x = random_leaf({4, 8});
  for (const bool use_checkpointing : {false, true}) {
    expect_exact(
        [&](const Caller& call) {
          RegionInBackward::use_checkpointing = use_checkpointing && !call.is_plain();
          return call([](const Tensor& t) { return RegionInBackward::apply(t.cos()).tanh(); }, x);
        },
        {{x}}, testing::options_without_policy());
  }
}

TEST(CheckpointInAnomalyMode, IsExact) {
  const torch::autograd::DetectAnomalyGuard anomaly_mode;
  const auto x = random_leaf({4, 8});
  expect_exact(
      [&](const Caller& call) {
        return call([](const Tensor& t) { return torch::dropout(t.exp(), 0.5, true).sin(); }, x);
      },
      {{x}});
}

}  // namespace
}  // namespace reprise
