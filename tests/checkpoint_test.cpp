// SPDX-License-Identifier: Apache-2.0
#include "reprise/checkpoint.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cstring>
#include <functional>
#include <memory>

#include "tests/testing.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;
using torch::Tensor;
using Function = std::function<Tensor(const Tensor&)>;

/// Gradients of the input and of `parameters`, then the next random number.
std::vector<Tensor> gradients(const Function& function, const Tensor& input,
                              const std::vector<Tensor>& parameters, bool use_checkpointing) {
  torch::manual_seed(7);
  auto x = input.detach().requires_grad_();
  std::vector<Tensor> wanted = {x};
  wanted.insert(wanted.end(), parameters.begin(), parameters.end());
  auto y = use_checkpointing ? checkpoint(function, x) : function(x);
  auto result =
      torch::autograd::grad({(y * y).sum()}, wanted, {}, false, false, /*allow_unused=*/true);
  result.push_back(torch::rand({3}));
  return result;
}

void expect_same(const Function& function, const Tensor& input,
                 const std::vector<Tensor>& parameters = {}) {
  const auto plain = gradients(function, input, parameters, false);
  const auto recomputed = gradients(function, input, parameters, true);
  for (std::size_t i = 0; i < plain.size(); ++i)
    EXPECT_TRUE(testing::is_same_bytes(plain[i], recomputed[i])) << i;
}

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() { torch::manual_seed(1); }

  torch::nn::Sequential model_{torch::nn::Linear(8, 16), torch::nn::GELU(), torch::nn::Dropout(0.5),
                               torch::nn::Linear(16, 8),
                               torch::nn::LayerNorm(torch::nn::LayerNormOptions({8}))};
  Tensor input_ = torch::randn({4, 8});
  Function forward_ = [this](const Tensor& x) {
    return model_->forward(x);
  };
};

TEST_F(CheckpointTest, GivesTheGradientsAndTheRandomStreamOfAPlainPass) {
  expect_same(forward_, input_, model_->parameters());
}

TEST_F(CheckpointTest, CanBeNested) {
  const Function inner = [this](const Tensor& x) {
    return checkpoint(forward_, x * 2);
  };
  const Function outer = [&](const Tensor& x) {
    return checkpoint(inner, checkpoint(inner, x).sin()).cos();
  };
  const Function plain_inner = [this](const Tensor& x) {
    return model_->forward(x * 2);
  };
  const Function plain = [&](const Tensor& x) {
    return plain_inner(plain_inner(x).sin()).cos();
  };
  const auto expected = gradients(plain, input_, model_->parameters(), false);
  const auto actual = gradients(outer, input_, model_->parameters(), true);
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(testing::is_same_bytes(expected[i], actual[i])) << i;
}

TEST_F(CheckpointTest, TrainsParametersWhenTheInputNeedsNoGradient) {
  auto y = checkpoint(forward_, input_);
  EXPECT_TRUE(y.requires_grad());
  y.sum().backward();
  for (const auto& parameter : model_->parameters()) EXPECT_TRUE(parameter.grad().defined());
}

TEST_F(CheckpointTest, RunsTheFunctionPlainlyWithoutGradients) {
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(checkpoint(forward_, input_).requires_grad());
}

TEST_F(CheckpointTest, KeepsDetachedOutputsDetached) {
  auto x = input_.requires_grad_();
  auto outputs = checkpoint(
      [](const std::vector<Tensor>& in) {
        auto y = in[0].exp();
        return std::vector<Tensor>{y, y.detach(), Tensor()};
      },
      std::vector<Tensor>{x, Tensor()});
  EXPECT_TRUE(outputs[0].requires_grad());
  EXPECT_FALSE(outputs[1].requires_grad());
  EXPECT_FALSE(outputs[2].defined());
  EXPECT_TRUE(torch::equal(torch::autograd::grad({outputs[0].sum()}, {x})[0], x.exp()));
}

TEST_F(CheckpointTest, RunsTheFunctionOncePerBackwardAndStopsEarly) {
  int runs = 0;
  int ends = 0;
  auto x = input_.requires_grad_();
  auto y = checkpoint(
      [&](const Tensor& z) {
        ++runs;
        auto result = z.exp().sin().sum();  // sum saves nothing
        ++ends;
        return result;
      },
      x);
  EXPECT_EQ(runs, 1);
  y.backward({}, /*retain_graph=*/true);
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(ends, 1);  // the recomputation ended at sin's input
  auto first = x.grad().clone();
  y.backward();
  EXPECT_EQ(runs, 3);
  EXPECT_TRUE(torch::equal(x.grad(), first * 2));
}

