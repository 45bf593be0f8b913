// SPDX-License-Identifier: Apache-2.0
#include "reprise/errors.h"
#include "reprise/quantile_loss.h"
#include "reprise/run_folder.h"
#include "reprise/safetensors.h"
#include "reprise/trainer.h"
#include "tests/testing.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <limits>
#include <numbers>

namespace reprise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::Tensor;

constexpr int kSeries = 3;
constexpr int kRows = 240;

/// A folder that goes with the test.
class TrainTest : public ::testing::Test {
 protected:
  TrainTest() {
    std::filesystem::create_directories(folder_);
    write_table();
    dataset_ = std::make_unique<Dataset>(Dataset::fit(table_, data_options()));
  }
  ~TrainTest() override { std::filesystem::remove_all(folder_); }

  static DataOptions data_options() {
    DataOptions options;
    options.time = "time";
    options.id = {"id"};
    options.target = {"y"};
    options.encoder_length = 12;
    options.horizon = 4;
    options.lags = {12};
    return options;
  }

  void write_table() const {
    std::ofstream file(table_);
    file << "id,time,y,known_k\n";
    for (int series = 0; series < kSeries; ++series) {
      for (int t = 0; t < kRows; ++t) {
        const double phase = 2 * std::numbers::pi * t / 12.0;
        const double k = ((t * 7 + series * 3) % 5) / 5.0;
        file << "s" << series << "," << t << "," << 10 * series + std::sin(phase) + k << "," << k
             << "\n";
      }
    }
  }

  TemporalFusionTransformer make_model(double dropout = 0.1) const {
    torch::manual_seed(1);
    TftOptions options{.hidden_size = 8, .attention_heads = 2, .dropout = dropout};
    dataset_->describe(options);
    return TemporalFusionTransformer(options);
  }

  static TrainOptions short_training() {
    TrainOptions options;
    options.epochs = 2;
    options.batch_size = 32;
    options.max_steps = 12;
    options.validate_every = 4;
    options.lr = 1e-2;
    return options;
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() /
      ("reprise_train_test_" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) +
       "_" + ::testing::UnitTest::GetInstance()->current_test_info()->name());
  std::filesystem::path table_ = folder_ / "table.csv";
  std::unique_ptr<Dataset> dataset_;
};

void expect_same_weights(const TemporalFusionTransformer& a, const TemporalFusionTransformer& b) {
  const auto x = a->named_parameters();
  const auto y = b->named_parameters();
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_TRUE(testing::is_same_bytes(x[i].value(), y[i].value())) << x[i].key();
  }
}

bool has_same_weights(const TemporalFusionTransformer& a, const TemporalFusionTransformer& b) {
  const auto x = a->parameters();
  const auto y = b->parameters();
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!testing::is_same_bytes(x[i], y[i])) return false;
  }
  return true;
}

TEST_F(TrainTest, IsDeterministicBySeedAtAnyNumberOfLoaderThreads) {
  auto options = short_training();
  auto first = make_model();
  train(first, *dataset_, options);
  for (int threads : {0, 3}) {
    options.loader_threads = threads;
    auto again = make_model();
    train(again, *dataset_, options);
    expect_same_weights(first, again);
  }
  options.seed = 2;
  auto other = make_model();
  train(other, *dataset_, options);
  EXPECT_FALSE(has_same_weights(first, other));
}

TEST_F(TrainTest, TrainsTheSameModelWithAggressiveCheckpointing) {
  auto plain = make_model(0.3);
  train(plain, *dataset_, short_training());
  auto recomputed = make_model(0.3);
  recomputed->set_checkpointing(Checkpointing::kAggressive);
  train(recomputed, *dataset_, short_training());
  expect_same_weights(plain, recomputed);
}

TEST_F(TrainTest, TellsTheBatchOfTheFirstStep) {
  auto options = short_training();
  options.max_steps = 1;
  auto model = make_model();
  const Batch batch = first_training_batch(*dataset_, options);
  torch::manual_seed(options.seed);
  const auto loss =
      quantile_loss(model->forward(batch.input), batch.target, model->options().quantiles);
  train(model, *dataset_, options, [&](const StepReport& report) {
    EXPECT_EQ(report.train_loss, loss.item<double>());
    return true;
  });
}

TEST_F(TrainTest, LearnsWhatTheTableHolds) {
  auto model = make_model(0.0);
  auto options = short_training();
  options.epochs = 20;
  options.max_steps = 0;
  options.validate_every = 0;
  const auto result = train(model, *dataset_, options);
  EXPECT_EQ(result.reason, StopReason::kFinished);
  const auto windows = dataset_->windows(Split::kTest, 4);
  const auto scores = evaluate(model, *dataset_, windows, 16);
  ASSERT_EQ(scores.size(), 2U);
  EXPECT_EQ(scores[0].name, "model");
  EXPECT_EQ(scores[1].name, "last value");
  EXPECT_LT(scores[0].q_risk[1], 0.5 * scores[1].q_risk[1]);
}

