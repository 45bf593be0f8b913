// SPDX-License-Identifier: Apache-2.0
/// What models do that a tape could get wrong, each under ever smaller budgets.
#include "reprise/checkpoint.h"

#include "tests/remat_testing.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace reprise {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::random_leaf;
using testing::random_tensor;
using testing::Tensors;
using testing::TrainingStep;
using torch::Tensor;

constexpr std::int64_t kWidth = 64;

/// Calls `layer` on a wide tensor several times in a row, so that there is something to let go of.
TrainingStep repeated(const std::function<Tensor(const Tensor&)>& layer, Tensors more_leaves = {},
                      Tensors buffers = {}) {
  const auto x = random_leaf({kWidth, kWidth}, 2);
  more_leaves.push_back(x);
  return {.loss =
              [=] {
                auto y = x * 2;
                for (int i = 0; i < 6; ++i) y = layer(y).sin();
                return y.square().mean();
              },
          .leaves = more_leaves,
          .buffers = std::move(buffers)};
}

class RematCases : public testing::SeededTest {
 protected:
  static void expect_exact(const TrainingStep& step) {
    EXPECT_LT(testing::expect_exact_within_budgets(step, 3), 1.0);
  }

  Tensor weight = random_leaf({kWidth, kWidth});
};

TEST_F(RematCases, ViewsOfAllKinds) {
  expect_exact(repeated([&](const Tensor& t) {
    const auto parts = t.view({8, 8, kWidth}).transpose(0, 1).chunk(2, 2);
    return torch::cat({parts[1].exp(), parts[0].cos()}, 2).reshape({kWidth, kWidth}).t() / 3;
  }));
}

TEST_F(RematCases, ExpandedAndSelectedTensors) {
  expect_exact(repeated([&](const Tensor& t) {
    return t * t.select(0, 3).unsqueeze(0).expand({kWidth, kWidth}) + t.narrow(0, 0, 1);
  }));
}

TEST_F(RematCases, ComplexTensorsAndTheirConjugates) {
  expect_exact(repeated([&](const Tensor& t) {
    const auto spectrum = torch::fft_rfft(t);
    return torch::fft_irfft(spectrum * spectrum.conj(), kWidth) / 100;
  }));
}

TEST_F(RematCases, ListsOfTensors) {
  expect_exact(repeated(
      [&](const Tensor& t) {
        const auto stacked = torch::stack({t, t.sin(), t.cos()});
        return torch::einsum("aij,jk->ik", {stacked, weight}) / 50;
      },
      {weight}));
}

TEST_F(RematCases, OptionalAndIndexArguments) {
  const auto index = torch::randperm(kWidth);
  expect_exact(repeated([&, index](const Tensor& t) {
    return t.index({index}) + t.index({torch::indexing::Slice(), index}).clamp(-1.0) +
           torch::where(t > 0, t, t * 0.1);
  }));
}

TEST_F(RematCases, InPlaceChanges) {
  expect_exact(repeated(
      [&](const Tensor& t) {
        auto y = t.mm(weight).div_(8);
        y.add_(t).relu_();
        auto z = y * 2;
        z.add_(1).sub_(y).div_(2);
        return z;
      },
      {weight}));
}

TEST_F(RematCases, InPlaceChangesOfPartsAndOfWhatIsReadBefore) {
  expect_exact(repeated([&](const Tensor& t) {
    auto y = t.exp() / 10;
    const auto earlier = y * 3;
    y.narrow(0, 0, 8).copy_(t.narrow(0, 8, 8));
    y.index_put_({torch::tensor({1, 5})}, t.narrow(0, 0, 2));
    return earlier + y;
  }));
}

TEST_F(RematCases, TensorsThatAreFilledByHand) {
  expect_exact(repeated([&](const Tensor& t) {
    auto mask = torch::empty({kWidth, kWidth});
    auto* const data = mask.mutable_data_ptr<float>();
    for (std::int64_t i = 0; i < mask.numel(); ++i) data[i] = i % 3 == 0 ? 0.0F : 1.0F;
    return t * mask * torch::tensor({1.5F});
  }));
}

TEST_F(RematCases, TensorsThatAreFilledPieceByPiece) {
  expect_exact(repeated([&](const Tensor& t) {
    auto y = torch::empty({kWidth, kWidth});
    const torch::NoGradGuard no_grad;
    y.narrow(0, 0, 32).copy_(t.narrow(0, 32, 32));
    y.narrow(0, 32, 32).fill_(0.5);
    const at::AutoGradMode gradients(true);
    return t * y;
  }));
}

TEST_F(RematCases, ResultsInGivenMemory) {
  expect_exact(repeated(
      [&](const Tensor& t) {
        auto out = torch::empty({kWidth, kWidth});
        {
          const torch::NoGradGuard no_grad;
          torch::mm_out(out, t, weight);
        }
        return t * out.sigmoid();
      },
      {weight}));
}

