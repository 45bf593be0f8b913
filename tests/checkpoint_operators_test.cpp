// SPDX-License-Identifier: Apache-2.0
/// Operators and tensors that are harder to compute again than others. The traps are those of this
/// library's design.
#include "reprise/checkpoint.h"

#include "tests/checkpoint_testing.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/InferenceMode.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <tuple>
#include <vector>

namespace reprise {
namespace {

/// An operator that is a region itself.
torch::Tensor dropped(const torch::Tensor& tensor) {
  return checkpoint(
      [](const torch::Tensor& t) { return torch::dropout(t.exp(), 0.5, true).sin().exp(); },
      tensor);
}

TORCH_LIBRARY(reprise_operators_test, library) {
  library.def("dropped", &dropped);
}

using testing::Caller;
using testing::expect_exact;
using testing::random_leaf;
using testing::random_tensor;
using torch::Tensor;

TEST(CheckpointOperators, ThatAreRegionsThemselvesAreExactInsideAndOutsideOfRegions) {
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("reprise_operators_test::dropped", "")
                      .typed<Tensor(const Tensor&)>();
  const auto x = random_leaf({4, 8});
  expect_exact(
      [&](const Caller& call) {
        const auto f = [&](const Tensor& t) {
          if (!call.is_plain()) return op.call(t).tanh();
          return torch::dropout(t.exp(), 0.5, true).sin().exp().tanh();
        };
        return call([f](const Tensor& t) { return f(f(t)) * torch::rand_like(t); }, f(x));
      },
      {{x}}, testing::options_without_policy());
}

// Trap 10
TEST(CheckpointInference, TensorsCanBeReadWhereAPlainCallCanReadThem) {
  Tensor constant;
  {
    const c10::InferenceMode inference;
    constant = torch::ones({8}).mul_(3);
  }
  const auto x = random_leaf({4, 8});
  expect_exact(
      [&](const Caller& call) {
        return call([&](const Tensor& t) { return ((t + constant).exp() - constant).sin(); }, x);
      },
      {{x}});
  expect_exact(
      [&](const Caller& call) {
        return call([](const Tensor& t, const Tensor& c) { return ((t + c).exp() - c).sin(); }, x,
                    constant);
      },
      {{x}});
}

TEST(CheckpointInference, RunsTheFunctionPlainly) {
  const c10::InferenceMode inference;
  torch::nn::BatchNorm1d norm(8);
  const auto x = random_tensor({4, 8});
  const auto y = checkpoint([&](const Tensor& t) { return norm(t); }, x);
  EXPECT_TRUE(y.is_inference());
  EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), 1);
}

// Trap 10: kernels that fill what autograd has saved already; trap 3: in-place parts of operators.
TEST(CheckpointOperators, ThatSaveBeforeTheyComputeAreExact) {
  const auto x = random_leaf({2, 4, 8});
  const std::vector<std::function<Tensor(const Tensor&)>> last_operators = {
      [](const Tensor& t) { return torch::rrelu(t, 0.1, 0.3, true); },
      [](Tensor t) { return torch::rrelu_(t = t * 2, 0.1, 0.3, true); },
      [](Tensor t) { return torch::dropout_(t = t * 2, 0.5, true); },
      [](const Tensor& t) { return std::get<0>(torch::max_pool1d_with_indices(t, {2})); },
      [](const Tensor& t) { return std::get<0>(t.sort(1)); },
      [](const Tensor& t) { return std::get<0>(t.cummax(1)); },
      [](const Tensor& t) { return torch::log_sigmoid(t); },
      [](const Tensor& t) { return t.cumprod(1); },
      [](const Tensor& t) { return std::get<0>(at::native_dropout(t, 0.5, true)); },
  };
  for (std::size_t i = 0; i < last_operators.size(); ++i) {
    SCOPED_TRACE(i);
    expect_exact([&](const Caller& call) { return call(last_operators[i], x); }, {{x}});
    expect_exact(
        [&](const Caller& call) {
          return call([&](const Tensor& t) { return last_operators[i](t.exp()).sin(); }, x);
        },
        {{x}});
  }
}

// Trap 2: bytes that the function writes itself, the same in both runs.
TEST(CheckpointOperators, MayBeMixedWithRawWrites) {
  const auto x = random_leaf({4, 8});
  const auto f = [](const Tensor& t) {
    auto table = torch::empty({8});
    auto y = t.exp();
    for (int i = 0; i < 8; ++i) table.data_ptr<float>()[i] = 0.25F * static_cast<float>(i);
    y = (y + table) * table.sin();
    return torch::from_blob(table.data_ptr(), {8}).cos() * y.sin();
  };
  expect_exact([&](const Caller& call) { return call(f, x); }, {{x}});
}

// Trap 9
TEST(CheckpointOfALongChain, IsExactAndOverflowsNoStack) {
  const auto x = random_leaf({2});
  const auto chain = [](const Tensor& t) {
    auto y = t;
    for (int i = 0; i < 100'000; ++i) y = y.sin();
    return y;
  };
  expect_exact([&](const Caller& call) { return call(chain, x); }, {{x}}, {CheckpointOptions{}});
}

TEST(CheckpointOfALongChain, CanBeDroppedWithoutBackward) {
  auto y = random_leaf({2});
  for (int i = 0; i < 30'000; ++i) y = checkpoint([](const Tensor& t) { return t.sin(); }, y);
  EXPECT_TRUE(y.requires_grad());
  y.reset();
}

}  // namespace
}  // namespace reprise
