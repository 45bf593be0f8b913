// SPDX-License-Identifier: Apache-2.0
/// Policies: results that a region keeps instead of computing them again.
#include "reprise/save_policy.h"

#include "reprise/errors.h"
#include "tests/checkpoint_testing.h"

#include <gmock/gmock.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace reprise {
namespace {

using testing::Caller;
using ::testing::Contains;
using testing::expect_exact;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::random_leaf;
using testing::random_tensor;
using testing::StorageWatch;
using testing::Tensors;
using torch::Tensor;

SavePolicy keep_everything() {
  return SavePolicy([](const SaveCandidate&) { return true; });
}

// An operator of somebody else's, whose kernel counts.
int cube_runs = 0;

Tensor cube_kernel(const Tensor& x) {
  ++cube_runs;
  return x * x * x;
}

struct Cube : torch::autograd::Function<Cube> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x) {
    const at::AutoDispatchBelowAutograd below_autograd;
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("reprise_policy_test::cube", "")
                               .typed<Tensor(const Tensor&)>();
    context->save_for_backward({x});
    return op.call(x);
  }
  static Tensors backward(torch::autograd::AutogradContext* context, Tensors gradients) {
    const auto x = context->get_saved_variables()[0];
    return {gradients[0] * 3 * x * x};
  }
};

Tensor cube_autograd(const Tensor& x) {
  return Cube::apply(x);
}

Tensor cube(const Tensor& x) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("reprise_policy_test::cube", "")
                             .typed<Tensor(const Tensor&)>();
  return op.call(x);
}

TORCH_LIBRARY(reprise_policy_test, library) {
  library.def("cube(Tensor x) -> Tensor");
  library.impl("cube", torch::dispatch(c10::DispatchKey::CPU, cube_kernel));
  library.impl("cube", torch::dispatch(c10::DispatchKey::Autograd, cube_autograd));
}

TEST(SavePolicy, AppliesToOperatorsThatOthersRegistered) {
  const auto x = random_leaf({4, 8});
  const auto f = [](const Tensor& t) {
    return cube(cube(t.sin()).cos()).exp();
  };
  const CheckpointOptions kept = {.save_policy = SavePolicy({"reprise_policy_test::cube"})};
  expect_exact([&](const Caller& call) { return call(f, x); }, {{x}}, {kept});
  for (const auto& [options, runs] :
       {std::make_pair(kept, 2), std::make_pair(CheckpointOptions{}, 4)}) {
    cube_runs = 0;
    checkpoint(options, f, x).sum().backward();
    EXPECT_EQ(cube_runs, runs);
  }
}

// Random operators: what is kept must move the generators on as if it had run.
TEST(SavePolicy, KeepsRandomOperators) {
  const auto x = random_leaf({4, 8});
  auto generator = at::make_generator<at::CPUGeneratorImpl>(3);
  const auto f = [&](const Tensor& t) {
    auto y = std::get<0>(at::native_dropout(t.exp(), 0.5, true)).sin();
    y = torch::dropout(y, 0.2, true) * torch::rand({8}, generator);
    y = y * at::bernoulli(t.detach().sigmoid(), generator) * torch::rand_like(y);
    return std::get<0>(at::native_dropout(y * torch::randn({1}), 0.5, true)).exp();
  };
  for (const std::string name : {"aten::native_dropout", "aten::bernoulli", "aten::rand",
                                 "aten::rand_like", "aten::randn", "aten::empty_like"}) {
    SCOPED_TRACE(name);
    expect_exact(
        [&](const Caller& call) {
          generator.set_current_seed(3);
          return call(f, call(f, x)) + torch::rand({8}, generator);
        },
        {{x}}, {{.save_policy = SavePolicy({name}), .verification = Verification::kValues}});
  }
}

TEST(SavePolicy, RefusesWhatCannotBeKept) {
  for (const std::string name :
       {"", "mm", "aten::", "aten::no_such_operator", "aten::mm.no_such_overload", "reprise::mm",
        "aten::view", "aten::t", "aten::transpose.int", "aten::split.Tensor", "aten::detach",
        "aten::add_", "aten::add_.Tensor", "aten::relu_", "aten::bernoulli_", "aten::copy_",
        "aten::add.out", "aten::mm.out"}) {
    try {
      const SavePolicy policy(std::vector<std::string>{"aten::mm", name});
      ADD_FAILURE() << name << " was accepted";
    } catch (const OptionError& error) {
      EXPECT_THAT(std::string(error.what()), HasSubstr(name));
      EXPECT_NE(error.field(), "");
    }
  }
  EXPECT_NO_THROW(SavePolicy({"aten::add", "aten::add.Tensor", "aten::mm", "aten::topk"}));
}

