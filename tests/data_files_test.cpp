// SPDX-License-Identifier: Apache-2.0
#include "data/column_values_internal.h"
#include "data/text_internal.h"
#include "tests/data_tables.h"

#include <arrow/util/decimal.h>
#include <arrow/util/float16.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <random>

namespace reprise {
namespace {

using detail::printable;
using detail::read_categories;
using detail::read_reals;
using detail::read_times;
using detail::TableFile;
using ::testing::AllOf;
using testing::array_of;
using ::testing::ElementsAre;
using testing::error_of;
using testing::fit_error;
using ::testing::HasSubstr;
using testing::integers;
using testing::reals;
using testing::short_windows;
using testing::texts;
using testing::write_parquet;
using testing::write_text;

std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(TableFile, NamesAFileThatIsMissing) {
  EXPECT_THAT(fit_error("/nonexistent/x.parquet"),
              AllOf(HasSubstr("/nonexistent/x.parquet"), HasSubstr("no such file")));
}

TEST(TableFile, RefusesADirectoryAndAnEmptyFile) {
  EXPECT_THAT(fit_error(std::filesystem::temp_directory_path()), HasSubstr("is a directory"));
  EXPECT_THAT(fit_error(write_text("empty.parquet", "")), HasSubstr("0 bytes"));
  EXPECT_THAT(fit_error(write_text("empty.csv", "")), HasSubstr("0 bytes"));
}

TEST(TableFile, RefusesTextNamedParquet) {
  EXPECT_THAT(fit_error(write_text("text.parquet", "time,y\n0,1\n1,2\n2,3\n3,4\n")),
              HasSubstr("is not a Parquet file"));
}

TEST(TableFile, RefusesATableWithoutRows) {
  EXPECT_THAT(fit_error(write_text("header.csv", "time,y\n")), HasSubstr("no rows"));
  EXPECT_THAT(fit_error(write_parquet("none.parquet", {{"time", integers({})}, {"y", reals({})}})),
              HasSubstr("no rows"));
}

TEST(TableFile, RefusesUtf16ByName) {
  EXPECT_THAT(fit_error(write_text("wide.csv", std::string("\xFF\xFEt\0,\0y\0\n\0", 10))),
              HasSubstr("is UTF-16 text; save it as UTF-8"));
}

// A file must not command the terminal, nor fill it.
TEST(TableFile, QuotesOneLineOfAFileInPrintableLetters) {
  const auto error =
      fit_error(write_text("odd.csv", "time,y\n\"\x1B[31m\xFF\n" + std::string(500, 'x')));
  EXPECT_THAT(error, HasSubstr("cannot be read as CSV"));
  EXPECT_EQ(error.find_first_of("\n\x1B\xFF"), std::string::npos);
  EXPECT_LT(error.size(), 400U);
}

TEST(Printable, EscapesWhatIsNoTextAndKeepsWhatIs) {
  EXPECT_EQ(printable("caf\u00E9 \u2603 \U0001F600"), "caf\u00E9 \u2603 \U0001F600");
  EXPECT_EQ(printable("a\x1B[2J\r\x7F\xFF"), "a\\x1B[2J\\x0D\\x7F\\xFF");
  EXPECT_EQ(printable("a\nb"), "a\\nb");
  EXPECT_EQ(printable("a\nb", true), "a\nb");
  // C1 controls, an overlong slash, half a UTF-16 pair, beyond U+10FFFF, cut off.
  EXPECT_EQ(printable("\xC2\x9B"), "\\xC2\\x9B");
  EXPECT_EQ(printable("\xC0\xAF"), "\\xC0\\xAF");
  EXPECT_EQ(printable("\xED\xA0\x80"), "\\xED\\xA0\\x80");
  EXPECT_EQ(printable("\xF4\x90\x80\x80"), "\\xF4\\x90\\x80\\x80");
  EXPECT_EQ(printable("\xE2\x98"), "\\xE2\\x98");
}

TEST(TableFile, RefusesRaggedCsv) {
  EXPECT_THAT(fit_error(write_text("ragged.csv", "time,y\n0,1\n1,2,3\n")),
              HasSubstr("cannot be read as CSV"));
}

TEST(TableFile, NeverCrashesOnADamagedParquetFile) {
  const auto whole =
      bytes_of(testing::Panel{.values = {{"y", testing::wave}, {"x", testing::wave}}}.write(
          "whole.parquet"));
  std::mt19937 random(7);
  int refused = 0;
  for (std::size_t length = 1; length < whole.size(); length += whole.size() / 40) {
    refused += fit_error(write_text("cut.parquet", whole.substr(0, length))).empty() ? 0 : 1;
  }
  EXPECT_GE(refused, 40);
  for (int trial = 0; trial < 200; ++trial) {
    auto damaged = whole;
    for (int flip = 0; flip < 3; ++flip)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    // Some damage goes unnoticed: what matters is that nothing but these errors comes out.
    try {
      Dataset::fit(write_text("damaged.parquet", damaged), short_windows());
    } catch (const DataError&) {
    } catch (const OptionError&) {
    }
  }
}

TEST(TableFile, ListsTheColumnsWhenOneIsUnknown) {
  auto options = short_windows();
  options.target = {"sales"};
  EXPECT_THAT(
      fit_error(testing::Panel{.values = {{"y", testing::wave}}}.write("p.parquet"), options),
      AllOf(HasSubstr("no column 'sales' (named as target)"), HasSubstr("'id', 'time' and 'y'")));
}

TEST(TableFile, RefusesAColumnNameThatOccursTwice) {
  const auto file = write_parquet("twice.parquet",
                                  {{"time", integers({0})}, {"y", reals({0})}, {"y", reals({0})}});
  EXPECT_THAT(fit_error(file), HasSubstr("two columns named 'y'"));
}

TEST(TableFile, ReadsSmallAndLargeRowGroupsAlike) {
  const testing::Panel panel{.values = {{"y", testing::wave}}};
  const TableFile whole(panel.write("one_group.parquet"));
  const TableFile rows(write_parquet("row_groups.parquet", panel.columns(), 1));
  EXPECT_EQ(read_reals(whole, {"y"}), read_reals(rows, {"y"}));
  EXPECT_EQ(read_categories(whole, "id").codes, read_categories(rows, "id").codes);
}

TEST(TableFile, ReadsColumnsInTheOrderAskedFor) {
  const TableFile file(
      write_parquet("order.parquet", {{"a", reals({1})}, {"b", reals({2})}, {"c", reals({3})}}));
  const auto columns = read_reals(file, {"c", "a"});
  EXPECT_EQ(columns[0][0], 3.0);
  EXPECT_EQ(columns[1][0], 1.0);
}

TEST(ReadReals, ConvertsEveryTypeOfNumber) {
  using std::optional;
  const auto half = arrow::util::Float16(1.5).bits();
  const testing::Columns columns = {
      {"int8", array_of<arrow::Int8Builder, std::int8_t>(arrow::int8(), {-128, {}})},
      {"int16", array_of<arrow::Int16Builder, std::int16_t>(arrow::int16(), {-32768, {}})},
      {"int32", array_of<arrow::Int32Builder, std::int32_t>(arrow::int32(), {-7, {}})},
      {"int64", array_of<arrow::Int64Builder, std::int64_t>(arrow::int64(), {1LL << 40, {}})},
      {"uint8", array_of<arrow::UInt8Builder, std::uint8_t>(arrow::uint8(), {255, {}})},
      {"uint16", array_of<arrow::UInt16Builder, std::uint16_t>(arrow::uint16(), {65535, {}})},
      {"uint32", array_of<arrow::UInt32Builder, std::uint32_t>(arrow::uint32(), {4294967295U, {}})},
      {"uint64", array_of<arrow::UInt64Builder, std::uint64_t>(arrow::uint64(), {1ULL << 63, {}})},
      {"half", array_of<arrow::HalfFloatBuilder, std::uint16_t>(arrow::float16(), {half, {}})},
      {"float", array_of<arrow::FloatBuilder, float>(arrow::float32(), {0.25F, {}})},
      {"bool", array_of<arrow::BooleanBuilder, bool>(arrow::boolean(), {true, {}})},
      {"time32", array_of<arrow::Time32Builder, std::int32_t>(arrow::time32(arrow::TimeUnit::MILLI),
                                                              {1500, {}})},
      {"time64", array_of<arrow::Time64Builder, std::int64_t>(arrow::time64(arrow::TimeUnit::NANO),
                                                              {2500000000, {}})},
      {"duration", array_of<arrow::DurationBuilder, std::int64_t>(
                       arrow::duration(arrow::TimeUnit::MICRO), {500000, {}})},
      {"decimal32", array_of<arrow::Decimal32Builder, arrow::Decimal32>(
                        arrow::decimal32(9, 2), {arrow::Decimal32(-1234), {}})},
      {"decimal64", array_of<arrow::Decimal64Builder, arrow::Decimal64>(
                        arrow::decimal64(18, 3), {arrow::Decimal64(-1234), {}})},
      {"decimal128",
       array_of<arrow::Decimal128Builder, arrow::Decimal128>(
           arrow::decimal128(38, 18), {arrow::Decimal128("1234567890.123456789012345678"), {}})},
      {"decimal256", array_of<arrow::Decimal256Builder, arrow::Decimal256>(
                         arrow::decimal256(60, 4), {arrow::Decimal256(-5), {}})}};
  const std::vector<double> expected = {-128,
                                        -32768,
                                        -7,
                                        1099511627776.0,
                                        255,
                                        65535,
                                        4294967295.0,
                                        0x1.0p63,
                                        1.5,
                                        0.25,
                                        1.0,
                                        1.5,
                                        2.5,
                                        0.5,
                                        -12.34,
                                        -1.234,
                                        1234567890.123456789,
                                        -0.0005};
  const TableFile file(write_parquet("numbers.parquet", columns));
  ASSERT_EQ(columns.size(), expected.size());
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const auto values = read_reals(file, {columns[i].first}).front();
    EXPECT_DOUBLE_EQ(values[0], expected[i]) << columns[i].first;
    EXPECT_TRUE(std::isnan(values[1])) << columns[i].first;
  }
}

TEST(ReadCategories, ReadsEveryTypeOfText) {
  const auto dictionary =
      arrow::DictionaryArray::FromArrays(
          arrow::dictionary(arrow::int8(), arrow::utf8()),
          array_of<arrow::Int8Builder, std::int8_t>(arrow::int8(), {1, 0, 1, {}}),
          texts({"x", "y"}))
          .ValueOrDie();
  const std::vector<std::optional<std::string>> values = {"y", "x", "y", {}};
  const testing::Columns columns = {
      {"string", array_of<arrow::StringBuilder, std::string>(arrow::utf8(), values)},
      {"large_string",
       array_of<arrow::LargeStringBuilder, std::string>(arrow::large_utf8(), values)},
      {"string_view", array_of<arrow::StringViewBuilder, std::string>(arrow::utf8_view(), values)},
      {"binary", array_of<arrow::BinaryBuilder, std::string>(arrow::binary(), values)},
      {"dictionary", dictionary}};
  const TableFile file(write_parquet("texts.parquet", columns));
  for (const auto& [name, array] : columns) {
    const auto categories = read_categories(file, name);
    std::vector<std::string> read;
    for (const auto code : categories.codes)
      read.push_back(code < 0 ? "null" : categories.values[static_cast<std::size_t>(code)]);
    EXPECT_THAT(read, ElementsAre("y", "x", "y", "null")) << name;
  }
}

TEST(ReadCategories, NamesNumbersAlikeWhateverTheirType) {
  const TableFile file(write_parquet(
      "named.parquet",
      {{"integer", integers({7, -3})},
       {"real", reals({7.0, -3.0})},
       {"bool", array_of<arrow::BooleanBuilder, bool>(arrow::boolean(), {true, false})}}));
  EXPECT_THAT(read_categories(file, "integer").values, ElementsAre("7", "-3"));
  EXPECT_THAT(read_categories(file, "real").values, ElementsAre("7", "-3"));
  EXPECT_THAT(read_categories(file, "bool").values, ElementsAre("true", "false"));
}

TEST(ReadCategories, RefusesBytesThatAreNotText) {
  const TableFile file(write_parquet(
      "bytes.parquet",
      {{"b", array_of<arrow::BinaryBuilder, std::string>(arrow::binary(), {"\xff\xfe"})}}));
  EXPECT_THAT(error_of<DataError>([&] { read_categories(file, "b"); }), HasSubstr("not UTF-8"));
}

TEST(ReadTimes, TrustsTheUnitOfTheColumn) {
  // 2020-01-01T00:00:01 is second 1577836801 of the Unix epoch and in day 18262.
  constexpr std::int64_t kSecond = 1577836801;
  struct Case {
    arrow::TimeUnit::type unit;
    TimeUnit expected;
    std::int64_t per_second;
  };
  for (const auto& [unit, expected, per_second] :
       {Case{arrow::TimeUnit::MILLI, TimeUnit::kMillisecond, 1000},
        Case{arrow::TimeUnit::MICRO, TimeUnit::kMicrosecond, 1000000},
        Case{arrow::TimeUnit::NANO, TimeUnit::kNanosecond, 1000000000}}) {
    for (const std::string zone : {"", "UTC", "Europe/Berlin"}) {
      const auto array = array_of<arrow::TimestampBuilder, std::int64_t>(
          arrow::timestamp(unit, zone), {kSecond * per_second});
      const auto times = read_times(TableFile(write_parquet("times.parquet", {{"t", array}})), "t");
      EXPECT_EQ(times.values.front(), kSecond * per_second);
      EXPECT_EQ(times.unit, expected);
      EXPECT_EQ(times.zone, zone);
    }
  }
  const auto date32 = array_of<arrow::Date32Builder, std::int32_t>(arrow::date32(), {18262});
  const auto date64 =
      array_of<arrow::Date64Builder, std::int64_t>(arrow::date64(), {18262 * 86400000LL});
  for (const auto& array : {date32, date64}) {
    const auto times = read_times(TableFile(write_parquet("dates.parquet", {{"t", array}})), "t");
    EXPECT_EQ(times.unit, TimeUnit::kDay);
    EXPECT_THAT(times.values, ElementsAre(18262));
  }
}

TEST(ReadTimes, ReadsInt96BeyondTheReachOfNanoseconds) {
  // 2020-01-01, and 0001-01-01, which nanoseconds in 64 bits cannot hold.
  const std::vector<std::optional<std::int64_t>> values = {1577836800000000, -62135596800000000};
  const auto array = array_of<arrow::TimestampBuilder, std::int64_t>(
      arrow::timestamp(arrow::TimeUnit::MICRO), values);
  const auto times =
      read_times(TableFile(write_parquet("int96.parquet", {{"t", array}}, 10, true)), "t");
  EXPECT_EQ(times.unit, TimeUnit::kMicrosecond);
  EXPECT_EQ(times.values.front(), 1577836800000000);
}

TEST(ReadTimes, ParsesTextInTheCoarsestUnit) {
  const auto parse = [](const std::vector<std::string>& values) {
    return read_times(TableFile(write_parquet("text_times.parquet", {{"t", texts(values)}})), "t");
  };
  EXPECT_EQ(parse({"2020-01-01", "2020-01-01T00:00:01"}).unit, TimeUnit::kSecond);
  EXPECT_THAT(parse({"1970-01-02", "1970-01-01 00:00:01"}).values, ElementsAre(86400, 1));
  EXPECT_EQ(parse({"2020-01-01 00:00:00.5"}).unit, TimeUnit::kMicrosecond);
  EXPECT_EQ(parse({"1970-01-01T02:00+02:00"}).zone, "UTC");
  EXPECT_THAT(parse({"1970-01-01T02:00+02:00"}).values, ElementsAre(0));
  EXPECT_THAT(error_of<DataError>([&] { parse({"2020-01-01", "soon"}); }),
              HasSubstr("first 'soon'"));
}

TEST(ReadTimes, NamesMissingTimesAndFractionsOfSteps) {
  const auto missing = write_parquet(
      "missing.parquet",
      {{"t", array_of<arrow::Int64Builder, std::int64_t>(arrow::int64(), {1, {}, 3})}});
  EXPECT_THAT(error_of<DataError>([&] { read_times(TableFile(missing), "t"); }),
              AllOf(HasSubstr("1 missing value"), HasSubstr("row 2")));
  constexpr auto kFar = std::numeric_limits<std::int64_t>::max() - 1;
  const auto far = write_parquet("far.parquet",
                                 {{"t", array_of<arrow::TimestampBuilder, std::int64_t>(
                                            arrow::timestamp(arrow::TimeUnit::NANO), {1, kFar})}});
  EXPECT_THAT(error_of<DataError>([&] { read_times(TableFile(far), "t"); }),
              AllOf(HasSubstr("1 value too far from 1970"), HasSubstr("row 2")));
  const auto fraction = write_parquet("fraction.parquet", {{"t", reals({1, 2.5})}});
  EXPECT_THAT(error_of<DataError>([&] { read_times(TableFile(fraction), "t"); }),
              HasSubstr("row 2 holds 2.5"));
}

// What pandas writes its row labels under.
TEST(Dataset, LeavesOutColumnsWithoutAName) {
  testing::Columns columns = testing::Panel{.values = {{"y", testing::wave}}}.columns();
  columns.insert(columns.begin(), {"", reals(std::vector<double>(120, 0.0))});
  const auto dataset = Dataset::fit(write_parquet("labels.parquet", columns), short_windows());
  EXPECT_THAT(testing::findings_of(dataset), HasSubstr("1 column without a name"));
  EXPECT_EQ(Schema::from_json(dataset.schema().to_json()).to_json(), dataset.schema().to_json());
}

TEST(Dataset, LeavesOutColumnsThatAreNotNumbersTextOrTime) {
  testing::Columns columns = testing::Panel{.values = {{"y", testing::wave}}}.columns();
  arrow::ListBuilder lists(arrow::default_memory_pool(), std::make_shared<arrow::DoubleBuilder>());
  for (int row = 0; row < 120; ++row) ASSERT_TRUE(lists.Append().ok());
  columns.emplace_back("parts", lists.Finish().ValueOrDie());
  const auto file = write_parquet("lists.parquet", columns);
  const auto dataset = Dataset::fit(file, short_windows());
  EXPECT_THAT(testing::findings_of(dataset), HasSubstr("'parts'"));
  EXPECT_THAT(dataset.historical_names(), ElementsAre("y"));
  auto options = short_windows();
  options.observed = {"parts"};
  EXPECT_THAT(fit_error(file, options), AllOf(HasSubstr("'parts'"), HasSubstr("list")));
}

TEST(Dataset, ReadsDecimalTargetsAsNumbers) {
  arrow::Decimal128Builder decimals(arrow::decimal128(38, 18));
  std::vector<std::int64_t> times;
  for (int t = 0; t < 60; ++t) {
    ASSERT_TRUE(decimals.Append(arrow::Decimal128::FromReal(0.5 * t, 38, 18).ValueOrDie()).ok());
    times.push_back(t);
  }
  const auto dataset = Dataset::fit(
      write_parquet("decimal.parquet",
                    {{"time", integers(times)}, {"price", decimals.Finish().ValueOrDie()}}),
      short_windows());
  EXPECT_EQ(dataset.schema().options.target, std::vector<std::string>{"price"});
  EXPECT_THAT(dataset.history({0, 10}, 2), ElementsAre(4.0, 4.5));
}

TEST(Dataset, ReadsCsvWithSemicolonsAndText) {
  std::string csv = "date;place;y\n";
  for (int t = 0; t < 48; ++t)
    csv += "2020-01-0" + std::to_string(1 + t / 24) + " " + (t % 24 < 10 ? "0" : "") +
           std::to_string(t % 24) + ":00;x;" + std::to_string(t) + ".5\n";
  const auto dataset = Dataset::fit(write_text("semicolons.csv", csv), short_windows());
  EXPECT_EQ(dataset.schema().options.time, "date");
  EXPECT_EQ(dataset.schema().time_unit, TimeUnit::kSecond);
  EXPECT_EQ(dataset.schema().frequency, 3600);
}

TEST(Dataset, NamesTextWhereTheTargetShouldBe) {
  const auto file = write_text("text_target.csv", "time,y\n0,1.5\n1,oops\n2,3\n");
  auto options = short_windows();
  options.target = {"y"};
  EXPECT_THAT(fit_error(file, options), AllOf(HasSubstr("'y'"), HasSubstr("numbers are needed"),
                                              HasSubstr("'oops' in row 2")));
}

}  // namespace
}  // namespace reprise
