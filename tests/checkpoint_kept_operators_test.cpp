// SPDX-License-Identifier: Apache-2.0
/// The ready-made policies keep what they name: every matrix product, convolution and attention.
#include "reprise/save_policy.h"
#include "tests/checkpoint_testing.h"

#include <torch/torch.h>

#include <cstring>
#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace reprise {
namespace {

using testing::Caller;
using testing::expect_exact;
using testing::random_leaf;
using testing::random_tensor;
using torch::Tensor;

/// Overwrites the bytes of `tensor` behind everybody's back: an operator that reads it again
/// computes something else.
void poison(const Tensor& tensor) {
  std::memset(tensor.detach().mutable_data_ptr(), 0, tensor.nbytes());
}

struct KeptCase {
  std::string name;
  SavePolicy policy;
  at::DimVector input_sizes;
  at::DimVector weight_sizes;
  // Its last operator does not save its own result, which the tests change in place.
  std::function<Tensor(const Tensor& input, const Tensor& weight)> function;
};

void PrintTo(const KeptCase& kept, std::ostream* out) {
  *out << kept.name;
}

std::vector<KeptCase> matmul_cases() {
  const auto matmuls = SavePolicy::matmuls();
  const auto bias = random_tensor({5}, 3);
  return {
      {"Mm", matmuls, {4, 3}, {3, 5}, [](auto& x, auto& w) { return x.mm(w); }},
      {"Addmm", matmuls, {4, 3}, {3, 5}, [=](auto& x, auto& w) { return at::addmm(bias, x, w); }},
      {"Bmm", matmuls, {2, 4, 3}, {2, 3, 5}, [](auto& x, auto& w) { return x.bmm(w); }},
      {"Baddbmm",
       matmuls,
       {2, 4, 3},
       {2, 3, 5},
       [=](auto& x, auto& w) { return at::baddbmm(bias, x, w); }},
      {"Mv", matmuls, {4, 3}, {3}, [](auto& x, auto& w) { return x.mv(w); }},
      {"Addmv", matmuls, {5, 3}, {3}, [=](auto& x, auto& w) { return at::addmv(bias, x, w); }},
      {"Dot", matmuls, {3}, {3}, [](auto& x, auto& w) { return x.dot(w); }},
      {"Matmul", matmuls, {2, 4, 3}, {3, 5}, [](auto& x, auto& w) { return x.matmul(w); }},
      {"MatmulOfFour",
       matmuls,
       {2, 2, 4, 3},
       {2, 2, 3, 5},
       [](auto& x, auto& w) { return x.matmul(w); }},
      {"Einsum",
       matmuls,
       {2, 4, 3},
       {3, 5},
       [](auto& x, auto& w) { return torch::einsum("bij,jk->bik", {x, w}); }},
      {"Linear", matmuls, {4, 3}, {5, 3}, [=](auto& x, auto& w) { return at::linear(x, w, bias); }},
      {"LinearOfThreeDimensions",
       matmuls,
       {2, 4, 3},
       {5, 3},
       [=](auto& x, auto& w) { return at::linear(x, w, bias); }},
      {"LinearWithoutBias",
       matmuls,
       {2, 4, 3},
       {5, 3},
       [](auto& x, auto& w) { return at::linear(x, w); }},
      {"NamedWithOverload",
       SavePolicy({"aten::mul.Tensor"}),
       {4, 3},
       {4, 3},
       [](auto& x, auto& w) { return x * w; }},
      {"NamedWithoutOverload",
       SavePolicy({"aten::mul", "aten::exp"}),
       {4, 3},
       {4, 3},
       [](auto& x, auto& w) { return (x * w).exp() * 1; }},
  };
}

std::vector<KeptCase> convolution_and_attention_cases() {
  const auto convolutions = SavePolicy::convolutions();
  const auto attention = SavePolicy::attention();
  const auto both = SavePolicy::compute_heavy();
  return {
      {"Conv1d",
       convolutions,
       {2, 3, 6},
       {4, 3, 3},
       [](auto& x, auto& w) { return at::conv1d(x, w); }},
      {"Conv2d",
       convolutions,
       {2, 3, 6, 6},
       {4, 3, 3, 3},
       [](auto& x, auto& w) { return at::conv2d(x, w); }},
      {"Conv3d",
       convolutions,
       {1, 2, 4, 4, 4},
       {2, 2, 3, 3, 3},
       [](auto& x, auto& w) { return at::conv3d(x, w); }},
      {"ConvOfGroups",
       convolutions,
       {2, 4, 6},
       {4, 2, 3},
       [](auto& x, auto& w) { return at::conv1d(x, w, {}, 1, 1, 1, 2); }},
      {"TransposedConv2d",
       convolutions,
       {2, 3, 6, 6},
       {3, 4, 3, 3},
       [](auto& x, auto& w) { return at::conv_transpose2d(x, w); }},
      {"Attention",
       attention,
       {1, 2, 4, 8},
       {1, 2, 4, 8},
       [](auto& q, auto& v) { return at::scaled_dot_product_attention(q, q, v) * 1; }},
      {"CausalAttention",
       attention,
       {1, 2, 4, 8},
       {1, 2, 4, 8},
       [](auto& q, auto& v) {
         return at::scaled_dot_product_attention(q, q, v, {}, 0, /*is_causal=*/true) * 1;
       }},
      {"HeavyMatmul", both, {4, 3}, {3, 5}, [](auto& x, auto& w) { return x.mm(w); }},
      {"HeavyConv", both, {2, 3, 6}, {4, 3, 3}, [](auto& x, auto& w) { return at::conv1d(x, w); }},
      {"HeavyAttention",
       both,
       {1, 2, 4, 8},
       {1, 2, 4, 8},
       [](auto& q, auto& v) { return at::scaled_dot_product_attention(q, q, v) * 1; }},
  };
}

std::vector<KeptCase> kept_cases() {
  auto all = matmul_cases();
  for (auto& kept : convolution_and_attention_cases()) all.push_back(std::move(kept));
  return all;
}

class SavePolicyOn : public ::testing::TestWithParam<KeptCase> {
 protected:
  /// The gradient of a factor after the kept operator, with `weight_` overwritten before backward.
  /// It depends on the operator's result and on nothing else.
  Tensor gradient_of_factor(const Caller& call) const {
    const auto weight = weight_.clone().requires_grad_();
    const auto factor = torch::full({1}, 0.5F).requires_grad_();
    const auto f = [&, function = GetParam().function](const Tensor& x) {
      return (function(x, weight) * factor).exp();
    };
    const auto y = call(f, input_);
    poison(weight);
    return torch::autograd::grad({y.sum()}, {factor})[0];
  }