TEST_F(CheckpointTest, SupportsDoubleBackward) {
  const auto second_order = [&](bool use_checkpointing) {
    auto x = input_.detach().requires_grad_();
    const Function f = [](const Tensor& z) {
      return (z.sin() * z.exp()).tanh();
    };
    auto y = use_checkpointing ? checkpoint(f, x) : f(x);
    auto first = torch::autograd::grad({y.sum()}, {x}, {}, true, true)[0];
    return torch::autograd::grad({first.pow(2).sum()}, {x})[0];
  };
  EXPECT_TRUE(testing::is_same_bytes(second_order(false), second_order(true)));
}

TEST_F(CheckpointTest, LetsTheFunctionDifferentiateInside) {
  const Function f = [](const Tensor& z) {
    auto leaf = z.detach().requires_grad_();
    auto slope = torch::autograd::grad({leaf.pow(3).sum()}, {leaf}, {}, true, true)[0];
    return slope * z;
  };
  expect_same(f, input_);
}

TEST_F(CheckpointTest, RefusesAnInputThatWasModified) {
  auto x = input_.clone().requires_grad_();
  auto z = x * 1;
  auto y = checkpoint([](const Tensor& t) { return t.exp().sin(); }, z);
  z.detach().add_(1);
  EXPECT_THAT(testing::error_of([&] { y.sum().backward(); }),
              HasSubstr("modified by an inplace operation"));
}

TEST_F(CheckpointTest, RefusesAParameterThatWasModified) {
  auto y = checkpoint(forward_, input_.requires_grad_());
  {
    const torch::NoGradGuard no_grad;
    model_->parameters()[0].add_(1);
  }
  EXPECT_THAT(testing::error_of([&] { y.sum().backward(); }),
              HasSubstr("modified by an inplace operation"));
}

TEST_F(CheckpointTest, RefusesASavedTensorModifiedInsideTheFunction) {
  auto x = input_.clone().requires_grad_();
  auto y = checkpoint([](const Tensor& t) { return t.exp().add_(1).mul(t); }, x);
  EXPECT_THAT(testing::error_of([&] { y.sum().backward(); }),
              HasSubstr("modified by an inplace operation"));
}

TEST_F(CheckpointTest, ComputesInPlaceActivationsAsPlain) {
  expect_same([](const Tensor& t) { return t.mul(2).relu_().add(1).tanh_(); }, input_);
}

TEST_F(CheckpointTest, RefusesAFunctionThatDoesSomethingElseTheSecondTime) {
  int runs = 0;
  auto y =
      checkpoint([&](const Tensor& t) { return ++runs == 1 ? t.exp() : t.narrow(0, 0, 1).exp(); },
                 input_.requires_grad_());
  EXPECT_THAT(testing::error_of([&] { y.sum().backward(); }), HasSubstr("in both runs"));
  runs = 0;
  y = checkpoint([&](const Tensor& t) { return ++runs == 1 ? t.exp() : t + 1; }, input_);
  EXPECT_THAT(testing::error_of([&] { y.sum().backward(); }),
              HasSubstr("saved 0 tensors, forward saved 1"));
}

TEST_F(CheckpointTest, CanBeRetriedAfterAnException) {
  int runs = 0;
  auto x = input_.clone().requires_grad_();
  auto y = checkpoint(
      [&](const Tensor& t) {
        if (++runs == 2) throw std::runtime_error("out of luck");
        return torch::dropout(t, 0.5, true).exp();
      },
      x);
  torch::manual_seed(3);
  const auto next = torch::rand({1});
  torch::manual_seed(3);
  EXPECT_THAT(testing::error_of([&] { y.sum().backward({}, true); }), HasSubstr("out of luck"));
  EXPECT_TRUE(torch::equal(torch::rand({1}), next));
  y.sum().backward();
  EXPECT_TRUE(x.grad().defined());
}

TEST_F(CheckpointTest, StopsAFunctionWhoseDestructorsRunOperators) {
  struct Cleanup {
    Tensor counter;
    ~Cleanup() {
      counter.add_(1);
      (counter.detach().requires_grad_().exp().sin().cos() * 2).tanh();  // saves tensors too
    }
  };
  const auto counter = torch::zeros({1});
  const auto function = [&](const Tensor& t) {
    const Cleanup cleanup{counter};
    return t.exp().sum();  // the recomputation is stopped here, by exp
  };
  expect_same(function, input_);
  EXPECT_EQ(counter.item<float>(), 2.0F);  // plain and forward: once each
}

