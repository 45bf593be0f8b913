// SPDX-License-Identifier: Apache-2.0
// Training inside a memory budget: what it takes, what it does when that is too much, and what is
// foretold of other batch sizes.
#include "reprise/errors.h"
#include "reprise/memory.h"
#include "reprise/memory_budget.h"
#include "reprise/synthesize.h"
#include "reprise/training_profile.h"
#include "tests/allocation_recorder.h"
#include "tests/memory_testing.h"
#include "tests/testing.h"
#include "train/adam_internal.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

namespace reprise {
namespace {

using ::testing::HasSubstr;
using testing::limit_address_space;
using torch::Tensor;

constexpr std::array kTiers = {Checkpointing::kOff, Checkpointing::kMinimal,
                               Checkpointing::kAggressive};

/// A table and the options of models for it.
struct Shape {
  SynthesizeOptions table;
  std::int64_t encoder;
  std::int64_t horizon;
  TftOptions model;
};

Shape small_shape() {
  return {{.series = 4, .steps = 120, .observed = 3, .known = 2},
          12,
          4,
          {.hidden_size = 16, .attention_heads = 2, .encoder_grn = true}};
}

class TrainMemoryTest : public ::testing::Test {
 protected:
  TrainMemoryTest() { use(small_shape()); }
  ~TrainMemoryTest() override { std::filesystem::remove(table_); }

  void use(const Shape& shape) {
    synthesize(table_, shape.table);
    DataOptions data;
    data.encoder_length = shape.encoder;
    data.horizon = shape.horizon;
    dataset_ = std::make_unique<Dataset>(Dataset::fit(table_, data));
    model_ = shape.model;
    dataset_->describe(model_);
  }

  static TrainOptions short_training() {
    TrainOptions options;
    options.batch_size = 32;
    options.max_steps = 4;
    options.validate_every = 2;
    options.lr = 1e-2;
    return options;
  }

  struct Run {
    TemporalFusionTransformer model{nullptr};
    TrainResult result;
    std::vector<double> losses;
  };

  using OnStep = std::function<void(const StepReport&)>;

  Run run(Checkpointing tier, const TrainOptions& options, const OnStep& on_step = {}) const {
    torch::manual_seed(1);
    Run run;
    auto with_tier = model_;
    with_tier.checkpointing = tier;
    run.model = TemporalFusionTransformer(with_tier);
    run.result = train(run.model, *dataset_, options, [&](const StepReport& report) {
      run.losses.push_back(report.train_loss);
      if (on_step) on_step(report);
      return true;
    });
    return run;
  }

  std::int64_t peak_of(Checkpointing tier, std::int64_t micro_batch_size = 0) const {
    auto options = short_training();
    options.micro_batch_size = micro_batch_size;
    return run(tier, options).result.peak_bytes;
  }

  std::int64_t smallest_budget() const {
    auto options = short_training();
    options.memory_budget_bytes = peak_of(Checkpointing::kAggressive, 1) / 2;
    try {
      run(Checkpointing::kOff, options);
    } catch (const BudgetError& error) {
      return error.needed_bytes();
    }
    return 0;
  }

  std::filesystem::path table_ =
      std::filesystem::temp_directory_path() /
      ("reprise_train_memory_test_" +
       std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) + ".parquet");
  std::unique_ptr<Dataset> dataset_;
  TftOptions model_;
};

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

// --- the profile

TEST_F(TrainMemoryTest, ProfilesEveryLayerAndAddsUp) {
  for (const auto tier : kTiers) {
    auto model = model_;
    model.checkpointing = tier;
    const auto profile = profile_training(model, *dataset_, short_training(), 1);
    EXPECT_EQ(profile.at_peak.total(), profile.peak_bytes);
    EXPECT_GT(profile.average_bytes, 0);
    EXPECT_LE(profile.average_bytes, static_cast<double>(profile.peak_bytes));
    EXPECT_EQ(profile.out_of_memory_events, 0);
    const auto names = layer_names(model);
    ASSERT_EQ(profile.layers.size(), names.size() + 1);
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto& layer = profile.layers[i];
      EXPECT_EQ(layer.name, names[i]);
      EXPECT_GT(layer.plain_bytes, 0) << layer.name;
      EXPECT_GT(layer.forward_ms, 0) << layer.name;
      EXPECT_GT(layer.recompute_ms, 0) << layer.name;
      EXPECT_EQ(layer.is_checkpointed, is_checkpointed(model, layer.name));
    }
  }
}

TEST_F(TrainMemoryTest, ProfilesAutoWithinItsBudget) {
  auto model = model_;
  model.checkpointing = Checkpointing::kAuto;
  auto options = short_training();
  const auto plain = profile_training(model, *dataset_, options, 1);
  options.memory_budget_bytes = plain.start_bytes + (plain.peak_bytes - plain.start_bytes) / 2;
  const auto profile = profile_training(model, *dataset_, options, 2);
  EXPECT_LE(profile.peak_bytes, options.memory_budget_bytes);
  EXPECT_GT(profile.plain_step_ms, 0.0);
  EXPECT_EQ(memory_stats().budget_bytes, 0);
  EXPECT_EQ(profile.layers.front().reason, "decided operator by operator");
}