TEST_F(TrainTest, ReportsEveryStepAndKeepsTheBestWeights) {
  auto model = make_model();
  std::vector<StepReport> reports;
  std::optional<std::vector<Tensor>> best;
  const auto result = train(model, *dataset_, short_training(), [&](const StepReport& report) {
    reports.push_back(report);
    if (report.is_best) {
      best.emplace();
      for (const auto& parameter : model->parameters()) best->push_back(parameter.detach().clone());
    }
    return true;
  });
  ASSERT_EQ(reports.size(), 12U);
  for (std::size_t i = 0; i < reports.size(); ++i) {
    EXPECT_EQ(reports[i].step, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(std::isnan(reports[i].valid_loss), (i + 1) % 4 != 0) << i;
  }
  EXPECT_EQ(result.steps, 12);
  const auto weights = model->parameters();
  for (std::size_t i = 0; i < weights.size(); ++i)
    EXPECT_TRUE(testing::is_same_bytes(weights[i], (*best)[i]));
}

TEST_F(TrainTest, StopsEarlyWhenNothingIsGained) {
  auto model = make_model();
  auto options = short_training();
  options.epochs = 100;
  options.max_steps = 0;
  options.validate_every = 1;
  options.patience = 3;
  options.lr = 1e-30;  // no step changes a weight
  options.weight_decay = 0;
  const auto result = train(model, *dataset_, options);
  EXPECT_EQ(result.reason, StopReason::kEarlyStop);
  EXPECT_EQ(result.steps, 4);  // 1 best, then 3 without gain
}

TEST_F(TrainTest, StopsWhenTheCallerSaysSo) {
  auto model = make_model();
  const auto result = train(model, *dataset_, short_training(),
                            [](const StepReport& report) { return report.step < 3; });
  EXPECT_EQ(result.reason, StopReason::kInterrupted);
  EXPECT_EQ(result.steps, 3);
  EXPECT_TRUE(std::isnan(result.best_valid_loss));  // the first evaluation is after step 4
}

TEST_F(TrainTest, EvaluatesAveragedWeights) {
  auto options = short_training();
  options.max_steps = 1;
  const auto start = make_model();
  auto plain = make_model();
  train(plain, *dataset_, options);
  options.average_decay = 0.9;
  auto averaged = make_model();
  train(averaged, *dataset_, options);
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < plain->parameters().size(); ++i) {
    // After one step the decay is min(0.9, 1 / (1 + 10)).
    const auto expected = torch::lerp(start->parameters()[i], plain->parameters()[i], 10.0 / 11.0);
    EXPECT_TRUE(torch::allclose(averaged->parameters()[i], expected)) << i;
  }
}

TEST_F(TrainTest, StopsAtALossThatIsNotFinite) {
  auto model = make_model();
  auto options = short_training();
  options.lr = 1e30;
  options.schedule = "constant";
  options.clip_norm = 0;
  const auto message = testing::error_of([&] { train(model, *dataset_, options); });
  EXPECT_THAT(message, HasSubstr("at step"));
  EXPECT_THAT(message, HasSubstr("=s"));
  for (const auto& parameter : model->parameters())
    EXPECT_TRUE(parameter.isfinite().all().item<bool>());
}

// A validation loss that is no number is better than none, were it compared.
TEST_F(TrainTest, KeepsNoWeightsWhoseValidationLossIsNotFinite) {
  auto model = make_model();
  auto options = short_training();
  options.lr = 1e30;
  options.schedule = "constant";
  options.clip_norm = 0;
  options.max_steps = 1;
  std::int64_t reports = 0;
  const auto message = testing::error_of([&] {
    train(model, *dataset_, options, [&](const StepReport&) {
      ++reports;
      return true;
    });
  });
  EXPECT_THAT(message, HasSubstr("validation rows is not finite after step 1"));
  EXPECT_EQ(reports, 0);
}

TEST_F(TrainTest, RefusesToForecastWithWeightsThatAreNotFinite) {
  auto model = make_model();
  {
    const torch::NoGradGuard no_grad;
    for (auto& parameter : model->parameters()) parameter.fill_(std::nanf(""));
  }
  const auto windows = dataset_->windows(Split::kTest, 4);
  for (const auto& message : {testing::error_of([&] { predict(model, *dataset_, windows, 8); }),
                              testing::error_of([&] { evaluate(model, *dataset_, windows, 8); })}) {
    EXPECT_THAT(message, HasSubstr("=s"));
    EXPECT_THAT(message, HasSubstr("is not finite: the weights"));
  }
}