TEST(SavePolicy, KeepsNothingByDefault) {
  EXPECT_FALSE(SavePolicy().keeps_anything());
  EXPECT_FALSE(CheckpointOptions().save_policy.keeps_anything());
  for (const auto& policy : {SavePolicy::matmuls(), SavePolicy::attention(),
                             SavePolicy::convolutions(), SavePolicy::compute_heavy()})
    EXPECT_TRUE(policy.keeps_anything());
}

/// What a predicate was asked about.
struct Asked {
  std::vector<std::string> names;
  std::vector<at::ScalarType> types;

  SavePolicy policy(bool answer) {
    return SavePolicy([this, answer](const SaveCandidate& candidate) {
      names.emplace_back(candidate.name);
      EXPECT_FALSE(candidate.results.empty());
      types.push_back(candidate.results.at(0).scalar_type());
      return answer;
    });
  }
};

TEST(SavePolicy, AsksOnceForEveryOperatorThatMakesATensor) {
  const auto x = random_leaf({4, 8});
  torch::nn::Linear layer(8, 8);
  const auto f = [&](const Tensor& t) {
    auto y = layer(t).view({8, 4}).t().contiguous();
    y.mul_(2).relu_();
    return torch::softmax(y.unsqueeze(0).squeeze(0), 1).exp();
  };
  for (const bool answer : {false, true}) {
    Asked asked;
    const auto y = checkpoint({.save_policy = asked.policy(answer)}, f, x);
    const auto names = asked.names;
    y.sum().backward();
    EXPECT_EQ(asked.names, names) << "asked again in backward";
    for (const auto* wanted : {"aten::addmm", "aten::clone", "aten::_softmax", "aten::exp"})
      EXPECT_EQ(std::count(names.begin(), names.end(), wanted), 1) << wanted;
    for (const auto* unwanted : {"aten::linear", "aten::view", "aten::t", "aten::transpose",
                                 "aten::unsqueeze", "aten::squeeze", "aten::mul_", "aten::relu_"})
      EXPECT_THAT(names, Not(Contains(unwanted)));
  }
}

TEST(SavePolicy, SeesOperatorsAfterTheCastsOfAutocast) {
  const auto x = random_leaf({4, 8});
  const auto weight = random_leaf({8, 8}, 2);
  Asked asked;
  {
    const testing::AutocastScope autocast(at::kBFloat16);
    checkpoint(
        {.save_policy = asked.policy(true)}, [&](const Tensor& t) { return t.mm(weight).exp(); },
        x);
  }
  const auto mm = std::find(asked.names.begin(), asked.names.end(), "aten::mm");
  ASSERT_NE(mm, asked.names.end());
  EXPECT_EQ(asked.types[static_cast<std::size_t>(mm - asked.names.begin())], at::kBFloat16);
  torch::nn::Linear layer(8, 8);
  expect_exact(
      [&](const Caller& call) {
        const testing::AutocastScope autocast(at::kBFloat16);
        const auto f = [layer](const Tensor& t) mutable {
          return layer(torch::dropout(layer(t).exp(), 0.5, true));
        };
        return layer(call(f, layer(x))).to(torch::kFloat);
      },
      {{x, layer->weight, layer->bias}},
      {{.save_policy = SavePolicy::matmuls()}, {.save_policy = keep_everything()}});
}

TEST(SavePolicy, KeepsTheMemoryOfWhatItNamesUntilBackward) {
  const auto x = random_leaf({4, 8});
  const auto weight = random_leaf({8, 8}, 2);
  StorageWatch named;
  StorageWatch others;
  const auto f = [&](const Tensor& t) {
    const auto a = t.exp();
    const auto b = a.mm(weight);
    const auto c = b.sin();
    if (!in_recompute()) {
      named.add(b);
      others.add(a);
      others.add(c);
    }
    return c.mm(weight).exp();
  };
  const auto y = checkpoint({.save_policy = SavePolicy::matmuls()}, f, x).sum();
  EXPECT_EQ(named.count_alive(), 1U);
  EXPECT_EQ(others.count_alive(), 0U);
  y.backward({}, /*retain_graph=*/true);
  EXPECT_EQ(named.count_alive(), 1U);
  y.backward();
  EXPECT_EQ(named.count_alive(), 0U);
}

