// SPDX-License-Identifier: Apache-2.0
/// Random numbers: drawn again in the second run, and not noticed by the first. The ids are those
/// of faults that people met in other systems.
#include "reprise/checkpoint.h"

#include "tests/checkpoint_testing.h"

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace reprise {
namespace {

using testing::Caller;
using testing::expect_exact;
using testing::random_leaf;
using testing::Tensors;
using torch::Tensor;

struct RandomFunction {
  std::string name;
  std::function<Tensor(const Tensor&)> function;
};

void PrintTo(const RandomFunction& function, std::ostream* out) {
  *out << function.name;
}

std::vector<RandomFunction> dropouts() {
  return {
      {"Dropout", [](const Tensor& t) { return torch::dropout(t, 0.5, true); }},
      {"DropoutOfNothing", [](const Tensor& t) { return torch::dropout(t, 0, true).exp(); }},
      {"DropoutOfEverything", [](const Tensor& t) { return torch::dropout(t, 1, true); }},
      {"DropoutInPlace", [](Tensor t) { return torch::dropout_(t = t * 2, 0.5, true); }},
      {"FeatureDropout", [](const Tensor& t) { return torch::feature_dropout(t, 0.5, true); }},
      {"AlphaDropout", [](const Tensor& t) { return torch::alpha_dropout(t, 0.5, true); }},
      {"FeatureAlphaDropout",
       [](const Tensor& t) { return torch::feature_alpha_dropout(t, 0.5, true); }},
      {"NativeDropout",
       [](const Tensor& t) { return std::get<0>(at::native_dropout(t, 0.5, true)); }},
      {"Rrelu", [](const Tensor& t) { return torch::rrelu(t, 0.1, 0.4, true); }},
      {"RreluInPlace", [](Tensor t) { return torch::rrelu_(t = t * 2, 0.1, 0.4, true); }},
  };
}

std::vector<RandomFunction> noises() {
  return {
      {"OneNormal", [](const Tensor& t) { return t * torch::randn({1}); }},
      {"ThreeNormals", [](const Tensor& t) { return t * torch::randn({3}).sum(); }},
      {"ManyNormals", [](const Tensor& t) { return t * torch::randn({4, 8}); }},
      {"NormalOfTensors", [](const Tensor& t) { return t * at::normal(t.detach(), 2.0); }},
      {"Uniform", [](const Tensor& t) { return t * torch::rand_like(t); }},
      {"UniformInPlace", [](const Tensor& t) { return t * torch::empty({8}).uniform_(1, 2); }},
      {"Bernoulli", [](const Tensor& t) { return t * torch::bernoulli(t.detach().sigmoid()); }},
      {"BernoulliInPlace", [](const Tensor& t) { return t * torch::empty({8}).bernoulli_(0.5); }},
      {"Exponential", [](const Tensor& t) { return t * torch::empty({8}).exponential_(); }},
      {"Geometric", [](const Tensor& t) { return t * torch::empty({8}).geometric_(0.5); }},
      {"LogNormal", [](const Tensor& t) { return t * torch::empty({8}).log_normal_(); }},
      {"Cauchy", [](const Tensor& t) { return t * torch::empty({8}).cauchy_(); }},
      {"Integers", [](const Tensor& t) { return t * torch::randint(5, {8}); }},
      {"IntegersInPlace", [](const Tensor& t) { return t * torch::empty({8}).random_(9); }},
      {"Permutation", [](const Tensor& t) { return t.exp().index({torch::randperm(4)}).sin(); }},
      {"Multinomial",
       [](const Tensor& t) {
         return t.exp().gather(1, torch::multinomial(t.detach().sigmoid(), 3)).sin();
       }},
      {"Poisson", [](const Tensor& t) { return t * torch::poisson(t.detach().exp()); }},
      {"Gamma", [](const Tensor& t) { return at::_standard_gamma(t.exp()); }},
      {"Dirichlet", [](const Tensor& t) { return t * at::_sample_dirichlet(t.detach().exp()); }},
      {"Binomial",
       [](const Tensor& t) {
         return t * at::binomial(torch::full({4, 8}, 9.F), t.detach().sigmoid());
       }},
  };
}

std::vector<RandomFunction> random_modules() {
  torch::manual_seed(1);
  const auto lstm = std::make_shared<torch::nn::LSTMImpl>(
      torch::nn::LSTMOptions(8, 8).num_layers(2).dropout(0.5));
  const auto attention = std::make_shared<torch::nn::MultiheadAttentionImpl>(
      torch::nn::MultiheadAttentionOptions(8, 2).dropout(0.5));
  return {
      {"LstmWithDropout",
       [lstm](const Tensor& t) { return std::get<0>(lstm->forward(t.unsqueeze(1))).squeeze(1); }},
      {"AttentionWithDropout",
       [attention](const Tensor& t) {
         const auto u = t.unsqueeze(1);
         return std::get<0>(attention->forward(u, u, u)).squeeze(1);
       }},
      {"ScaledDotProductAttentionWithDropout",
       [](const Tensor& t) {
         const auto u = t.view({1, 1, 4, 8});
         return torch::scaled_dot_product_attention(u, u, u, {}, 0.5).view({4, 8});
       }},
      {"GeneratorThatTheFunctionPutsBack",
       [](const Tensor& t) {
         auto generator = at::globalContext().defaultGenerator(at::kCPU);
         const auto state = generator.get_state();
         auto y = torch::dropout(t, 0.5, true);
         generator.set_state(state);
         return y.exp().sin();
       }},
      {"GeneratorThatTheFunctionSeeds",
       [](const Tensor& t) {
         torch::manual_seed(33);
         return torch::dropout(t, 0.5, true) * torch::randn({1});
       }},
  };
}

std::vector<RandomFunction> random_functions() {
  auto all = dropouts();
  for (auto& function : noises()) all.push_back(std::move(function));
  for (auto& function : random_modules()) all.push_back(std::move(function));
  return all;
}

class CheckpointOfRandomNumbers : public ::testing::TestWithParam<RandomFunction> {};

// B10, B13, B48; trap 3.
TEST_P(CheckpointOfRandomNumbers, IsExactAndLeavesTheStreamAlone) {
  const auto x = random_leaf({4, 8}, 2);
  const auto& f = GetParam().function;
  expect_exact([&](const Caller& call) { return call(f, x).sin(); }, {{x}});
  const auto model = [&](const Caller& call) {
    const auto outer = [&](const Tensor& t) {
      return call(f, torch::dropout(t, 0.2, true).narrow(0, 0, 4)).sum() * t.exp();
    };
    auto y = call(outer, x * torch::rand({1}));
    return call(outer, y.tanh() * torch::randn({1}));
  };
  expect_exact(model, {{x}});
}

INSTANTIATE_TEST_SUITE_P(Functions, CheckpointOfRandomNumbers,
                         ::testing::ValuesIn(random_functions()),
                         ::testing::PrintToStringParamName());

// Generators that are handed to operators, captured or as inputs.
TEST(CheckpointOfGenerators, ReplaysThemAndPutsThemBack) {
  const auto x = random_leaf({4, 8}, 2);
  auto first = at::make_generator<at::CPUGeneratorImpl>(0);
  auto second = at::make_generator<at::CPUGeneratorImpl>(0);
  const auto f = [&](const Tensor& t, at::Generator third) {
    auto y = t * torch::rand({4, 8}, first) + torch::empty({8}).normal_(0, 1, second);
    y = y * at::bernoulli(t.detach().sigmoid(), third) * torch::randn({1}, first);
    return torch::dropout(y, 0.2, true).exp() * torch::randperm(8, second);
  };
  const auto model = [&](const Caller& call) {
    auto third = at::make_generator<at::CPUGeneratorImpl>(7);
    first.set_current_seed(5);
    second.set_current_seed(6);
    auto y = call(f, x, third);
    y = y + torch::rand({8}, third) + torch::rand({8}, first);
    return call(f, y.tanh(), second);
  };
  expect_exact(model, {{x}});
  for (const auto& options : testing::all_options()) {
    SCOPED_TRACE(options.name);
    const auto y = checkpoint(options, f, x, second);
    torch::rand({5}, first);
    const Tensors states = {first.get_state(), second.get_state()};
    y.sum().backward();
    testing::expect_same_bytes({first.get_state(), second.get_state()}, states);
  }
}

TEST(CheckpointOfGenerators, ReplaysOneThatTheFunctionMakes) {
  const auto x = random_leaf({4, 8}, 2);
  expect_exact(
      [&](const Caller& call) {
        return call(
            [](const Tensor& t) {
              auto generator = at::make_generator<at::CPUGeneratorImpl>(4);
              return (t * torch::rand({8}, generator)).exp() * torch::rand({8}, generator);
            },
            x);
      },
      {{x}});
}

// B12
TEST(CheckpointOfGenerators, ReplaysThoseOfEveryDevice) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "there is no CUDA device";
  const auto x = random_leaf({4, 8}, 2);
  expect_exact(
      [&](const Caller& call) {
        torch::cuda::manual_seed_all(3);
        const auto y = call(
            [](const Tensor& t) {
              const auto on_device = torch::dropout(t.cuda(), 0.5, true).sin();
              return torch::dropout(on_device.cpu(), 0.5, true).exp() + torch::randn({8});
            },
            x);
        return y + torch::rand({8}, torch::kCUDA).cpu();
      },
      {{x}});
}

}  // namespace
}  // namespace reprise