TEST_F(TrainTest, TakesOneWindowOfEachPartAtAStrideBeyondAllRows) {
  constexpr auto kFar = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(dataset_->windows(Split::kTest, kFar).size(),
            dataset_->windows(Split::kTest, 1'000'000).size());
}

TEST_F(TrainTest, NamesTheOptionThatIsOutOfRange) {
  const auto field_of = [](auto change) -> std::string {
    TrainOptions options;
    change(options);
    try {
      options.validate();
    } catch (const OptionError& error) {
      return error.field();
    }
    return "";
  };
  EXPECT_EQ(field_of([](TrainOptions&) {}), "");
  EXPECT_EQ(field_of([](TrainOptions& o) { o.lr = -1; }), "lr");
  EXPECT_EQ(field_of([](TrainOptions& o) { o.lr = std::nan(""); }), "lr");
  EXPECT_EQ(field_of([](TrainOptions& o) { o.batch_size = 0; }), "batch_size");
  // So large that the number of steps would not fit into 64 bits.
  constexpr auto kFar = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(field_of([](TrainOptions& o) { o.batch_size = kFar; }), "batch_size");
  EXPECT_EQ(field_of([](TrainOptions& o) { o.epochs = kFar; }), "epochs");
  EXPECT_EQ(field_of([](TrainOptions& o) { o.loader_threads = kFar; }), "loader_threads");
  EXPECT_EQ(field_of([](TrainOptions& o) { o.schedule = "sine"; }), "schedule");
  EXPECT_EQ(field_of([](TrainOptions& o) { o.average_decay = 1; }), "average_decay");
  EXPECT_EQ(field_of([](TrainOptions& o) { o.loader_threads = 30000; }), "loader_threads");
}

TEST_F(TrainTest, PredictsSortedQuantilesInOriginalUnits) {
  auto model = make_model();
  train(model, *dataset_, short_training());
  const auto windows = dataset_->windows(Split::kTest, 4);
  const auto forecast = predict(model, *dataset_, windows, 7);
  EXPECT_THAT(forecast.sizes().vec(), ElementsAre(static_cast<std::int64_t>(windows.size()), 4, 3));
  EXPECT_TRUE((forecast.diff(1, -1) >= 0).all().item<bool>());
  EXPECT_TRUE(torch::allclose(forecast, predict(model, *dataset_, windows, 100)));
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const double level = 10 * (dataset_->series_key(windows[i])[0][1] - '0');
    EXPECT_NEAR(forecast[static_cast<std::int64_t>(i)].mean().item<double>(), level, 5.0);
  }
}

TEST_F(TrainTest, KeepsThePrecisionOfLargeTargets) {
  // 1e9 and more in steps of a hundredth: float32 knows multiples of 64 there.
  {
    std::ofstream file(table_);
    file << "id,time,y\n" << std::setprecision(15);
    for (int t = 0; t < kRows; ++t) file << "s0," << t << "," << 1e9 + 0.01 * (t % 12) << "\n";
  }
  dataset_ = std::make_unique<Dataset>(Dataset::fit(table_, data_options()));
  auto model = make_model();
  const auto forecast = predict(model, *dataset_, dataset_->windows(Split::kTest, 4), 8);
  EXPECT_LT((forecast - 1e9).abs().max().item<double>(), 1.0);
}

TEST_F(TrainTest, ReadsARunFolderBack) {
  auto model = make_model();
  train(model, *dataset_, short_training());
  save_trained_model(folder_, {model, dataset_->schema()});
  auto loaded = load_trained_model(folder_);
  expect_same_weights(model, loaded.model);
  EXPECT_EQ(loaded.schema.to_json(), dataset_->schema().to_json());
  const auto windows = dataset_->windows(Split::kTest, 4);
  const auto applied = Dataset::apply(table_, loaded.schema);
  EXPECT_TRUE(torch::equal(predict(model, *dataset_, windows, 8),
                           predict(loaded.model, applied, windows, 8)));
}