TEST(SavePolicy, IsExactInEveryOrderOfBackwardPasses) {
  const auto x = random_leaf({4, 8});
  const auto weight = random_leaf({8, 8}, 2);
  const auto f = [&](const Tensor& t) {
    const auto y = torch::dropout(t.mm(weight), 0.5, true).exp();
    return std::make_pair(y.mm(weight).sin(), y.sum(1).exp());
  };
  const Tensors leaves = {x, weight};
  const auto run = [&](const Caller& call) {
    torch::manual_seed(3);
    const auto [a, b] = call(f, x);
    Tensors all;
    const auto differentiate = [&](const Tensor& y, bool retain) {
      testing::append(all, torch::autograd::grad({y.sum()}, leaves, {}, retain));
    };
    differentiate(b, true);
    differentiate(a, true);
    differentiate(a, true);
    differentiate(b, true);
    const auto first = torch::autograd::grad({a.sum()}, leaves, {}, true, true);
    differentiate(first[0] * first[1].sum(), true);
    differentiate(a, false);
    return all;
  };
  for (const auto& policy : {SavePolicy::matmuls(), keep_everything(), SavePolicy({"aten::exp"})}) {
    for (const auto verification : {Verification::kMetadata, Verification::kValues}) {
      const CheckpointOptions options = {.save_policy = policy, .verification = verification};
      testing::expect_same_bytes(run(Caller(options)), run(Caller()));
    }
  }
}

TEST(SavePolicy, IsExactInNestedRegionsWithOtherPolicies) {
  const auto x = random_leaf({4, 8});
  const auto weight = random_leaf({8, 8}, 2);
  const std::vector<SavePolicy> policies = {SavePolicy(), SavePolicy::matmuls(), keep_everything(),
                                            SavePolicy({"aten::exp", "aten::sin"})};
  for (std::size_t outer = 0; outer < policies.size(); ++outer) {
    for (std::size_t inner = 0; inner < policies.size(); ++inner) {
      SCOPED_TRACE(outer * 10 + inner);
      expect_exact(
          [&, inner](const Caller& call) {
            const Caller inner_call =
                call.is_plain() ? Caller()
                                : Caller(CheckpointOptions{.save_policy = policies[inner]});
            const auto g = [&weight](const Tensor& t) {
              return torch::dropout(t.mm(weight), 0.5, true).exp().sin();
            };
            const auto f = [&weight, inner_call, g](const Tensor& t) {
              return inner_call(g, inner_call(g, t.exp()).mm(weight)).mm(weight).sin();
            };
            return call(f, call(f, x));
          },
          {{x, weight}}, {{.save_policy = policies[outer]}});
    }
  }
}

/// Operators with several results, lists of results, results that are no tensors or undefined.
TEST(SavePolicy, KeepsResultsOfEveryKind) {
  torch::manual_seed(1);
  const auto x = random_leaf({4, 8});
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(8, 8).num_layers(2).dropout(0.5));
  torch::nn::BatchNorm1d norm(8);
  const auto f = [&](const Tensor& t) {
    auto y = torch::layer_norm(t, {8}).exp();
    y = std::get<0>(y.topk(8, 1)) + std::get<0>(y.max(1, true));
    y = std::get<0>(lstm->forward(y.unsqueeze(0))).squeeze(0);
    for (const auto& part : torch::unsafe_split(y, 2)) y = y + part.exp().sum();
    y = norm(at::_foreach_add({y, y.sin()}, 1.0)[1].exp());
    const auto nothing_wanted = std::get<2>(at::native_group_norm(y, {}, {}, 4, 8, 1, 2, 1e-5));
    return y * nothing_wanted.sum() * y.gt(0).any().item<bool>();
  };
  const testing::Watched watched = {{x, lstm->parameters()[0], norm->weight}, norm->buffers()};
  expect_exact([&](const Caller& call) { return call(f, call(f, x)); }, watched);
}

// The kept tensor is the region's result, and its new owner changes it, which a plain call allows.
// A conjugate lies in its argument's memory and is not its argument.
TEST(SavePolicy, IsExactForComplexTensors) {
  const auto x = random_leaf({4, 4});
  const auto weight = random_leaf({4, 4}, 2);
  expect_exact(
      [&](const Caller& call) {
        const auto f = [](const Tensor& a, const Tensor& b) {
          const auto z = torch::complex(a, b);
          const auto y = z.mm(z.conj()) * z.conj();
          return torch::view_as_real(y).sin();
        };
        return call(f, x, weight);
      },
      {{x, weight}});
}

