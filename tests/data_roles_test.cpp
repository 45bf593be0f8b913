// SPDX-License-Identifier: Apache-2.0
#include "tests/data_tables.h"

#include <cmath>

namespace reprise {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::integers;
using ::testing::IsEmpty;
using testing::Panel;
using testing::reals;
using testing::short_windows;
using testing::texts;
using testing::wave;
using testing::write_parquet;

TEST(InferRoles, FollowsTheValues) {
  Panel panel{.series = 3,
              .values = {{"size", [](int s, int) { return s * s; }},
                         {"weather", [](int s, int t) { return std::cos(s + t); }},
                         {"version", [](int, int) { return 4.0; }},
                         {"y", wave}}};
  const auto dataset = Dataset::fit(panel.write("values.parquet"), short_windows());
  const auto& options = dataset.schema().options;
  EXPECT_EQ(options.time, "time");
  EXPECT_THAT(options.id, ElementsAre("id"));
  EXPECT_THAT(options.target, ElementsAre("y"));
  EXPECT_THAT(options.static_columns, ElementsAre("size"));
  EXPECT_THAT(options.observed, ElementsAre("weather"));
  EXPECT_THAT(options.known, IsEmpty());
  EXPECT_FALSE(options.infer);
  EXPECT_THAT(testing::findings_of(dataset),
              HasSubstr("1 column the same in all rows: 'version' -> left out"));
}

TEST(InferRoles, TakesColumnsWithAFutureAsKnown) {
  const auto past = [](Panel::Value value) {
    return [value](int s, int t) {
      return t < 50 ? value(s, t) : std::nan("");
    };
  };
  Panel panel{.values = {{"y", past(wave)}, {"price", wave}, {"visits", past(wave)}}};
  const auto dataset = Dataset::fit(panel.write("future.parquet"), short_windows());
  EXPECT_THAT(dataset.schema().options.known, ElementsAre("price"));
  EXPECT_THAT(dataset.schema().options.observed, ElementsAre("visits"));
  EXPECT_THAT(testing::findings_of(dataset),
              HasSubstr("20 rows at the end of series have no target"));
}

TEST(InferRoles, FollowsPrefixes) {
  Panel panel{.values = {{"target", wave},
                         {"observed_a", wave},
                         {"known_b", wave},
                         {"static_c", [](int, int) { return 1.0; }}}};
  const auto dataset = Dataset::fit(panel.write("prefixes.parquet"), short_windows());
  EXPECT_THAT(dataset.static_names(), ElementsAre("static_c"));
  EXPECT_THAT(dataset.historical_names(), ElementsAre("target", "observed_a", "known_b"));
  EXPECT_THAT(dataset.future_names(), ElementsAre("known_b"));
}

TEST(InferRoles, MakesTheIdAStaticCategoryOnlyWhereNothingElseIsStatic) {
  const Panel without{.values = {{"y", wave}}};
  EXPECT_THAT(Dataset::fit(without.write("w.parquet"), short_windows()).static_names(),
              ElementsAre("id"));
  const Panel with{.values = {{"y", wave}, {"size", [](int s, int) { return s; }}}};
  EXPECT_THAT(Dataset::fit(with.write("w.parquet"), short_windows()).static_names(),
              ElementsAre("size"));
  auto options = short_windows();
  options.static_columns = {"size", "id"};
  EXPECT_THAT(Dataset::fit(with.write("w.parquet"), options).static_names(),
              ElementsAre("size", "id"));
}

TEST(InferRoles, LeavesOutUnnamedColumnsWhenToldTo) {
  Panel panel{.values = {{"y", wave}, {"x", wave}, {"z", wave}}};
  auto options = short_windows();
  options.infer = false;
  EXPECT_THAT(error_of<OptionError>([&] { Dataset::fit(panel.write("n.parquet"), options); }),
              HasSubstr("time: must be named"));
  options.time = "time";
  options.id = {"id"};
  options.target = {"y"};
  options.observed = {"z"};
  EXPECT_THAT(Dataset::fit(panel.write("n.parquet"), options).historical_names(),
              ElementsAre("y", "z"));
}

TEST(InferRoles, FindsAPairOfIds) {
  std::vector<std::string> shops;
  std::vector<std::string> goods;
  std::vector<std::int64_t> times;
  std::vector<double> y;
  for (const std::string shop : {"north", "south"}) {
    for (const std::string good : {"tea", "rice", "oil"}) {
      for (int t = 0; t < 40; ++t) {
        shops.push_back(shop);
        goods.push_back(good);
        times.push_back(t);
        y.push_back(wave(static_cast<int>(good.size()), t));
      }
    }
  }
  const auto file = write_parquet("pairs.parquet", {{"shop", texts(shops)},
                                                    {"t", integers(times)},
                                                    {"good", texts(goods)},
                                                    {"sales", reals(y)}});
  const auto dataset = Dataset::fit(file, short_windows());
  EXPECT_THAT(dataset.schema().options.id, ElementsAre("shop", "good"));
  EXPECT_EQ(dataset.series_count(), 6);
  EXPECT_THAT(dataset.series_key({0, 0}), ElementsAre("north", "oil"));
}

TEST(InferRoles, OrdersSeriesByNumber) {
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> times;
  std::vector<double> y;
  for (const int id : {10, 9, 100}) {
    for (int t = 0; t < 30; ++t) {
      ids.push_back(id);
      times.push_back(t);
      y.push_back(wave(id, t));
    }
  }
  const auto dataset =
      Dataset::fit(write_parquet("numbers_as_ids.parquet",
                                 {{"id", integers(ids)}, {"t", integers(times)}, {"y", reals(y)}}),
                   short_windows());
  EXPECT_THAT(dataset.series_key({0, 0}), ElementsAre("9"));
  EXPECT_THAT(dataset.series_key({2, 0}), ElementsAre("100"));
}

TEST(InferRoles, NamesTheColumnsWhenThereIsNoTime) {
  const auto file = write_parquet("no_time.parquet", {{"a", reals({1, 2})}, {"b", reals({1, 2})}});
  EXPECT_THAT(error_of<DataError>([&] { Dataset::fit(file, short_windows()); }),
              AllOf(HasSubstr("no time column"), HasSubstr("a (double)")));
}

TEST(InferRoles, NamesTheChoicesWhenTheTargetIsUnclear) {
  const Panel panel{.values = {{"a", wave}, {"b", wave}}};
  EXPECT_THAT(
      error_of<DataError>([&] { Dataset::fit(panel.write("unclear.parquet"), short_windows()); }),
      HasSubstr("the target could be any of 'a' and 'b'"));
}

TEST(InferRoles, LeavesOutPandasRowLabels) {
  auto columns = Panel{.values = {{"y", wave}}}.columns();
  std::vector<std::int64_t> labels(120);
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int64_t>(3 * i);
  columns.emplace_back("__index_level_0__", integers(labels));
  const auto dataset = Dataset::fit(write_parquet("pandas.parquet", columns), short_windows());
  EXPECT_THAT(dataset.historical_names(), ElementsAre("y"));
  EXPECT_THAT(testing::findings_of(dataset),
              HasSubstr("row labels of a pandas index: '__index_level_0__'"));
}

TEST(InferRoles, TakesAPandasTimeIndexAsTime) {
  std::vector<std::optional<std::int64_t>> times;
  std::vector<double> y;
  for (int t = 0; t < 60; ++t) {
    times.push_back(t * 3600);
    y.push_back(wave(0, t));
  }
  const auto stamps = testing::array_of<arrow::TimestampBuilder, std::int64_t>(
      arrow::timestamp(arrow::TimeUnit::SECOND), times);
  const auto file =
      write_parquet("pandas_time.parquet", {{"y", reals(y)}, {"__index_level_0__", stamps}});
  EXPECT_EQ(Dataset::fit(file, short_windows()).schema().options.time, "__index_level_0__");
}

// Reported elsewhere: an integer target was taken for a category ("Unknown category '38'").
TEST(Roles, MakeAnIntegerTargetReal) {
  auto columns = Panel{.values = {}}.columns();
  std::vector<std::int64_t> counts(120);
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = static_cast<std::int64_t>(i % 38);
  columns.emplace_back("count", integers(counts));
  const auto dataset = Dataset::fit(write_parquet("counts.parquet", columns), short_windows());
  EXPECT_EQ(dataset.schema().target.name, "count");
  EXPECT_THAT(dataset.history({0, 8}, 3), ElementsAre(5.0, 6.0, 7.0));
}

TEST(Roles, MakeNumbersCategoriesWhereNamed) {
  const Panel panel{.values = {{"y", wave}, {"day", [](int, int t) { return t % 7; }}}};
  auto options = short_windows();
  options.known = {"day"};
  options.categorical = {"day"};
  const auto dataset = Dataset::fit(panel.write("categories.parquet"), options);
  ASSERT_EQ(dataset.schema().known.categorical.size(), 1U);
  EXPECT_THAT(dataset.schema().known.categorical.front().vocabulary,
              ElementsAre("0", "1", "2", "3", "4", "5", "6"));
}

TEST(Roles, RefuseAStaticColumnThatChanges) {
  const Panel panel{.values = {{"y", wave}, {"x", wave}}};
  auto options = short_windows();
  options.static_columns = {"x"};
  EXPECT_THAT(error_of<DataError>([&] { Dataset::fit(panel.write("changes.parquet"), options); }),
              AllOf(HasSubstr("'x' is static, but changes"), HasSubstr("id=a")));
}

TEST(Roles, GiveOneColumnOneRole) {
  DataOptions options;
  options.known = {"x"};
  options.observed = {"x"};
  EXPECT_THAT(error_of<OptionError>([&] { options.validate(); }),
              HasSubstr("observed: column 'x' already has another role"));
}

// Reported elsewhere: a model without any further inputs crashed.
TEST(Roles, AllowATargetAlone) {
  std::vector<std::int64_t> times;
  std::vector<double> y;
  for (int t = 0; t < 60; ++t) {
    times.push_back(t);
    y.push_back(wave(0, t));
  }
  const auto dataset = Dataset::fit(
      write_parquet("alone.parquet", {{"t", integers(times)}, {"y", reals(y)}}), short_windows());
  TftOptions model;
  dataset.describe(model);
  EXPECT_EQ(model.static_reals, 0);
  EXPECT_EQ(model.known_reals, 0);
  EXPECT_EQ(model.observed_reals, 1);
  const auto batch = dataset.gather(dataset.windows(Split::kTrain));
  EXPECT_FALSE(batch.input.static_real.defined());
  EXPECT_FALSE(batch.input.known_real.defined());
  EXPECT_EQ(batch.input.observed_real.size(2), 1);
}

// Reported elsewhere: two categorical columns of one kind crashed. Each kind of variable, none, one
// or two of them.
TEST(Roles, AllowAnyNumberOfVariablesOfEachKind) {
  for (int counts = 0; counts < 729; counts += 7) {  // digits in base 3, one for each of six kinds
    auto columns = Panel{.series = 2, .steps = 30, .values = {{"y", wave}}}.columns();
    auto options = short_windows(3, 2);
    options.id = {"id"};
    options.target = {"y"};
    std::vector<int> digits;
    int rest = counts;
    for (int kind = 0; kind < 6; ++kind, rest /= 3) digits.push_back(rest % 3);
    for (int kind = 0; kind < 6; ++kind) {
      for (int i = 0; i < digits[static_cast<std::size_t>(kind)]; ++i) {
        const std::string name = "k" + std::to_string(kind) + "_" + std::to_string(i);
        std::vector<double> values;
        std::vector<std::string> labels;
        for (int row = 0; row < 60; ++row) {
          const int value = kind < 2 ? row / 30 : (row * 7 + i) % 5;
          values.push_back(value);
          labels.push_back("v" + std::to_string(value));
        }
        columns.emplace_back(name, kind % 2 == 0 ? reals(values) : texts(labels));
        (kind < 2   ? options.static_columns
         : kind < 4 ? options.known
                    : options.observed)
            .push_back(name);
      }
    }
    options.time = "time";
    options.infer = false;
    const auto dataset = Dataset::fit(write_parquet("kinds.parquet", columns), options);
    const auto batch = dataset.gather(dataset.windows(Split::kTrain));
    const auto width = [](const torch::Tensor& tensor) {
      return tensor.defined() ? tensor.size(-1) : 0;
    };
    EXPECT_EQ(width(batch.input.static_real), digits[0]);
    EXPECT_EQ(width(batch.input.static_categorical), digits[1]);
    EXPECT_EQ(width(batch.input.known_real), digits[2]);
    EXPECT_EQ(width(batch.input.known_categorical), digits[3]);
    EXPECT_EQ(width(batch.input.observed_real), digits[4] + 1);
    EXPECT_EQ(width(batch.input.observed_categorical), digits[5]);
  }
}

TEST(SeveralTargets, BecomeSeriesOfTheirOwn) {
  const Panel panel{.values = {{"load", wave},
                               {"heat", [](int s, int t) { return 1000.0 + 50.0 * wave(s, t); }},
                               {"wind", wave}}};
  auto options = short_windows();
  options.target = {"load", "heat"};
  const auto dataset = Dataset::fit(panel.write("targets.parquet"), options);
  EXPECT_EQ(dataset.series_count(), 4);
  EXPECT_EQ(dataset.row_count(), 120);
  EXPECT_THAT(dataset.series_key({1, 0}), ElementsAre("a", "heat"));
  EXPECT_THAT(dataset.historical_names(), ElementsAre("target", "wind"));
  EXPECT_EQ(dataset.static_names().back(), "target");
  EXPECT_THAT(dataset.schema().static_variables.categorical.back().vocabulary,
              ElementsAre("heat", "load"));
  const std::vector<Window> windows = {{0, 20}, {1, 20}};
  const auto batch = dataset.gather(windows);
  EXPECT_EQ(batch.input.static_categorical.index({0, -1}).item<std::int64_t>(), 2);
  EXPECT_EQ(batch.input.static_categorical.index({1, -1}).item<std::int64_t>(), 1);
  // heat is an affine map of load, so each scaled by its own series they are the same.
  EXPECT_TRUE(torch::allclose(batch.target[0], batch.target[1], 1e-5, 1e-5));
  // What differs by target is the past target alone.
  EXPECT_TRUE(torch::equal(batch.input.observed_real[0].select(1, 1),
                           batch.input.observed_real[1].select(1, 1)));
}

TEST(SeveralTargets, OfSeriesNotSeenAreScaledByTheirColumn) {
  auto options = short_windows();
  options.target = {"load", "heat"};
  const auto heat = [](int s, int t) {
    return 1000.0 + 50.0 * wave(s, t);
  };
  const auto schema =
      Dataset::fit(Panel{.values = {{"load", wave}, {"heat", heat}}}.write("seen.parquet"), options)
          .schema();
  auto columns = Panel{.values = {{"load", wave}, {"heat", heat}}}.columns();
  columns.front().second = texts(std::vector<std::string>(120, "new"));
  std::vector<std::int64_t> times(120);
  for (int t = 0; t < 120; ++t) times[static_cast<std::size_t>(t)] = t;
  columns[1].second = integers(times);
  const auto dataset = Dataset::apply(write_parquet("unseen.parquet", columns), schema);
  const std::vector<Window> windows = {{0, 20}, {1, 20}};
  const auto center = dataset.gather(windows).center;
  EXPECT_LT(center[0].item<double>(), 100.0);
  EXPECT_GT(center[1].item<double>(), 1000.0);
}

}  // namespace
}  // namespace reprise