TEST_F(CheckpointTest, RecomputesWhatASparseTensorIsSavedFor) {
  const auto sparse = torch::eye(4).to_sparse();
  expect_same([&](const Tensor& t) { return torch::mm(sparse, t).exp(); }, input_);
}

TEST_F(CheckpointTest, DoesNotUseWhatAFailedOperatorLeftUnfilled) {
  // A function whose second run fails after it has recomputed exp; the third is whole.
  int runs = 0;
  auto x = input_.clone().requires_grad_();
  auto y = checkpoint(
      [&](const Tensor& t) {
        auto a = t.exp();
        if (++runs == 2) {
          // As a kernel would that stops half way through the tensor that it has saved.
          std::memset(a.mutable_data_ptr(), 0, a.nbytes());
          throw std::runtime_error("out of luck");
        }
        return a.sin();
      },
      x);
  EXPECT_THAT(testing::error_of([&] { y.sum().backward({}, true); }), HasSubstr("out of luck"));
  y.sum().backward();
  EXPECT_TRUE(torch::allclose(x.grad(), x.exp() * x.exp().cos()));
}

TEST_F(CheckpointTest, ReleasesTheFunctionAfterBackwardAndWithoutBackward) {
  for (bool runs_backward : {true, false}) {
    auto token = std::make_shared<int>(0);
    const std::weak_ptr<int> released = token;
    auto y =
        checkpoint([token](const Tensor& t) { return t.exp().sin(); }, input_.requires_grad_());
    token.reset();
    EXPECT_FALSE(released.expired());
    if (runs_backward) {
      y.sum().backward();
    } else {
      y = Tensor();
    }
    EXPECT_TRUE(released.expired()) << runs_backward;
  }
}

TEST_F(CheckpointTest, KeepsNothingButItsInputs) {
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages;
  auto y = checkpoint(
      [&](const Tensor& t) {
        auto a = t.exp();
        auto b = a.sin();
        if (!in_recompute()) {
          storages.push_back(a.storage().getWeakStorageImpl());
          storages.push_back(b.storage().getWeakStorageImpl());
        }
        return b.tanh();
      },
      input_.requires_grad_());
  for (const auto& storage : storages) EXPECT_TRUE(storage.expired());
  y.sum().backward();
}

TEST_F(CheckpointTest, TellsTheFunctionThatItIsRecomputing) {
  std::vector<bool> seen;
  auto y = checkpoint(
      [&](const Tensor& t) {
        seen.push_back(in_recompute());
        return t.exp();
      },
      input_.requires_grad_());
  y.sum().backward();
  EXPECT_EQ(seen, (std::vector<bool>{false, true}));
  EXPECT_FALSE(in_recompute());
}

TEST_F(CheckpointTest, RecomputesUnderTheAutocastOfForward) {
  const auto run = [&](bool use_checkpointing) {
    auto x = input_.detach().requires_grad_();
    Tensor y;
    at::autocast::set_autocast_enabled(at::kCPU, true);
    torch::manual_seed(5);
    y = use_checkpointing ? checkpoint(forward_, x) : forward_(x);
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    std::vector<Tensor> wanted = model_->parameters();
    wanted.push_back(x);
    return torch::autograd::grad({y.to(torch::kFloat).pow(2).sum()}, wanted);
  };
  const auto plain = run(false);
  const auto recomputed = run(true);
  for (std::size_t i = 0; i < plain.size(); ++i)
    EXPECT_TRUE(testing::is_same_bytes(plain[i], recomputed[i])) << i;
}

TEST_F(CheckpointTest, FillsBuffersThatAnOperatorSavesBeforeItsKernelRuns) {
  expect_same([](const Tensor& t) { return torch::rrelu(t, 0.1, 0.3, /*training=*/true); }, input_);
}

TEST_F(CheckpointTest, WorksWhenAnEarlierBackwardUsedThePlainEngine) {
  auto x = input_.clone().requires_grad_();
  x.exp().sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), x.exp()));
  expect_same(forward_, input_, model_->parameters());
}

TEST_F(CheckpointTest, RunsThroughALongStackOfRegions) {
  auto x = input_.clone().requires_grad_();
  Tensor y = x;
  for (int i = 0; i < 2000; ++i) y = checkpoint([](const Tensor& t) { return t.sin(); }, y);
  y.sum().backward();
  EXPECT_TRUE(x.grad().isfinite().all().item<bool>());
}

}  // namespace
}  // namespace reprise