  Tensor input_ = random_leaf(GetParam().input_sizes, 1);
  Tensor weight_ = random_tensor(GetParam().weight_sizes, 2);
};

TEST_P(SavePolicyOn, DoesNotRunItAgain) {
  const CheckpointOptions off = {.verification = Verification::kOff};
  auto kept = off;
  kept.save_policy = GetParam().policy;
  const auto expected = gradient_of_factor(Caller());
  EXPECT_TRUE(testing::is_same_bytes(gradient_of_factor(Caller(kept)), expected));
  // The test can see it: without the policy it runs again.
  EXPECT_FALSE(testing::is_same_bytes(gradient_of_factor(Caller(off)), expected));
}

TEST_P(SavePolicyOn, IsExact) {
  const auto weight = weight_.clone().requires_grad_();
  const auto& function = GetParam().function;
  const auto f = [&](const Tensor& x) {
    return function(torch::dropout(x.sin(), 0.2, true), weight * 1).exp().sum() * x;
  };
  const auto g = [&](const Tensor& x) {  // the kept result is changed in place
    auto y = function(x, weight).mul_(2);
    y.reshape({-1}).narrow(0, 0, 1).zero_();
    return y.relu_().sum() * x.exp();
  };
  std::vector<CheckpointOptions> options;
  for (const auto verification : {Verification::kMetadata, Verification::kValues}) {
    for (const bool early_stop : {true, false}) {
      options.push_back({.save_policy = GetParam().policy,
                         .verification = verification,
                         .early_stop = early_stop});
    }
  }
  const testing::Watched watched = {{input_, weight}};
  expect_exact([&](const Caller& call) { return call(f, call(f, input_)); }, watched, options);
  expect_exact([&](const Caller& call) { return call(g, input_); }, watched, options);
}

INSTANTIATE_TEST_SUITE_P(Operators, SavePolicyOn, ::testing::ValuesIn(kept_cases()),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace reprise
