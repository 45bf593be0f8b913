// SPDX-License-Identifier: Apache-2.0
#include "tests/data_tables.h"

#include <rapidcheck/gtest.h>

#include <cmath>
#include <set>

namespace reprise {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using testing::fit_error;
using ::testing::HasSubstr;
using testing::integers;
using testing::Panel;
using testing::perturbed;
using testing::reals;
using testing::same_bytes;
using testing::same_inputs;
using testing::short_windows;
using testing::texts;
using testing::wave;
using testing::write_parquet;
TEST(Splits, CutEachSeriesByFractions) {
  auto options = short_windows(6, 3);
  options.valid_fraction = 0.29;
  options.test_fraction = 0.2;
  const auto dataset = Dataset::fit(
      Panel{.series = 1, .steps = 100, .values = {{"y", wave}}}.write("f.parquet"), options);
  // 100 rows: 51 of training, 29 of validation, 20 of test.
  const auto train = dataset.windows(Split::kTrain);
  EXPECT_EQ(train.front(), (Window{0, 6}));
  EXPECT_EQ(train.back(), (Window{0, 48}));
  EXPECT_EQ(train.size(), 43U);  // 51 - 6 - 3 + 1
  const auto valid = dataset.windows(Split::kValid);
  EXPECT_EQ(valid.front(), (Window{0, 51}));
  EXPECT_EQ(valid.back(), (Window{0, 77}));
  const auto test = dataset.windows(Split::kTest, 3);
  EXPECT_EQ(test.front(), (Window{0, 80}));
  EXPECT_EQ(test.size(), 6U);  // 80, 83, ..., 95
}

TEST(Splits, CutAllSeriesByTime) {
  auto options = short_windows(6, 3);
  options.train_until = "60";
  options.valid_until = "80";
  options.test_until = "95";
  const auto dataset =
      Dataset::fit(Panel{.steps = 100, .values = {{"y", wave}}}.write("t.parquet"), options);
  EXPECT_EQ(dataset.windows(Split::kTrain).back(), (Window{1, 57}));
  EXPECT_EQ(dataset.windows(Split::kValid).front(), (Window{0, 60}));
  EXPECT_EQ(dataset.windows(Split::kTest).back(), (Window{1, 92}));
  options.train_until = "soon";
  EXPECT_THAT(
      error_of<OptionError>([&] { Dataset::fit(testing::temp_path("t.parquet"), options); }),
      HasSubstr("train_until: 'soon' is not an integer step"));
}

TEST(Windows, KeepLagsWithinTheSeries) {
  auto options = short_windows(6, 3);
  options.lags = {4, 10};
  const auto dataset = Dataset::fit(
      Panel{.series = 1, .steps = 100, .values = {{"y", wave}}}.write("l.parquet"), options);
  EXPECT_EQ(dataset.windows(Split::kTrain).front(), (Window{0, 16}));
  EXPECT_THAT(dataset.future_names(), ElementsAre("lag_4", "lag_10"));
  const std::vector<Window> window = {{0, 16}};
  const auto batch = dataset.gather(window);
  for (int n = 0; n < 9; ++n) {
    for (int lag = 0; lag < 2; ++lag) {
      const double raw =
          batch.input.known_real.index({0, n, lag}).item<float>() * batch.scale[0].item<double>() +
          batch.center[0].item<double>();
      EXPECT_NEAR(raw, wave(0, 10 + n - (lag == 0 ? 4 : 10)), 1e-5);
    }
  }
}

// Reported elsewhere: months of made-up rows, where hourly data has a hole.
TEST(Windows, NeverCrossAGap) {
  std::vector<std::int64_t> times;
  std::vector<double> y;
  for (int t = 0; t < 100; ++t) {
    times.push_back(t < 40 ? t : t + 1000);
    y.push_back(wave(0, t));
  }
  auto options = short_windows(6, 3);
  options.test_fraction = 0.0;
  const auto dataset = Dataset::fit(
      write_parquet("gap.parquet", {{"time", integers(times)}, {"y", reals(y)}}), options);
  EXPECT_THAT(testing::findings_of(dataset),
              HasSubstr("gaps in time (rows missing at a frequency of 1 step): 1, first: after row "
                        "40 (39) comes 1040"));
  std::set<int> origins;
  for (const auto& window : dataset.windows(Split::kTrain)) origins.insert(window.origin);
  EXPECT_TRUE(origins.contains(37));
  EXPECT_FALSE(origins.contains(38));
  EXPECT_FALSE(origins.contains(45));
  EXPECT_TRUE(origins.contains(46));
  EXPECT_THAT(dataset.history({0, 50}, 24).size(), 10U);
  const std::vector<Window> crossing = {{0, 42}};
  EXPECT_THROW(dataset.gather(crossing), c10::ValueError);
}

TEST(Series, ThatAreTooShortAreLeftOutWithTheirLengths) {
  std::vector<std::string> ids;
  std::vector<std::int64_t> times;
  std::vector<double> y;
  for (const auto& [id, length] : {std::pair{"long", 100}, {"short", 8}, {"tiny", 1}}) {
    for (int t = 0; t < length; ++t) {
      ids.emplace_back(id);
      times.push_back(t);
      y.push_back(wave(0, t));
    }
  }
  const auto dataset =
      Dataset::fit(write_parquet("short.parquet",
                                 {{"id", texts(ids)}, {"time", integers(times)}, {"y", reals(y)}}),
                   short_windows(6, 3));
  EXPECT_EQ(dataset.series_count(), 1);
  EXPECT_THAT(testing::findings_of(dataset),
              HasSubstr("2 of 3 series are shorter than encoder 6 + horizon 3 = 9 (1 to 8 rows), "
                        "first: id=short -> left out"));
}

TEST(Series, ThatAreAllTooShortSayWhatWouldFit) {
  EXPECT_THAT(
      fit_error(Panel{.steps = 60, .values = {{"y", wave}}}.write("all_short.parquet"),
                short_windows(168, 24)),
      AllOf(HasSubstr("all 2 series are shorter than encoder 168 + horizon 24 = 192"),
            HasSubstr("42 rows"),
            HasSubstr("encoder 32 with horizon 10 would fit")));  // 60 - 2 * 9 = 42 training rows
}

TEST(Rows, ThatRepeatATimeAreNamed) {
  const auto file =
      write_parquet("repeats.parquet", {{"time", integers({0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10})},
                                        {"y", reals(std::vector<double>(12, 1.0))}});
  EXPECT_THAT(fit_error(file), AllOf(HasSubstr("1 row repeats the time of another row"),
                                     HasSubstr("row 2 (1) and row 3 (1)"),
                                     HasSubstr("name the column that tells the series apart")));
}

TEST(Rows, MayComeInAnyOrder) {
  auto columns = perturbed(1000, 0.0).columns();
  const auto sorted = Dataset::fit(write_parquet("sorted.parquet", columns), short_windows());
  for (auto& [name, array] : columns) {
    arrow::ArrayVector pieces;
    // 7 and 300 share no divisor, so this is a permutation.
    for (std::int64_t i = 0; i < 300; ++i) pieces.push_back(array->Slice(i * 7 % 300, 1));
    array = arrow::Concatenate(pieces).ValueOrDie();
  }
  const auto shuffled = Dataset::fit(write_parquet("shuffled.parquet", columns), short_windows());
  EXPECT_EQ(sorted.schema().to_json(), shuffled.schema().to_json());
  const auto windows = sorted.windows(Split::kTrain);
  EXPECT_EQ(windows, shuffled.windows(Split::kTrain));
  EXPECT_TRUE(same_inputs(sorted.gather(windows).input, shuffled.gather(windows).input));
}

// Reported elsewhere: one NaN in the target made the loss NaN without a word.
TEST(Values, ThatAreMissingInTheTargetAreNamed) {
  const Panel panel{.values = {{"y", [](int s, int t) {
                                  return t == 20 || (s == 1 && t == 30) ? std::nan("") : wave(s, t);
                                }}}};
  EXPECT_THAT(fit_error(panel.write("nan_y.parquet")),
              AllOf(HasSubstr("column 'y' (target) has 3 missing or NaN values"),
                    HasSubstr("row 21 (id=a, 20), row 81 (id=b, 20)")));
}

TEST(Values, ThatAreNotFiniteInFeaturesAreNamed) {
  for (const double bad : std::vector<double>{std::nan(""), HUGE_VAL, 1e300}) {
    const Panel panel{.values = {{"y", wave}, {"observed_x", [=](int s, int t) {
                                                 return s == 1 && t == 5 ? bad : wave(s, t);
                                               }}}};
    EXPECT_THAT(fit_error(panel.write("bad_x.parquet")),
                AllOf(HasSubstr("column 'observed_x' has 1 value"), HasSubstr("row 66 (id=b, 5)")));
  }
}

TEST(Values, OfTheTargetMustFitFloat32) {
  const Panel panel{.values = {{"y", [](int s, int t) { return t == 9 ? 1e39 : wave(s, t); }}}};
  EXPECT_THAT(fit_error(panel.write("huge.parquet")), HasSubstr("beyond the range of float32"));
}

TEST(Scalers, ArePopulationStatisticsOfTrainingRows) {
  auto options = short_windows(2, 1);
  options.train_until = "4";
  options.valid_until = "4";
  // Training rows 1, 3, 1, 3: mean 2, deviation 1; the rest would change both.
  const Panel panel{.series = 1, .steps = 8, .values = {{"y", [](int, int t) {
                                                           return t < 4 ? 1.0 + 2 * (t % 2) : 100.0;
                                                         }}}};
  const auto dataset = Dataset::fit(panel.write("mean.parquet"), options);
  EXPECT_EQ(dataset.schema().target.series.at("a"), (Scaler{2.0, 1.0}));
  const std::vector<Window> window = {{0, 2}};
  EXPECT_EQ(dataset.gather(window).target[0][0].item<float>(), -1.0F);
}

TEST(Scalers, OfSeriesOfConstantsAreOne) {
  const Panel panel{.values = {{"y", [](int s, int t) { return s == 0 ? 0.1 : wave(s, t); }}}};
  const auto dataset = Dataset::fit(panel.write("constant.parquet"), short_windows());
  EXPECT_EQ(dataset.schema().target.series.at("a").scale, 1.0);
  EXPECT_THAT(testing::findings_of(dataset),
              HasSubstr("constant in the training rows: 'y' in 1 of 2 series -> scaled by 1"));
}

// The mean of 1e30 a hundred times is off by rounding, 1e14 and not 0.
TEST(Scalers, OfLargeConstantsLeaveNothingOfTheRounding) {
  const Panel panel{.values = {{"y", [](int s, int t) { return s == 0 ? 1e30 / 3 : wave(s, t); }}}};
  const auto dataset = Dataset::fit(panel.write("large.parquet"), short_windows());
  for (const auto& window : dataset.windows(Split::kTrain)) {
    const std::vector<Window> one = {window};
    EXPECT_LE(dataset.gather(one).target.abs().max().item<float>(), 100.0F);
  }
}

TEST(Scalers, AreExactFarFromZero) {
  auto options = short_windows(2, 1);
  const Panel panel{
      .series = 1, .steps = 40, .values = {{"y", [](int, int t) { return 1e9 + t % 2; }}}};
  const auto dataset = Dataset::fit(panel.write("far.parquet"), options);
  EXPECT_DOUBLE_EQ(dataset.schema().target.series.at("a").center, 1e9 + 0.5);
  EXPECT_DOUBLE_EQ(dataset.schema().target.series.at("a").scale, 0.5);
  const std::vector<Window> window = {{0, 3}};
  const auto batch = dataset.gather(window);
  EXPECT_DOUBLE_EQ(
      (batch.target.to(torch::kDouble) * batch.scale.unsqueeze(1) + batch.center.unsqueeze(1))
          .item<double>(),
      1e9 + 1);
}

TEST(Scalers, FollowTheOptions) {
  const Panel panel{.values = {{"y", wave}, {"observed_x", wave}}};
  auto options = short_windows();
  options.normalize = Normalization::kNone;
  const std::vector<Window> windows = {{0, 10}, {1, 10}};
  const auto raw = Dataset::fit(panel.write("modes.parquet"), options).gather(windows);
  EXPECT_FLOAT_EQ(raw.target[1][0].item<float>(), static_cast<float>(wave(1, 10)));
  EXPECT_EQ(raw.scale[0].item<double>(), 1.0);
  options.normalize = Normalization::kGlobal;
  const auto global = Dataset::fit(testing::temp_path("modes.parquet"), options);
  EXPECT_TRUE(global.schema().target.series.empty());
  EXPECT_TRUE(torch::equal(global.gather(windows).center[0], global.gather(windows).center[1]));
  options.normalize = Normalization::kSeries;
  const auto series = Dataset::fit(testing::temp_path("modes.parquet"), options).gather(windows);
  EXPECT_NEAR((series.center[1] - series.center[0]).item<double>(), 10.0, 1e-9);
}

// Reported elsewhere: scalers fitted on all rows, the forecast horizon included.
TEST(Training, DoesNotSeeValidationAndTestRows) {
  for (const auto mode : {Normalization::kSeries, Normalization::kWindow, Normalization::kGlobal}) {
    auto options = short_windows();
    options.normalize = mode;
    const auto plain = Dataset::fit(perturbed(1000, 0.0).write("plain.parquet"), options);
    // 100 rows: 70 of training.
    const auto changed = Dataset::fit(perturbed(70, 1e4).write("changed.parquet"), options);
    EXPECT_EQ(plain.schema().to_json(), changed.schema().to_json());
    const auto windows = plain.windows(Split::kTrain);
    ASSERT_EQ(windows, changed.windows(Split::kTrain));
    const auto a = plain.gather(windows);
    const auto b = changed.gather(windows);
    EXPECT_TRUE(same_inputs(a.input, b.input));
    EXPECT_TRUE(same_bytes(a.target, b.target));
    EXPECT_TRUE(same_bytes(a.center, b.center));
    // One step earlier it must show: else nothing would have been tested.
    EXPECT_NE(plain.schema().to_json(),
              Dataset::fit(perturbed(69, 1e4).write("seen.parquet"), options).schema().to_json());
  }
}

// Reported elsewhere: a window's mean and deviation taken over its horizon as well.
TEST(Inputs, DoNotSeeTheHorizon) {
  for (const auto mode : {Normalization::kSeries, Normalization::kWindow, Normalization::kNone}) {
    auto options = short_windows();
    options.normalize = mode;
    options.lags = {3, 7};
    const std::vector<Window> windows = {{0, 90}, {1, 90}, {2, 90}};
    const auto plain =
        Dataset::fit(perturbed(1000, 0.0).write("plain.parquet"), options).gather(windows);
    const auto changed =
        Dataset::fit(perturbed(90, 1e4).write("changed.parquet"), options).gather(windows);
    EXPECT_TRUE(same_inputs(plain.input, changed.input));
    EXPECT_TRUE(same_bytes(plain.center, changed.center));
    EXPECT_TRUE(same_bytes(plain.scale, changed.scale));
    EXPECT_FALSE(same_bytes(plain.target, changed.target));
  }
}

// Reported elsewhere: a series of zeros and one spike, divided by a deviation of nearly nothing.
TEST(WindowScalers, StayModerateOnAFlatEncoder) {
  auto options = short_windows();
  options.normalize = Normalization::kWindow;
  const Panel panel{
      .series = 1, .steps = 100, .values = {{"y", [](int, int t) { return t == 30 ? 1.0 : 0.0; }}}};
  const auto dataset = Dataset::fit(panel.write("spike.parquet"), options);
  const std::vector<Window> window = {{0, 30}};
  const auto batch = dataset.gather(window);
  EXPECT_TRUE(torch::isfinite(batch.target).all().item<bool>());
  // 70 training rows, one of them 1: deviation sqrt(1/70 * 69/70) = 0.1187; the spike is 1 / (0.1 *
  // 0.1187) = 84.
  EXPECT_NEAR(batch.target.max().item<double>(), 84.3, 0.1);
}

TEST(WindowScalers, AreOfTheEncoderAlone) {
  auto options = short_windows();
  options.normalize = Normalization::kWindow;
  const auto dataset = Dataset::fit(perturbed(1000, 0.0).write("plain.parquet"), options);
  const auto batch = dataset.gather(dataset.windows(Split::kTrain));
  const auto past = batch.input.observed_real.select(2, 0).to(torch::kDouble);
  EXPECT_TRUE(torch::allclose(past.mean(1), torch::zeros({past.size(0)}, torch::kDouble), 0, 1e-6));
  EXPECT_TRUE(
      torch::allclose(past.std(1, false), torch::ones({past.size(0)}, torch::kDouble), 0, 1e-5));
}

/// A random panel with gaps, and options that fit it.
struct Trial {
  std::vector<std::vector<std::int64_t>> times;
  DataOptions options;
};

Trial random_trial() {
  Trial trial;
  trial.options = short_windows(*rc::gen::inRange(1, 6), *rc::gen::inRange(1, 4));
  trial.options.normalize = *rc::gen::element(Normalization::kSeries, Normalization::kWindow,
                                              Normalization::kGlobal, Normalization::kNone);
  if (*rc::gen::arbitrary<bool>())
    trial.options.lags = {trial.options.horizon + *rc::gen::inRange(0, 4)};
  const int series = *rc::gen::inRange(1, 4);
  for (int s = 0; s < series; ++s) {
    auto& times = trial.times.emplace_back();
    std::int64_t time = *rc::gen::inRange(0, 5);
    const int count = *rc::gen::inRange(20, 60);
    const int gap = *rc::gen::inRange(10, 2 * count);
    for (int t = 0; t < count; ++t) times.push_back(time += t == gap ? 5 : 1);
  }
  return trial;
}

RC_GTEST_PROP(Windows, AreAllThatFitAndGatherTheirOwnRows, ()) {
  const auto trial = random_trial();
  const auto value = [](std::size_t s, std::int64_t time) {
    return wave(static_cast<int>(s), static_cast<int>(time));
  };
  std::vector<std::string> ids;
  std::vector<std::int64_t> times;
  std::vector<double> y;
  for (std::size_t s = 0; s < trial.times.size(); ++s) {
    for (const std::int64_t time : trial.times[s]) {
      ids.emplace_back(1, static_cast<char>('a' + s));
      times.push_back(time);
      y.push_back(value(s, time));
    }
  }
  const auto file = write_parquet("trial.parquet",
                                  {{"id", texts(ids)}, {"time", integers(times)}, {"y", reals(y)}});
  const auto dataset = Dataset::fit(file, trial.options);
  const std::int64_t encoder = trial.options.encoder_length;
  const std::int64_t horizon = trial.options.horizon;
  const std::int64_t history =
      encoder + (trial.options.lags.empty() ? 0 : trial.options.lags.front());
  std::vector<std::pair<std::string, std::int64_t>>
      expected;  // every place with rows one step apart, whatever its split
  for (std::size_t s = 0; s < trial.times.size(); ++s) {
    const auto& own = trial.times[s];
    const auto rows = static_cast<std::int64_t>(own.size());
    const auto at = [&](std::int64_t row) {
      return own[static_cast<std::size_t>(row)];
    };
    const auto test = static_cast<std::int64_t>(0.15 * static_cast<double>(rows) + 1e-6);
    for (std::int64_t origin = history; origin + horizon <= rows; ++origin) {
      const bool has_gap = at(origin + horizon - 1) - at(origin - history) != horizon + history - 1;
      const auto split = [&](std::int64_t row) {
        return row < rows - 2 * test ? 0 : row < rows - test ? 1 : 2;
      };
      if (has_gap || split(origin) != split(origin + horizon - 1)) continue;
      expected.emplace_back(std::string(1, static_cast<char>('a' + s)), at(origin));
    }
  }
  std::vector<std::pair<std::string, std::int64_t>> found;
  for (const auto split : {Split::kTrain, Split::kValid, Split::kTest}) {
    for (const auto& window : dataset.windows(split)) {
      found.emplace_back(dataset.series_key(window).front(), dataset.time_at(window, 0));
      const auto batch = dataset.gather({&window, 1});
      const auto raw = [&](const torch::Tensor& tensor) {
        return tensor.to(torch::kDouble) * batch.scale[0] + batch.center[0];
      };
      const auto s = static_cast<std::size_t>(found.back().first[0] - 'a');
      for (std::int64_t step = -encoder; step < horizon; ++step) {
        const auto tensor = step < 0 ? batch.input.observed_real.index({0, step + encoder, 0})
                                     : batch.target.index({0, step});
        RC_ASSERT(std::abs(raw(tensor).item<double>() - value(s, dataset.time_at(window, step))) <
                  1e-4);
      }
    }
  }
  // Series that are too short have no windows in either list only if they have none at all.
  std::sort(found.begin(), found.end());
  std::sort(expected.begin(), expected.end());
  RC_ASSERT(found == expected);
}

}  // namespace
}  // namespace reprise
