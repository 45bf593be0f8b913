// SPDX-License-Identifier: Apache-2.0
// Training inside a memory budget: what it takes, and what it does when that is too much.
#include "reprise/errors.h"
#include "reprise/memory.h"
#include "reprise/memory_budget.h"
#include "tests/allocation_recorder.h"
#include "tests/memory_testing.h"
#include "tests/testing.h"
#include "tests/train_memory_testing.h"
#include "train/adam_internal.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace reprise {
namespace {

using ::testing::HasSubstr;
using testing::limit_address_space;
using testing::TrainMemoryTest;
using torch::Tensor;

void expect_same_runs(const TemporalFusionTransformer& a, const TemporalFusionTransformer& b) {
  const auto x = a->named_parameters();
  const auto y = b->named_parameters();
  for (std::size_t i = 0; i < x.size(); ++i)
    EXPECT_TRUE(testing::is_same_bytes(x[i].value(), y[i].value())) << x[i].key();
}

TEST_F(TrainMemoryTest, GivesBackAllThatItTook) {
  const auto before = memory_stats().current_bytes;
  run(Checkpointing::kOff, short_training());
  EXPECT_EQ(memory_stats().current_bytes, before);
}

TEST_F(TrainMemoryTest, TakesLessWithEveryTierAndInMicroBatches) {
  const auto off = peak_of(Checkpointing::kOff);
  const auto minimal = peak_of(Checkpointing::kMinimal);
  const auto aggressive = peak_of(Checkpointing::kAggressive);
  EXPECT_LT(minimal, off);
  EXPECT_LT(aggressive, minimal);
  EXPECT_LT(peak_of(Checkpointing::kAggressive, 4), aggressive);
}

TEST_F(TrainMemoryTest, NeverTakesMoreThanAnyBudgetThatItCanTrainIn) {
  const auto smallest = smallest_budget();
  const auto plain = peak_of(Checkpointing::kOff);
  ASSERT_GT(smallest, 0);
  ASSERT_LT(smallest, plain);
  auto options = short_training();
  constexpr int kBudgets = 50;
  for (int i = 0; i < kBudgets; ++i) {
    options.memory_budget_bytes = smallest + (plain - smallest) * i / (kBudgets - 1);
    const auto result = run(Checkpointing::kOff, options).result;
    EXPECT_EQ(result.steps, options.max_steps);
    EXPECT_LE(result.peak_bytes, options.memory_budget_bytes);
    EXPECT_LE(memory_stats().peak_bytes, options.memory_budget_bytes);
    EXPECT_EQ(result.retries.empty(), i == kBudgets - 1);
  }
}

TEST_F(TrainMemoryTest, RefusesBeforeTheFirstStepBelowTheSmallestBudget) {
  const auto smallest = smallest_budget();
  auto options = short_training();
  for (const auto budget : {smallest - smallest / 50, smallest / 2, std::int64_t{1000}}) {
    options.memory_budget_bytes = budget;
    int steps = 0;
    std::int64_t needed = 0;
    try {
      run(Checkpointing::kOff, options, [&](const StepReport&) { ++steps; });
      FAIL() << "trained in " << budget << " bytes";
    } catch (const BudgetError& error) {
      needed = error.needed_bytes();
      EXPECT_EQ(error.allowed_bytes(), budget);
      EXPECT_THAT(error.what(), HasSubstr("memory_budget = " + std::to_string(needed)));
    }
    EXPECT_EQ(steps, 0);
    // It is found to 1%, and it is enough.
    EXPECT_NEAR(static_cast<double>(needed), static_cast<double>(smallest),
                0.02 * static_cast<double>(smallest));
    options.memory_budget_bytes = needed;
    EXPECT_EQ(run(Checkpointing::kOff, options).result.steps, options.max_steps);
  }
}

TEST_F(TrainMemoryTest, NeedsNoMoreThanTheSmallestStepThatRecomputesWholeLayers) {
  EXPECT_LE(smallest_budget(), peak_of(Checkpointing::kAggressive, 1));
}

TEST_F(TrainMemoryTest, ARetryChangesNoNumber) {
  model_.dropout = 0.3;
  auto options = short_training();
  options.average_decay = 0.9;
  const auto expected = run(Checkpointing::kAggressive, options);
  const auto aggressive = expected.result.peak_bytes;
  const auto minimal = run(Checkpointing::kMinimal, options).result.peak_bytes;
  options.memory_budget_bytes = run(Checkpointing::kOff, options).result.peak_bytes + 1'000'000;
  ASSERT_GT(minimal, aggressive + 64);
  // From the third step on something else needs memory.
  Tensor ballast;
  const auto retried = run(Checkpointing::kOff, options, [&](const StepReport& report) {
    if (report.step != 2) return;
    const auto free = options.memory_budget_bytes - (aggressive + minimal) / 2;
    ballast = torch::empty({free}, torch::kByte);
  });
  ASSERT_EQ(retried.result.retries.size(), 1U);
  EXPECT_EQ(retried.result.retries[0].step, 3);
  EXPECT_EQ(retried.result.retries[0].checkpointing, Checkpointing::kAuto);
  EXPECT_EQ(retried.result.checkpointing, Checkpointing::kAuto);
  EXPECT_EQ(retried.result.micro_batch_size, options.batch_size);
  EXPECT_EQ(retried.losses, expected.losses);
  expect_same_runs(retried.model, expected.model);
}

TEST_F(TrainMemoryTest, AutoTrainsWithinBudgetsAndChangesNoNumber) {
  model_.dropout = 0.3;
  auto options = short_training();
  options.max_steps = 6;
  options.epochs = 100;
  const auto expected = run(Checkpointing::kOff, options);
  const auto plain = expected.result.peak_bytes;
  const auto aggressive = run(Checkpointing::kAggressive, options).result.peak_bytes;
  for (const auto budget : {plain, (plain + aggressive) / 2, aggressive}) {
    options.memory_budget_bytes = budget;
    const auto run_auto = run(Checkpointing::kAuto, options);
    const auto& stats = run_auto.result.rematerializer;
    EXPECT_TRUE(run_auto.result.retries.empty());
    EXPECT_EQ(run_auto.losses, expected.losses);
    expect_same_runs(run_auto.model, expected.model);
    EXPECT_LE(run_auto.result.peak_bytes, budget);
    EXPECT_EQ(stats.steps, 6);
    EXPECT_TRUE(stats.is_planned);
    EXPECT_EQ(stats.measured_peak_bytes, stats.predicted_peak_bytes);
    ASSERT_TRUE(run_auto.result.planned_step);
    EXPECT_EQ(run_auto.result.planned_step->solution.forecast.peak_bytes,
              stats.predicted_peak_bytes);
    if (budget < plain) {
      EXPECT_GT(stats.replayed_operations, 0);
    }
  }
}

TEST_F(TrainMemoryTest, AutoPlansMicroBatchesAfterTheWholeBatchDidNotFit) {
  auto options = short_training();
  options.memory_budget_bytes = smallest_budget() * 21 / 20;
  const auto result = run(Checkpointing::kAuto, options).result;
  ASSERT_LT(result.micro_batch_size, options.batch_size);
  ASSERT_EQ(result.checkpointing, Checkpointing::kAuto);
  EXPECT_TRUE(result.rematerializer.is_planned);
  EXPECT_LE(result.peak_bytes, options.memory_budget_bytes);
}

TEST_F(TrainMemoryTest, AddsUpTheGradientsOfMicroBatches) {
  auto options = short_training();
  model_.dropout = 0.0;
  options.max_steps = 1;
  const auto whole = run(Checkpointing::kOff, options);
  for (const std::int64_t size : {1, 5, 16, 31}) {
    options.micro_batch_size = size;
    const auto parts = run(Checkpointing::kOff, options);
    EXPECT_NEAR(parts.losses[0], whole.losses[0], 1e-5);
    EXPECT_EQ(parts.result.micro_batch_size, size);
  }
  options.micro_batch_size = 100;
  expect_same_runs(run(Checkpointing::kOff, options).model, whole.model);
}

/// All weights, in memory that is no tensor's.
std::vector<float> weights_of(const TemporalFusionTransformer& model) {
  std::vector<float> weights;
  for (const auto& parameter : model->parameters()) {
    const auto* values = parameter.const_data_ptr<float>();
    weights.insert(weights.end(), values, values + parameter.numel());
  }
  return weights;
}

TEST_F(TrainMemoryTest, KeepsTheBestWeightsWhenMemoryRunsOut) {
  auto options = short_training();
  options.memory_budget_bytes = peak_of(Checkpointing::kOff);
  options.validate_every = 1;
  torch::manual_seed(1);
  TemporalFusionTransformer model(model_);
  std::vector<float> best;
  Tensor ballast;
  EXPECT_THROW(train(model, *dataset_, options,
                     [&](const StepReport& report) {
                       if (report.is_best) best = weights_of(model);
                       if (report.step != 2) return true;
                       const auto stats = memory_stats();
                       ballast = torch::empty({stats.budget_bytes - stats.current_bytes - 64},
                                              torch::kByte);
                       return true;
                     }),
               BudgetError);
  EXPECT_FALSE(best.empty());
  EXPECT_EQ(weights_of(model), best);
  EXPECT_EQ(model->options().checkpointing, Checkpointing::kAggressive);
  for (const auto& parameter : model->parameters()) EXPECT_FALSE(parameter.grad().defined());
}

TEST_F(TrainMemoryTest, AnIndependentCountIsWithinTheBudgetToo) {
  auto options = short_training();
  options.loader_threads = 0;
  options.memory_budget_bytes =
      (peak_of(Checkpointing::kOff) + peak_of(Checkpointing::kAggressive)) / 2;
  const testing::AllocationRecorder recorder;
  const auto result = run(Checkpointing::kOff, options).result;
  EXPECT_LE(recorder.peak_bytes(), options.memory_budget_bytes);
  EXPECT_GT(recorder.peak_bytes(), result.peak_bytes * 9 / 10);
}

TEST_F(TrainMemoryTest, AStepOfTheOptimizerAllocatesNothing) {
  std::vector<Tensor> parameters = {torch::randn({3, 4}), torch::randn({7})};
  for (auto& parameter : parameters) {
    parameter.requires_grad_(true);
    parameter.mutable_grad() = torch::ones_like(parameter);
  }
  const auto first = parameters[0].detach().clone();
  detail::Adam adam(parameters, 0.0);
  const auto before = memory_stats().allocations;
  adam.step(0.1);
  EXPECT_EQ(memory_stats().allocations, before);
  EXPECT_TRUE(torch::allclose(parameters[0].detach(), first - 0.1));  // the first step is lr long
}

TEST_F(TrainMemoryTest, StepsAddNoMemoryToThoseBeforeThem) {
  auto options = short_training();
  options.max_steps = 2;
  const auto two = run(Checkpointing::kOff, options).result.peak_bytes;
  options.max_steps = 9;
  options.epochs = 100;
  EXPECT_EQ(run(Checkpointing::kOff, options).result.peak_bytes, two);
}

TEST_F(TrainMemoryTest, TakesLessWhereTheSystemHasNoMore) {
  if (testing::kIsSanitized) GTEST_SKIP() << "the address space cannot be limited";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // In a process of its own, which stays limited.
  EXPECT_EXIT(
      {
        model_.hidden_size = 64;
        auto options = short_training();
        options.loader_threads = 0;
        options.max_steps = 2;
        run(Checkpointing::kOff, options);  // what is made once
        release_cached_memory();
        options.batch_size = 300;
        limit_address_space(70'000'000);
        const auto result = run(Checkpointing::kOff, options).result;
        std::exit(result.steps == 2 && !result.retries.empty() ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(TrainMemoryTest, SaysWhereTheSystemHasTooLittle) {
  if (testing::kIsSanitized) GTEST_SKIP() << "the address space cannot be limited";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        auto options = short_training();
        options.loader_threads = 0;
        run(Checkpointing::kOff, options);
        release_cached_memory();
        model_.hidden_size = 256;
        limit_address_space(12'000'000);
        try {
          run(Checkpointing::kOff, options);
        } catch (const BudgetError& error) {
          std::fprintf(stderr, "%s", error.what());
          std::exit(0);
        }
        std::exit(1);
      },
      ::testing::ExitedWithCode(0), "the system has no more|of memory are not enough");
}

}  // namespace
}  // namespace reprise