TEST_F(RematCases, GeneratorsOfTheUser) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(5);
  auto step = repeated([=](const Tensor& t) {
    return t * torch::rand({kWidth, kWidth}, generator) + torch::randn_like(t) * t;
  });
  const auto loss = step.loss;
  step.loss = [=]() mutable {
    generator.set_current_seed(5);
    return loss();
  };
  expect_exact(step);
}

TEST_F(RematCases, BuffersThatAreReadAndThenChanged) {
  const auto running = torch::zeros({kWidth});
  expect_exact(repeated(
      [=](const Tensor& t) {
        const auto y = t - running;
        {
          const torch::NoGradGuard no_grad;
          running.mul_(0.9).add_(t.mean(0), 0.1);
        }
        return y * (running + 1).rsqrt();
      },
      {}, {running}));
}

struct Cube : torch::autograd::Function<Cube> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& t) {
    const auto square = t * t;
    context->save_for_backward({t, square});
    return square * t;
  }
  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    const auto saved = context->get_saved_variables();
    return {gradients[0] * 3 * saved[1] + saved[0] * 0};
  }
};

TEST_F(RematCases, FunctionsOfTheUser) {
  expect_exact(repeated([](const Tensor& t) { return Cube::apply(t) / 2; }));
}

TEST_F(RematCases, Autocast) {
  expect_exact(repeated(
      [&](const Tensor& t) {
        at::autocast::set_autocast_enabled(at::kCPU, true);
        const auto y = torch::linear(t, weight).relu() / 8;
        at::autocast::set_autocast_enabled(at::kCPU, false);
        at::autocast::clear_cache();
        return y.to(torch::kFloat) + torch::mm(t, weight) / 8;
      },
      {weight}));
}

TEST_F(RematCases, AttentionThatIsOneOperator) {
  expect_exact(repeated([](const Tensor& t) {
    const auto q = t.view({2, 4, 8, kWidth});
    return at::scaled_dot_product_attention(q, q * 2, q, {}, 0.0, true).view({kWidth, kWidth});
  }));
}

TEST_F(RematCases, RegionsInside) {
  expect_exact(repeated(
      [&](const Tensor& t) {
        return checkpoint([&](const Tensor& u) { return u.mm(weight).tanh().mm(weight) / 8; }, t) +
               t;
      },
      {weight}));
}

TEST_F(RematCases, GradientsTakenInForward) {
  expect_exact(repeated(
      [&](const Tensor& t) {
        const auto y = t.mm(weight).tanh();
        const auto slope =
            torch::autograd::grad({y.sum()}, {t}, {}, true, /*create_graph=*/true)[0];
        return y + slope * 0.1;
      },
      {weight}));
}