TEST_F(TrainMemoryTest, RecordsTheSameStepWithinAnyBudget) {
  auto options = short_training();
  const auto free = record_training_step(model_, *dataset_, options);
  ASSERT_TRUE(free);
  EXPECT_EQ(free->solution.forecast.replayed_operations, 0);
  EXPECT_EQ(free->graph.operations.front().layer, "static_vsn");
  options.memory_budget_bytes = (free->solution.forecast.peak_bytes + free->graph.base_bytes) / 2;
  const auto limited = record_training_step(model_, *dataset_, options);
  ASSERT_TRUE(limited);
  EXPECT_GT(limited->solution.forecast.replayed_operations, 0);
  ASSERT_EQ(limited->graph.operations.size(), free->graph.operations.size());
  for (std::size_t i = 0; i < free->graph.operations.size(); ++i) {
    EXPECT_EQ(limited->graph.operations[i].name, free->graph.operations[i].name);
    EXPECT_EQ(limited->graph.operations[i].inputs, free->graph.operations[i].inputs);
  }
}

TEST_F(TrainMemoryTest, ProfilesMayOutliveWhatIsTrainedAfterThem) {
  const auto profile = profile_training(model_, *dataset_, short_training(), 2);
  EXPECT_EQ(run(Checkpointing::kOff, short_training()).result.steps, 4);
  EXPECT_GT(profile.timeline->events().size(), 0U);
}

TEST_F(TrainMemoryTest, RefusesToProfileALossThatIsNotFinite) {
  auto options = short_training();
  options.lr = 1e30;
  EXPECT_THROW(profile_training(model_, *dataset_, options, 1), std::runtime_error);
}

TEST_F(TrainMemoryTest, CategoriesAddUpAtEveryEventOfATraining) {
  MemoryTimeline timeline;
  run(Checkpointing::kAggressive, short_training());
  timeline.stop();
  auto now = timeline.at_start().bytes;
  std::int64_t total = timeline.at_start().total();
  for (const auto& event : timeline.events()) {
    if (event.from) now[static_cast<std::size_t>(*event.from)] -= event.bytes;
    if (event.to) now[static_cast<std::size_t>(*event.to)] += event.bytes;
    if (!event.from) total += event.bytes;
    if (!event.to) total -= event.bytes;
    ASSERT_EQ(total, event.total_bytes);
    ASSERT_EQ(std::accumulate(now.begin(), now.end(), std::int64_t{0}), total);
    ASSERT_GE(*std::min_element(now.begin(), now.end()), 0);
  }
}

TEST_F(TrainMemoryTest, CountsWhatAModelHolds) {
  std::int64_t parameter_bytes = 0;
  TemporalFusionTransformer model(model_);
  for (const auto& parameter : model->parameters())
    parameter_bytes += (static_cast<std::int64_t>(parameter.nbytes()) + 63) / 64 * 64;
  const auto profile = profile_training(model_, *dataset_, short_training(), 1);
  // The weights, the best ones, and those of the model above, which nobody has labelled.
  EXPECT_EQ(profile.at_peak[MemoryCategory::kParameters], 2 * parameter_bytes);
  EXPECT_GE(profile.at_peak[MemoryCategory::kTemporaries], parameter_bytes);
  EXPECT_GE(profile.at_peak[MemoryCategory::kOptimizerState], 2 * parameter_bytes);
  EXPECT_GT(profile.at_peak[MemoryCategory::kBatch], 0);
  EXPECT_GT(profile.at_peak[MemoryCategory::kSavedActivations], 0);
}

// --- other batch sizes

TEST_F(TrainMemoryTest, ForetellsThePeakOfOtherBatchSizes) {
  for (const auto tier : kTiers) {
    auto model = model_;
    model.checkpointing = tier;
    const auto peaks = measure_peaks(model, *dataset_, short_training());
    auto options = short_training();
    for (const std::int64_t size : {2, 20, 50, 133}) {
      options.batch_size = size;
      options.max_steps = 2;
      const auto peak = static_cast<double>(run(tier, options).result.peak_bytes);
      // The workspace of oneDNN's LSTM grows by pages, not by windows.
      EXPECT_NEAR(static_cast<double>(peaks.peak_bytes(size)), peak, 0.03 * peak) << size;
    }
  }
}

TEST_F(TrainMemoryTest, FindsTheLargestBatchForAnyBudget) {
  const std::array<Shape, 3> shapes = {
      small_shape(),
      Shape{{.series = 3, .steps = 150, .static_reals = 3, .observed = 12, .known = 1},
            24,
            2,
            {.hidden_size = 8, .attention_heads = 4, .lstm_layers = 2}},
      Shape{{.series = 2,
             .steps = 200,
             .static_reals = 0,
             .static_categoricals = 0,
             .observed = 1,
             .known = 4},
            6,
            12,
            {.hidden_size = 24, .attention_heads = 3, .variable_width = 4}}};
  for (const auto& shape : shapes) {
    use(shape);
    for (const auto tier : kTiers) {
      auto model = model_;
      model.checkpointing = tier;
      auto options = short_training();
      const auto peaks = measure_peaks(model, *dataset_, options);
      for (const std::int64_t about : {20, 61}) {
        const std::int64_t limit = peaks.peak_bytes(about) + 1000;
        const auto largest = find_largest_batch(peaks, model, *dataset_, options, limit);
        EXPECT_NEAR(static_cast<double>(largest.foretold_size),
                    static_cast<double>(largest.batch_size), 1);
        EXPECT_LE(largest.peak_bytes, limit);
        options.memory_budget_bytes = limit;
        options.batch_size = largest.batch_size;
        EXPECT_TRUE(run(tier, options).result.retries.empty());
        options.batch_size = largest.batch_size + 1;
        EXPECT_FALSE(run(tier, options).result.retries.empty());
        options.memory_budget_bytes = 0;
      }
    }
  }
}

}  // namespace
}  // namespace reprise
