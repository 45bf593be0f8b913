// SPDX-License-Identifier: Apache-2.0
#include "tests/data_tables.h"

#include <rapidcheck/gtest.h>

#include <cmath>
#include <cstring>

namespace reprise {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

std::string any_text() {
  return *rc::gen::container<std::string>(rc::gen::inRange<char>(1, 127));
}

double any_finite() {
  return *rc::gen::suchThat(rc::gen::map(rc::gen::arbitrary<std::uint64_t>(),
                                         [](std::uint64_t bits) {
                                           double value = 0.0;
                                           std::memcpy(&value, &bits, sizeof value);
                                           return value;
                                         }),
                            [](double value) { return std::isfinite(value); });
}

RealVariable any_real() {
  RealVariable variable;
  variable.name = any_text();
  const auto scaler = [] {
    return Scaler{any_finite(), std::abs(any_finite()) + 1e-300};
  };
  variable.global = scaler();
  for (int i = *rc::gen::inRange(0, 3); i > 0; --i) variable.series[any_text()] = scaler();
  return variable;
}

CategoricalVariable any_categorical() {
  return {any_text(), {any_text(), any_text()}};
}

RC_GTEST_PROP(Schema, SurvivesItsJson, ()) {
  Schema schema;
  schema.options.time = "t";
  schema.options.target = {"y"};
  schema.options.infer = false;
  schema.options.calendar = {"hour"};
  schema.options.lags = {24, *rc::gen::inRange<std::int64_t>(25, 1000)};
  schema.options.static_columns = {"s1", "s2"};
  schema.options.known = {"k"};
  schema.options.observed = {"o"};
  schema.options.normalize = *rc::gen::element(Normalization::kSeries, Normalization::kWindow,
                                               Normalization::kGlobal, Normalization::kNone);
  schema.options.valid_fraction = *rc::gen::inRange(0, 99) / 200.0;
  schema.time_unit = *rc::gen::element(TimeUnit::kStep, TimeUnit::kDay, TimeUnit::kNanosecond);
  schema.time_zone = any_text();
  schema.frequency = *rc::gen::nonZero<std::int64_t>();
  schema.wall_clock = *rc::gen::arbitrary<bool>();
  schema.month_end = *rc::gen::arbitrary<bool>();
  schema.target = any_real();
  schema.static_variables = {{any_real()}, {any_categorical()}};
  schema.known = {{any_real(), any_real(), any_real()}, {any_categorical()}};
  schema.observed = {{any_real(), any_real()}, {}};
  const auto json = schema.to_json();
  const auto read = Schema::from_json(json);
  RC_ASSERT(read.to_json() == json);
  RC_ASSERT(read.target == schema.target);
  RC_ASSERT(read.static_variables == schema.static_variables);
  RC_ASSERT(read.known == schema.known);
  RC_ASSERT(read.observed == schema.observed);
  RC_ASSERT(read.frequency == schema.frequency);
  RC_ASSERT(read.time_zone == schema.time_zone);
  RC_ASSERT(read.options.lags == schema.options.lags);
  RC_ASSERT(read.options.valid_fraction == schema.options.valid_fraction);
}

TEST(Schema, NamesTheKeyThatIsWrong) {
  const auto good =
      Dataset::fit(testing::Panel{.values = {{"y", testing::wave}}}.write("s.parquet"),
                   testing::short_windows())
          .schema()
          .to_json();
  const auto broken = [&](const std::string& from, const std::string& to) {
    auto text = good;
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    return error_of<DataError>([&] { Schema::from_json(text); });
  };
  EXPECT_THAT(broken("\"frequency\": 1", "\"frequenzy\": 1"),
              HasSubstr("key 'frequency' is missing"));
  EXPECT_THAT(broken("\"frequency\": 1", "\"frequency\": 1.5"),
              HasSubstr("key 'frequency' is not an integer"));
  EXPECT_THAT(broken("\"horizon\": 3", "\"horizon\": \"x\""),
              HasSubstr("key 'options.horizon' is not an integer"));
  EXPECT_THAT(broken("\"horizon\": 3", "\"horizon\": 0"),
              HasSubstr("key 'options' does not fit together: horizon"));
  EXPECT_THAT(broken("\"time_unit\": \"step\"", "\"time_unit\": \"week\""),
              HasSubstr("key 'time_unit' is 'week', none of"));
  EXPECT_THAT(broken("\"format\": 1", "\"format\": 9"), HasSubstr("key 'format' is 9"));
  EXPECT_THAT(broken("\"observed\": []", "\"observed\": [\"gone\"]"),
              HasSubstr("key 'observed' has 1 variables"));
  EXPECT_THAT(error_of<DataError>([] { Schema::from_json("{"); }), HasSubstr("is not JSON"));
}

TEST(Schema, NeverCrashesOnDamagedJson) {
  const auto good =
      Dataset::fit(testing::Panel{.values = {{"y", testing::wave}}}.write("s.parquet"),
                   testing::short_windows())
          .schema()
          .to_json();
  for (std::size_t i = 0; i < good.size(); ++i) {
    auto text = good;
    text[i] = text[i] == '1' ? '{' : '1';
    try {
      Schema::from_json(text);
    } catch (const DataError&) {
    }
  }
}

TEST(JoinKey, KeepsPartsApart) {
  EXPECT_EQ(join_key({"a", "b"}), "a/b");
  EXPECT_NE(join_key({"a/b"}), join_key({"a", "b"}));
  EXPECT_NE(join_key({"a\\", "b"}), join_key({"a\\/b"}));
  EXPECT_EQ(join_key({}), "");
}

TEST(DataOptions, NameTheFieldOutOfRange) {
  const auto field_of = [](const std::function<void(DataOptions&)>& change) {
    DataOptions options;
    change(options);
    try {
      options.validate();
    } catch (const OptionError& error) {
      return error.field();
    }
    return std::string();
  };
  EXPECT_EQ(field_of([](auto&) {}), "");
  EXPECT_EQ(field_of([](auto& options) { options.encoder_length = 0; }), "encoder_length");
  EXPECT_EQ(field_of([](auto& options) { options.horizon = -1; }), "horizon");
  EXPECT_EQ(field_of([](auto& options) { options.lags = {23}; }), "lags");
  EXPECT_EQ(field_of([](auto& options) { options.lags = {24, 24}; }), "lags");
  EXPECT_EQ(field_of([](auto& options) { options.valid_fraction = 1.0; }), "valid_fraction");
  EXPECT_EQ(field_of([](auto& options) { options.test_fraction = std::nan(""); }), "test_fraction");
  EXPECT_EQ(field_of([](auto& options) { options.valid_fraction = options.test_fraction = 0.5; }),
            "valid_fraction");
  EXPECT_EQ(field_of([](auto& options) { options.train_until = "3"; }), "valid_until");
  EXPECT_EQ(field_of([](auto& options) { options.test_until = "3"; }), "test_until");
  EXPECT_EQ(field_of([](auto& options) { options.calendar = {"none", "hour"}; }), "calendar");
  EXPECT_EQ(field_of([](auto& options) { options.id = {"a", "a"}; }), "id");
}

}  // namespace
}  // namespace reprise
