// SPDX-License-Identifier: Apache-2.0
// What a profile says of a training, and what is foretold of other batch sizes.
#include "reprise/memory.h"
#include "reprise/memory_timeline.h"
#include "reprise/training_profile.h"
#include "tests/train_memory_testing.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

namespace reprise {
namespace {

using testing::kTiers;
using testing::Shape;
using testing::small_shape;

class TrainProfileTest : public testing::TrainMemoryTest {};

TEST_F(TrainProfileTest, ProfilesEveryLayerAndAddsUp) {
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

TEST_F(TrainProfileTest, ProfilesAutoWithinItsBudget) {
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

TEST_F(TrainProfileTest, RecordsTheSameStepWithinAnyBudget) {
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

TEST_F(TrainProfileTest, ProfilesMayOutliveWhatIsTrainedAfterThem) {
  const auto profile = profile_training(model_, *dataset_, short_training(), 2);
  EXPECT_EQ(run(Checkpointing::kOff, short_training()).result.steps, 4);
  EXPECT_GT(profile.timeline->events().size(), 0U);
}

TEST_F(TrainProfileTest, RefusesToProfileALossThatIsNotFinite) {
  auto options = short_training();
  options.lr = 1e30;
  EXPECT_THROW(profile_training(model_, *dataset_, options, 1), std::runtime_error);
}

TEST_F(TrainProfileTest, CategoriesAddUpAtEveryEventOfATraining) {
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

TEST_F(TrainProfileTest, CountsWhatAModelHolds) {
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

TEST_F(TrainProfileTest, ForetellsThePeakOfOtherBatchSizes) {
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

TEST_F(TrainProfileTest, FindsTheLargestBatchForAnyBudget) {
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
