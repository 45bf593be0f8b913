// SPDX-License-Identifier: Apache-2.0
// Tables that are read with the schema of another: categories, scalers, the future.
#include "tests/data_tables.h"

#include <cmath>

namespace reprise {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::integers;
using testing::Panel;
using testing::perturbed;
using testing::reals;
using testing::short_windows;
using testing::texts;
using testing::wave;
using testing::write_parquet;

TEST(Categories, NotSeenInTrainingAreCodeZero) {
  std::vector<std::string> kinds;
  auto columns = Panel{.values = {{"y", wave}}}.columns();
  for (int row = 0; row < 120; ++row)
    kinds.push_back(row % 60 == 59 ? "late" : row % 2 == 0 ? "b" : "a");
  columns.emplace_back("known_kind", texts(kinds));
  const auto dataset = Dataset::fit(write_parquet("kinds.parquet", columns), short_windows());
  const auto& kind = dataset.schema().known.categorical.front();
  EXPECT_THAT(kind.vocabulary, ElementsAre("a", "b"));
  EXPECT_EQ(kind.cardinality(), 3);
  EXPECT_THAT(testing::findings_of(dataset),
              HasSubstr("2 values of column 'known_kind' not in the training rows: 'late' -> taken "
                        "as the unknown category"));
  const std::vector<Window> last = {{0, 57}};
  const auto codes = dataset.gather(last).input.known_categorical;
  EXPECT_EQ(codes.index({0, -1, 0}).item<std::int64_t>(), 0);
  EXPECT_EQ(codes.index({0, -2, 0}).item<std::int64_t>(), 2);  // row 58
}

TEST(Categories, ThatAreMissingAreCodeZero) {
  auto columns = Panel{.values = {{"y", wave}}}.columns();
  std::vector<std::optional<std::string>> kinds(120, "a");
  kinds[7] = {};
  kinds[8] = "b";
  columns.emplace_back("observed_kind",
                       testing::array_of<arrow::StringBuilder, std::string>(arrow::utf8(), kinds));
  const auto dataset = Dataset::fit(write_parquet("null_kinds.parquet", columns), short_windows());
  EXPECT_THAT(testing::findings_of(dataset),
              HasSubstr("1 missing value of column 'observed_kind'"));
}

// Reported elsewhere: a new id at prediction time ended in a KeyError, an embedding out of range or
// a device assertion.
TEST(Apply, TakesSeriesNotSeenInTraining) {
  const auto schema =
      Dataset::fit(Panel{.values = {{"y", wave}, {"observed_x", wave}}}.write("old.parquet"),
                   short_windows())
          .schema();
  const auto dataset = Dataset::apply(
      Panel{.series = 3, .values = {{"y", wave}, {"observed_x", wave}}}.write("new.parquet"),
      schema);
  EXPECT_THAT(testing::findings_of(dataset),
              HasSubstr("1 value of column 'id' not in the training rows: 'c'"));
  const std::vector<Window> windows = {{0, 20}, {2, 20}};
  const auto batch = dataset.gather(windows);
  EXPECT_EQ(batch.input.static_categorical[0][0].item<std::int64_t>(), 1);
  EXPECT_EQ(batch.input.static_categorical[1][0].item<std::int64_t>(), 0);
  EXPECT_EQ(batch.center[1].item<double>(), schema.target.global.center);
  TftOptions model;
  dataset.describe(model);
  EXPECT_THAT(model.static_cardinalities, ElementsAre(3));
}

TEST(Apply, RefitsNothing) {
  const auto options = short_windows();
  const auto schema = Dataset::fit(perturbed(1000, 0.0).write("plain.parquet"), options).schema();
  const auto applied = Dataset::apply(perturbed(0, 1e3).write("shifted.parquet"), schema);
  EXPECT_EQ(applied.schema().to_json(), schema.to_json());
}

TEST(Apply, ReadsOnlyKnownColumnsOfTheFuture) {
  const auto schema =
      Dataset::fit(perturbed(1000, 0.0).write("plain.parquet"), short_windows()).schema();
  const auto past = [](int s, int t) {
    return t < 97 ? wave(s, t) : std::nan("");
  };
  const Panel panel{
      .series = 3, .steps = 100, .values = {{"y", past}, {"observed_x", past}, {"known_z", wave}}};
  const auto dataset = Dataset::apply(panel.write("open.parquet"), schema);
  const auto windows = dataset.forecast_windows();
  EXPECT_THAT(windows, ElementsAre(Window{0, 97}, Window{1, 97}, Window{2, 97}));
  const auto batch = dataset.gather(windows);
  EXPECT_TRUE(torch::isnan(batch.target).all().item<bool>());
  EXPECT_TRUE(torch::isfinite(batch.input.observed_real).all().item<bool>());
  const auto& scaler = schema.known.real.front().series.at("b");
  EXPECT_FLOAT_EQ(batch.input.known_real.index({1, -1, 0}).item<float>(),
                  static_cast<float>((wave(1, 99) - scaler.center) / scaler.scale));
}

TEST(Apply, SaysWhichSeriesLackTheirFuture) {
  const auto dataset = Dataset::fit(perturbed(1000, 0.0).write("plain.parquet"), short_windows());
  EXPECT_THAT(error_of<DataError>([&] { dataset.forecast_windows(); }),
              AllOf(HasSubstr("3 series lack the 3 rows that follow"), HasSubstr("'known_z'"),
                    HasSubstr("'id=a'")));
}

TEST(Apply, ListsMissingColumns) {
  const auto schema =
      Dataset::fit(perturbed(1000, 0.0).write("plain.parquet"), short_windows()).schema();
  const auto file = Panel{.values = {{"y", wave}}}.write("fewer.parquet");
  EXPECT_THAT(error_of<DataError>([&] { Dataset::apply(file, schema); }),
              HasSubstr("lacks 'known_z' and 'observed_x'"));
}

TEST(Apply, RefusesAnotherFrequency) {
  const auto schema =
      Dataset::fit(Panel{.values = {{"y", wave}}}.write("steps.parquet"), short_windows()).schema();
  std::vector<std::int64_t> times;
  for (int t = 0; t < 60; ++t) times.push_back(7 * t);
  const auto file =
      write_parquet("sevens.parquet", {{"id", texts(std::vector<std::string>(60, "a"))},
                                       {"time", integers(times)},
                                       {"y", reals(std::vector<double>(60, 1.0))}});
  EXPECT_THAT(
      error_of<DataError>([&] { Dataset::apply(file, schema); }),
      HasSubstr("the samples are 7 steps apart, the model was trained on samples 1 step apart"));
}

TEST(Forecasts, NeedNoFutureRowsWithoutKnownColumns) {
  auto options = short_windows();
  options.lags = {3};
  const auto dataset =
      Dataset::fit(Panel{.values = {{"y", wave}}}.write("none_known.parquet"), options);
  EXPECT_EQ(dataset.row_count(), 120);
  const auto windows = dataset.forecast_windows();
  EXPECT_THAT(windows, ElementsAre(Window{0, 60}, Window{1, 60}));
  const auto batch = dataset.gather(windows);
  EXPECT_TRUE(torch::isfinite(batch.input.known_real).all().item<bool>());
  EXPECT_EQ(dataset.time_at(windows[0], 2), 62);
}

}  // namespace
}  // namespace reprise
