// SPDX-License-Identifier: Apache-2.0
/// Models trained within budgets: gradients, buffers and random numbers are byte for byte those of
/// plain steps.
#include "tests/remat_testing.h"

#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace reprise {
namespace {

using testing::mlp;
using testing::random_leaf;
using testing::random_tensor;
using testing::step_of;
using testing::Tensors;
using testing::TrainingStep;
using torch::Tensor;

class RematTest : public testing::SeededTest {};

TEST_F(RematTest, TrainsAStackOfLinearLayersInAFractionOfItsMemory) {
  const auto step = step_of(mlp(16, 64), random_tensor({256, 64}));
  EXPECT_LE(testing::expect_exact_within_budgets(step, 4), 0.35);
}

TEST_F(RematTest, KeepsDropoutMasksAndTheRandomStream) {
  torch::nn::Sequential model;
  for (int i = 0; i < 8; ++i) {
    model->push_back(torch::nn::Linear(64, 64));
    model->push_back(torch::nn::Dropout(0.3));
    model->push_back(torch::nn::ReLU(torch::nn::ReLUOptions(/*inplace=*/true)));
  }
  const auto step = step_of(model, random_tensor({256, 64}));
  EXPECT_LE(testing::expect_exact_within_budgets(step, 4), 0.5);
}

TEST_F(RematTest, UpdatesTheRunningStatisticsOfAResidualNetworkOnce) {
  const auto step = step_of(testing::residual_network(4, 8), random_tensor({8, 8, 12, 12}));
  EXPECT_LE(testing::expect_exact_within_budgets(step, 4), 0.6);
}

TEST_F(RematTest, RunsRecurrentLayersAgain) {
  testing::expect_exact_within_budgets(testing::lstm_step(32, 16, 20), 4);
}

TEST_F(RematTest, TrainsATransformer) {
  EXPECT_LE(testing::expect_exact_within_budgets(testing::transformer_step(12, 32, 12, 8), 4), 0.6);
}

TEST_F(RematTest, TrainsANetworkWithLongSkips) {
  const auto step = step_of(testing::UNet(), random_tensor({4, 4, 32, 32}));
  EXPECT_LE(testing::expect_exact_within_budgets(step, 3), 0.8);
}

TEST_F(RematTest, LetsGoWhatAutocastCasts) {
  auto model = mlp(12, 64);
  auto step = step_of(model, random_tensor({256, 64}));
  step.loss = [loss = step.loss] {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const auto result = loss();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    return result;
  };
  EXPECT_LE(testing::expect_exact_within_budgets(step, 4), 0.27);  // 0.3 where casts are kept
}

TEST_F(RematTest, PlansAfterFirstCallsThatEndWithoutBackward) {
  const auto step = step_of(mlp(12, 64), random_tensor({256, 64}));
  const auto plain_bytes = testing::plain_bytes_of(step);
  Rematerializer rematerializer({.budget_bytes = memory_stats().current_bytes + plain_bytes / 2});
  {
    const torch::NoGradGuard no_grad;
    rematerializer.forward(step.loss);
  }
  const auto fail = [&] {
    step.loss();
    throw std::runtime_error("a mistake of the user's");
  };
  EXPECT_THROW(rematerializer.forward(fail), std::runtime_error);
  for (int i = 0; i < 3; ++i) testing::outcome_of(step, &rematerializer);
  EXPECT_TRUE(rematerializer.stats().is_planned);
}

TEST_F(RematTest, TakesASavedPlanForTheStepThatItIsOf) {
  const auto step = step_of(mlp(12, 64), random_tensor({256, 64}));
  const auto plain_bytes = testing::plain_bytes_of(step);
  const auto expected = testing::outcome_of(step);
  const auto budget = memory_stats().current_bytes + plain_bytes / 2;
  constexpr int kSteps = 4;
  const auto run = [&](const std::string& saved_plan) {
    Rematerializer rematerializer({.budget_bytes = budget, .saved_plan = saved_plan});
    EXPECT_FALSE(rematerializer.planned_step());
    for (int i = 0; i < kSteps; ++i)
      testing::expect_same_bytes(testing::outcome_of(step, &rematerializer), expected);
    return std::pair(rematerializer.planned_step(), rematerializer.stats());
  };
  const auto [made, first] = run("");
  ASSERT_TRUE(made);
  EXPECT_EQ(first.saved_plan_uses, 0);
  EXPECT_EQ(made->solution.forecast.peak_bytes, first.predicted_peak_bytes);
  EXPECT_FALSE(made->solution.plan.actions.empty());
  const auto text = to_json(made->solution.plan, made->graph, budget);
  const auto [loaded, second] = run(text);
  ASSERT_TRUE(loaded);
  EXPECT_EQ(second.saved_plan_uses, 1);
  EXPECT_EQ(to_json(loaded->solution.plan, loaded->graph, budget), text);

  // A step of another size has no use for it, and a text that is no plan is refused at once.
  const auto other = step_of(mlp(12, 64), random_tensor({200, 64}));
  Rematerializer rematerializer({.budget_bytes = budget, .saved_plan = text});
  for (int i = 0; i < kSteps; ++i) testing::outcome_of(other, &rematerializer);
  EXPECT_TRUE(rematerializer.stats().is_planned);
  EXPECT_EQ(rematerializer.stats().saved_plan_uses, 0);
  EXPECT_THROW(Rematerializer({.saved_plan = "{}"}), OptionError);
}

TEST_F(RematTest, ReturnsWhatTheFunctionReturns) {
  Rematerializer rematerializer;
  EXPECT_EQ(rematerializer.forward([] { return std::string("text"); }), "text");
  EXPECT_EQ(rematerializer.stats().steps, 1);
}

}  // namespace
}  // namespace reprise