TEST_F(TrainTest, SaysWhatIsWrongWithARunFolder) {
  const auto error = [&] {
    return testing::error_of([&] { load_trained_model(folder_); });
  };
  EXPECT_THAT(testing::error_of([&] { load_trained_model(folder_ / "nowhere"); }),
              HasSubstr("no such run folder"));
  EXPECT_THAT(error(), HasSubstr("schema.json"));
  auto model = make_model();
  save_trained_model(folder_, {model, dataset_->schema()});
  auto file = load_safetensors(folder_ / "model.safetensors");
  const auto intact = file;
  file.tensors.erase("quantile.bias");
  save_safetensors(folder_ / "model.safetensors", file);
  EXPECT_THAT(error(), HasSubstr("parameter quantile.bias is missing"));
  file = intact;
  file.tensors["extra"] = torch::zeros({1});
  save_safetensors(folder_ / "model.safetensors", file);
  EXPECT_THAT(error(), HasSubstr("parameter extra is not of this model"));
  file = intact;
  file.tensors["quantile.bias"] = torch::zeros({5});
  save_safetensors(folder_ / "model.safetensors", file);
  EXPECT_THAT(error(), HasSubstr("quantile.bias is [5], expected [3]"));
  save_safetensors(folder_ / "model.safetensors", intact);
  std::ofstream(folder_ / "schema.json") << "{";
  EXPECT_THAT(error(), HasSubstr("schema.json: schema: "));
  auto schema = dataset_->schema();
  schema.static_variables.categorical.front().vocabulary.emplace_back("new");
  std::ofstream(folder_ / "schema.json") << schema.to_json();
  EXPECT_THAT(error(), HasSubstr("are not of the same run"));
  std::ofstream(folder_ / "schema.json") << dataset_->schema().to_json();
  file = intact;
  file.metadata.erase("tft_options");
  save_safetensors(folder_ / "model.safetensors", file);
  EXPECT_THAT(error(), HasSubstr("no tft_options"));
  save_safetensors(folder_ / "model.safetensors", intact);
  auto other = dataset_->schema();
  other.static_variables.categorical.at(0).vocabulary.push_back("s3");  // the id
  std::ofstream(folder_ / "schema.json") << other.to_json();
  EXPECT_THAT(error(), HasSubstr("are not of the same run"));
  std::ofstream(folder_ / "schema.json") << "{";
  EXPECT_THAT(error(), HasSubstr("schema.json: schema: is not JSON"));
}

TEST(SeasonLength, IsThatOfTheFrequencyWhereItDividesOne) {
  const auto of = [](TimeUnit unit, std::int64_t frequency) {
    Schema schema;
    schema.time_unit = unit;
    schema.frequency = frequency;
    return season_length(schema);
  };
  EXPECT_EQ(of(TimeUnit::kSecond, 3600), 24);
  EXPECT_EQ(of(TimeUnit::kMillisecond, 900'000), 96);  // 24 h / 15 min
  EXPECT_EQ(of(TimeUnit::kSecond, 15), 4);
  EXPECT_EQ(of(TimeUnit::kDay, 1), 7);
  EXPECT_EQ(of(TimeUnit::kDay, 7), 52);
  EXPECT_EQ(of(TimeUnit::kDay, 2), 1);          // no whole number in a week
  EXPECT_EQ(of(TimeUnit::kSecond, 25200), 24);  // 7 h: 24 in a week
  EXPECT_EQ(of(TimeUnit::kDay, -1), 12);        // months
  EXPECT_EQ(of(TimeUnit::kDay, -3), 4);
  EXPECT_EQ(of(TimeUnit::kStep, 1), 1);
}

TEST(Baselines, AgreeWithThePublishedFiguresOfTheEtTable) {
  DataOptions options;
  options.time = "date";
  options.target = {"HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"};
  options.encoder_length = 168;
  options.horizon = 24;
  options.train_until = "2017-06-26 00:00:00";
  options.valid_until = "2017-10-24 00:00:00";
  options.test_until = "2018-02-21 00:00:00";
  const auto dataset =
      Dataset::fit(std::filesystem::path(REPRISE_TEST_DIR) / "../data/ETTh1.csv", options);
  const auto windows = dataset.windows(Split::kTest, 24);
  ASSERT_EQ(windows.size(), 840U);  // 7 columns * 120 days
  TftOptions tft{.hidden_size = 4, .attention_heads = 1};
  dataset.describe(tft);
  TemporalFusionTransformer untrained(tft);
  const auto scores = evaluate(untrained, dataset, windows, 120);
  ASSERT_EQ(scores.size(), 3U);
  const auto expect_risk = [&](const Score& score, const char* name, std::vector<double> risk) {
    EXPECT_EQ(score.name, name);
    for (std::size_t q = 0; q < 3; ++q) {
      // The median is exact to the four decimals given; the others depend a little on which
      // training windows the errors come from.
      EXPECT_NEAR(score.q_risk[q], risk[q], q == 1 ? 6e-5 : 2e-4) << name << " " << q;
    }
  };
  // The table of data/README.md, four decimals.
  expect_risk(scores[1], "seasonal naive (24)", {0.1605, 0.2945, 0.1608});
  expect_risk(scores[2], "last value", {0.1735, 0.4482, 0.1431});
}

}  // namespace
}  // namespace reprise