TEST_F(RematCases, OtherNumberOfThreads) {
  auto step = repeated([&](const Tensor& t) { return t.mm(weight) / 8; }, {weight});
  const auto expected = testing::outcome_of(step);
  Rematerializer rematerializer({.budget_bytes = memory_stats().current_bytes + 200'000});
  torch::manual_seed(7);
  const auto loss = rematerializer.forward(step.loss);
  at::set_num_threads(2);
  loss.backward();
  at::set_num_threads(1);
  EXPECT_TRUE(testing::is_same_bytes(step.leaves[0].grad(), expected[1]));
  step.leaves[0].mutable_grad() = Tensor();
  step.leaves[1].mutable_grad() = Tensor();
}

/// A budget under which a step of `repeated` computes something again.
class RematTight : public RematCases {
 protected:
  RematTight()
      : step(repeated([this](const Tensor& t) { return t.mm(weight).tanh().mm(weight) / 8; },
                      {weight})) {
    expected = testing::outcome_of(step);
    plain_bytes = testing::plain_bytes_of(step);
    budget = memory_stats().current_bytes + plain_bytes * 6 / 10;
  }

  Tensors gradients(Rematerializer* rematerializer, bool create_graph = false) {
    torch::manual_seed(7);
    const auto loss = rematerializer == nullptr ? step.loss() : rematerializer->forward(step.loss);
    return torch::autograd::grad({loss}, step.leaves, {}, create_graph, create_graph);
  }

  TrainingStep step;
  Tensors expected;
  std::int64_t plain_bytes = 0;
  std::int64_t budget = 0;
};

TEST_F(RematTight, GivesGradientsWithoutAccumulation) {
  const auto plain = gradients(nullptr);
  Rematerializer rematerializer({.budget_bytes = budget});
  for (int i = 0; i < 3; ++i) testing::expect_same_bytes(gradients(&rematerializer), plain);
  EXPECT_GT(rematerializer.stats().replayed_operations, 0);
}

TEST_F(RematTight, RunsBackwardSeveralTimes) {
  Rematerializer rematerializer({.budget_bytes = budget});
  for (int i = 0; i < 3; ++i) {
    const auto loss = rematerializer.forward(step.loss);
    const auto first = torch::autograd::grad({loss}, step.leaves, {}, /*retain_graph=*/true);
    const auto second = torch::autograd::grad({loss}, step.leaves, {}, /*retain_graph=*/true);
    const auto last = torch::autograd::grad({loss}, step.leaves);
    testing::expect_same_bytes(first, last);
    testing::expect_same_bytes(second, last);
  }
  EXPECT_GT(rematerializer.stats().replayed_operations, 0);
}

TEST_F(RematTight, GivesSecondDerivatives) {
  const auto second_of = [&](Rematerializer* rematerializer) {
    const auto first = gradients(rematerializer, /*create_graph=*/true);
    return torch::autograd::grad({first[0].square().sum()}, step.leaves);
  };
  const auto plain = second_of(nullptr);
  Rematerializer rematerializer({.budget_bytes = budget + plain_bytes * 4});
  for (int i = 0; i < 2; ++i) testing::expect_same_bytes(second_of(&rematerializer), plain);
}

TEST_F(RematTight, RunsBackwardInAnotherThreadOrNever) {
  const auto plain = gradients(nullptr);
  Rematerializer rematerializer({.budget_bytes = budget});
  for (int i = 0; i < 2; ++i) {
    Tensors result;
    const auto loss = rematerializer.forward(step.loss);
    std::thread([&] { result = torch::autograd::grad({loss}, step.leaves); }).join();
    testing::expect_same_bytes(result, plain);
  }
  const auto before = memory_stats().current_bytes;
  {
    const auto unused = rematerializer.forward(step.loss);
  }
  EXPECT_EQ(memory_stats().current_bytes, before);
}

TEST_F(RematTight, LetsGoOfEverythingAfterBackward) {
  const auto before = memory_stats().current_bytes;
  Rematerializer rematerializer({.budget_bytes = budget});
  for (int i = 0; i < 3; ++i) {
    gradients(&rematerializer);
    EXPECT_EQ(memory_stats().current_bytes, before);
  }
}

TEST_F(RematTight, RefusesWhatWasChangedBeforeBackward) {
  Rematerializer rematerializer({.budget_bytes = budget});
  for (int i = 0; i < 2; ++i) {
    const auto loss = rematerializer.forward(step.loss);
    {
      const torch::NoGradGuard no_grad;
      weight.add_(0);
    }
    EXPECT_THAT(error_of([&] { loss.backward(); }),
                HasSubstr("was modified by an inplace operation"));
  }
  for (const auto& leaf : step.leaves) leaf.mutable_grad() = Tensor();
}

TEST_F(RematTight, GoesOnAfterAnErrorInForward) {
  const auto plain = gradients(nullptr);
  Rematerializer rematerializer({.budget_bytes = budget});
  EXPECT_EQ(error_of([&] {
              rematerializer.forward([&] {
                step.loss();
                throw std::runtime_error("of the user");
              });
            }),
            "of the user");
  EXPECT_THROW(rematerializer.forward([&] { return weight.mm(torch::ones({3, 3})); }), c10::Error);
  testing::expect_same_bytes(gradients(&rematerializer), plain);
}

TEST_F(RematTight, JoinsACallInsideAnother) {
  const auto plain = gradients(nullptr);
  Rematerializer rematerializer({.budget_bytes = budget});
  const auto loss = rematerializer.forward([&] { return rematerializer.forward(step.loss); });
  testing::expect_same_bytes(torch::autograd::grad({loss}, step.leaves), plain);
  EXPECT_EQ(rematerializer.stats().steps, 1);
}

TEST_F(RematTight, RefusesNegativeBudgetsAndThoseThatAreExceeded) {
  EXPECT_THROW(Rematerializer({.budget_bytes = -1}), OptionError);
  EXPECT_THROW(Rematerializer({.budget_bytes = 64}), BudgetError);
}

TEST_F(RematTight, TakesOtherShapesInBetween) {
  Rematerializer rematerializer({.budget_bytes = budget});
  const auto loss_of = [&](std::int64_t rows) {
    const auto x = random_tensor({rows, kWidth}, 3);
    auto y = x.mm(weight);
    for (int i = 0; i < 4; ++i) y = y.tanh().mm(weight) / 8;
    return y.square().mean();
  };
  for (const std::int64_t rows : {64, 32, 64, 16, 32, 64, 64, 16}) {
    const auto loss = rematerializer.forward([&] { return loss_of(rows); });
    testing::expect_same_bytes(torch::autograd::grad({loss}, {weight}),
                               torch::autograd::grad({loss_of(rows)}, {weight}));
  }
}

TEST_F(RematCases, ChainsOfAHundredThousandOperators) {
  const auto x = random_leaf({1000});
  const auto loss_of = [&] {
    auto y = x * 1;
    for (int i = 0; i < 100'000; ++i) y = y * 1.00001;
    return y.square().sum();
  };
  const auto before = memory_stats().current_bytes;
  Rematerializer rematerializer;
  const auto loss = rematerializer.forward(loss_of);
  EXPECT_TRUE(testing::is_same_bytes(torch::autograd::grad({loss}, {x})[0],
                                     torch::autograd::grad({loss_of()}, {x})[0]));
  EXPECT_LE(memory_stats().current_bytes, before + 64);  // the loss
}

}  // namespace
}  // namespace reprise
