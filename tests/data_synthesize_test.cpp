// SPDX-License-Identifier: Apache-2.0
#include "reprise/forecast_table.h"
#include "reprise/synthesize.h"
#include "tests/data_tables.h"

#include <cmath>
#include <fstream>

namespace reprise {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::short_windows;
using testing::temp_path;

TEST(Synthesize, MakesTheLayoutOfTft225) {
  auto options = synthesize_preset("tft-225");
  options.series = 3;
  options.steps = 60;
  const auto file = temp_path("tft225.parquet");
  synthesize(file, options);
  const auto dataset = Dataset::fit(file, short_windows());
  EXPECT_EQ(dataset.static_names().size(), 5U);
  EXPECT_EQ(dataset.historical_names().size(), 210U);  // the target, 199 observed, 10 known
  EXPECT_EQ(dataset.future_names().size(), 10U);
  EXPECT_EQ(dataset.series_count(), 3);
  EXPECT_EQ(dataset.row_count(), 180);
  EXPECT_THAT(error_of<OptionError>([] { synthesize_preset("tft-9"); }), HasSubstr("'tft-225'"));
}

TEST(Synthesize, GivesEqualFilesForEqualOptions) {
  const auto values = [](std::uint64_t seed) {
    const auto file = temp_path("seed.parquet");
    synthesize(file, {.series = 2, .steps = 50, .seed = seed});
    return testing::read_parquet(file);
  };
  EXPECT_TRUE(values(1)->Equals(*values(1)));
  EXPECT_FALSE(values(1)->Equals(*values(2)));
}

TEST(Synthesize, HidesASignalInTheColumns) {
  const auto file = temp_path("signal.parquet");
  synthesize(file, {.series = 1,
                    .steps = 2000,
                    .static_reals = 0,
                    .static_categoricals = 0,
                    .observed = 2,
                    .known = 1,
                    .noise = 0.1});
  const auto table = testing::read_parquet(file);
  const auto column = [&](const std::string& name) {
    return std::static_pointer_cast<arrow::FloatArray>(table->GetColumnByName(name)->chunk(0));
  };
  // What is left after the cycle, the known column and the observed columns of a season ago is the
  // noise.
  double squares = 0.0;
  for (int t = 24; t < 2000; ++t) {
    const double signal =
        std::sin(2.0 * M_PI * (t % 24) / 24.0) + 0.35 * column("known_0")->Value(t) +
        0.35 * (column("observed_0")->Value(t - 24) + column("observed_1")->Value(t - 24));
    squares += std::pow(column("target")->Value(t) - signal, 2);
  }
  EXPECT_NEAR(std::sqrt(squares / 1976), 0.1, 0.01);
}

TEST(Synthesize, LeavesNothingBehindWhereItCannotWrite) {
  EXPECT_THAT(error_of<DataError>([] { synthesize("/nonexistent/x.parquet", {}); }),
              HasSubstr("cannot write /nonexistent/x.parquet"));
  EXPECT_EQ(error_of<OptionError>([] { synthesize(temp_path("x.parquet"), {.series = 0}); }),
            "series: is 0, must be 1 to 1099511627776");
}

TEST(ForecastWriter, WritesATableThatCanBeReadBack) {
  const auto file = temp_path("source.parquet");
  synthesize(file, {.series = 2, .steps = 60, .known = 0});
  const auto dataset = Dataset::fit(file, short_windows());
  const auto windows = dataset.forecast_windows();
  const auto out = temp_path("forecasts.parquet");
  const auto forecasts = torch::arange(2 * 3 * 2, torch::kFloat).view({2, 3, 2});
  write_forecasts(out, dataset, windows, forecasts, {0.1, 0.5});
  const auto table = testing::read_parquet(out);
  EXPECT_THAT(table->ColumnNames(), ElementsAre("id", "origin", "time", "horizon", "q0.1", "q0.5"));
  EXPECT_EQ(table->num_rows(), 6);
  const auto row = [&](const std::string& name, std::int64_t i) {
    return table->GetColumnByName(name)->GetScalar(i).ValueOrDie()->ToString();
  };
  EXPECT_EQ(row("id", 3), "series_1");
  EXPECT_EQ(row("origin", 4), "59");
  EXPECT_EQ(row("time", 4), "61");
  EXPECT_EQ(row("horizon", 4), "2");
  EXPECT_EQ(row("q0.5", 4), "9");
}

TEST(ForecastWriter, KeepsTheTypeOfTimeAndNamesTargets) {
  std::string csv = "date,a,b\n";
  for (int day = 1; day <= 31; ++day)
    csv += "2020-01-" + std::string(day < 10 ? "0" : "") + std::to_string(day) + "," +
           std::to_string(day % 5) + "," + std::to_string(day % 3) + "\n";
  auto options = short_windows();
  options.target = {"a", "b"};
  const auto dataset = Dataset::fit(testing::write_text("days.csv", csv), options);
  const auto out = temp_path("daily.parquet");
  write_forecasts(out, dataset, dataset.forecast_windows(), torch::zeros({2, 3, 1}), {0.5});
  const auto table = testing::read_parquet(out);
  EXPECT_THAT(table->ColumnNames(), ElementsAre("target", "origin", "time", "horizon", "q0.5"));
  EXPECT_EQ(table->GetColumnByName("time")->GetScalar(0).ValueOrDie()->ToString(), "2020-02-01");
  EXPECT_EQ(table->GetColumnByName("target")->GetScalar(5).ValueOrDie()->ToString(), "b");
}

TEST(ForecastWriter, LeavesNothingWithoutFinish) {
  const auto file = temp_path("source.parquet");
  synthesize(file, {.series = 2, .steps = 60, .known = 0});
  const auto dataset = Dataset::fit(file, short_windows());
  const auto out = temp_path("unfinished.parquet");
  {
    ForecastWriter writer(out, dataset.schema(), {0.5});
    EXPECT_THROW(writer.append(dataset, dataset.forecast_windows(), torch::zeros({2, 3, 2})),
                 c10::ValueError);
    writer.append(dataset, dataset.forecast_windows(), torch::zeros({2, 3, 1}));
  }
  for (const auto& entry : std::filesystem::directory_iterator(out.parent_path())) {
    EXPECT_THAT(entry.path().string(), ::testing::Not(HasSubstr("unfinished")));
  }
}

}  // namespace
}  // namespace reprise
