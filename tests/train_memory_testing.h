// SPDX-License-Identifier: Apache-2.0
/// What the tests of training in little memory share: tables, models, and trainings of them.
#pragma once

#include "reprise/errors.h"
#include "reprise/synthesize.h"
#include "reprise/trainer.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace reprise::testing {

inline constexpr std::array kTiers = {Checkpointing::kOff, Checkpointing::kMinimal,
                                      Checkpointing::kAggressive};

/// A table and the options of models for it.
struct Shape {
  SynthesizeOptions table;
  std::int64_t encoder;
  std::int64_t horizon;
  TftOptions model;
};

inline Shape small_shape() {
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

}  // namespace reprise::testing