// The operator is run again then.
TEST(SavePolicy, IsExactWhereAKeptResultIsChangedLater) {
  const auto x = random_leaf({4, 8});
  const auto weight = random_leaf({8, 8}, 2);
  const std::vector<std::function<void(const Tensor&)>> changes = {
      [](const Tensor& a) { a.detach().zero_(); },
      [](const Tensor& a) { a.add_(1); },
      [](const Tensor& a) { a.narrow(0, 0, 1).mul_(3); },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    const auto gradient = [&](const Caller& call) {
      const auto [a, b] = call(
          [&](const Tensor& t) {
            auto product = t.mm(weight);  // autograd does not save it: exp saves its own result
            return std::make_pair(product, product.exp().sin());
          },
          x);
      changes[i](a);
      return torch::autograd::grad({b.sum() + a.sum()}, {x})[0];
    };
    const CheckpointOptions options = {.save_policy = SavePolicy::matmuls()};
    EXPECT_TRUE(testing::is_same_bytes(gradient(Caller(options)), gradient(Caller())));
  }
}

TEST(SavePolicy, IsExactWhereTheRegionsResultIsKeptAndChangedLater) {
  torch::nn::Linear layer(8, 8);
  const auto x = random_leaf({4, 8});
  expect_exact(
      [&](const Caller& call) {
        return call([layer](const Tensor& t) mutable { return layer(t); }, x).relu_();
      },
      {{x, layer->weight, layer->bias}}, {{.save_policy = SavePolicy::matmuls()}});
}

TEST(SavePolicy, NeedsAPredicate) {
  EXPECT_THROW(SavePolicy(SavePolicy::Predicate()), OptionError);
}

TEST(SavePolicy, RefusesAFunctionThatDifferentiatesThroughAKeptResult) {
  const auto x = random_leaf({4, 8});
  const auto weight = random_leaf({8, 8}, 2);
  const auto f = [&](const Tensor& t) {
    const auto energy = t.mm(weight).tanh().pow(2).sum();
    return torch::autograd::grad({energy}, {t}, {}, true, true)[0].sin();
  };
  for (const auto& policy : {SavePolicy::matmuls(), keep_everything()}) {
    EXPECT_THAT(testing::checkpoint_error_of([&] {
                  const CheckpointOptions options = {.save_policy = policy};
                  torch::autograd::grad({checkpoint(options, f, x).sum()}, {x});
                }),
                HasSubstr("aten::"));
  }
}

TEST(SavePolicy, RefusesASecondRunWithOtherOperators) {
  const auto x = random_leaf({4, 8});
  const auto weight = random_tensor({8, 8}, 2);
  const std::vector<std::function<Tensor(const Tensor&)>> second_runs = {
      [&](const Tensor& t) { return (t + 1).mm(weight).sin(); },           // one more
      [&](const Tensor& t) { return t.matmul(weight).abs().sin(); },       // one more, later
      [&](const Tensor& t) { return at::addmm(t, t, weight).sin(); },      // another one
      [&](const Tensor& t) { return t.mm(weight.t()).mm(weight).sin(); },  // twice
  };
  for (std::size_t i = 0; i < second_runs.size(); ++i) {
    SCOPED_TRACE(i);
    const auto y = checkpoint(
        {.name = "mixer", .save_policy = SavePolicy::matmuls()},
        [&](const Tensor& t) { return in_recompute() ? second_runs[i](t) : t.mm(weight).sin(); },
        x);
    EXPECT_THAT(testing::checkpoint_error_of([&] { y.sum().backward(); }), HasSubstr("mixer"));
  }
}

TEST(SavePolicy, IsExactWithoutGradientsInside) {
  const auto x = random_leaf({4, 8});
  const auto weight = random_leaf({8, 8}, 2);
  const auto f = [&](const Tensor& t) {
    Tensor scale;
    {
      const torch::NoGradGuard no_grad;
      scale = t.mm(weight).exp();
    }
    return (t.mm(weight.detach()) * scale).sin().detach().mm(weight).exp() * t;
  };
  expect_exact([&](const Caller& call) { return call(f, x); }, {{x, weight}},
               {{.save_policy = SavePolicy::matmuls()}, {.save_policy = keep_everything()}});
}

}  // namespace
}  // namespace reprise
