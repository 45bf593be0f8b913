// SPDX-License-Identifier: Apache-2.0
#include "data/time_axis_internal.h"
#include "tests/data_tables.h"

#include <chrono>

namespace reprise {
namespace {

using detail::RowRange;
using detail::TimeAxis;
using testing::array_of;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::reals;
using testing::short_windows;
using testing::wave;
using testing::write_parquet;

constexpr std::int64_t kHour = 3600;
constexpr std::int64_t kDay = 86400;
// Parquet has no seconds: what is written as such is read back as milliseconds.
constexpr std::int64_t kMilliseconds = 1000;

TimeAxis seconds(const std::string& zone = "") {
  TimeAxis axis;
  axis.unit = TimeUnit::kSecond;
  axis.zone = zone;
  return axis;
}

std::int64_t date(int year, unsigned month, unsigned day) {
  return std::chrono::sys_days{std::chrono::year{year} / std::chrono::month{month} /
                               std::chrono::day{day}}
      .time_since_epoch()
      .count();
}

/// The axis of one series of times in seconds.
TimeAxis found(const std::vector<std::int64_t>& times, const std::string& zone = "") {
  auto axis = seconds(zone);
  const std::vector<RowRange> series = {{0, static_cast<std::int64_t>(times.size())}};
  find_frequency(axis, times, series);
  return axis;
}

Dataset fit_times(const std::vector<std::int64_t>& times, const std::string& zone = "",
                  DataOptions options = short_windows()) {
  std::vector<double> y;
  for (std::size_t t = 0; t < times.size(); ++t) y.push_back(wave(0, static_cast<int>(t)));
  const std::vector<std::optional<std::int64_t>> values(times.begin(), times.end());
  const auto stamps = array_of<arrow::TimestampBuilder, std::int64_t>(
      arrow::timestamp(arrow::TimeUnit::SECOND, zone), values);
  return Dataset::fit(write_parquet("stamps.parquet", {{"when", stamps}, {"y", reals(y)}}),
                      options);
}

TEST(TimeAxis, TakesTheMostCommonStep) {
  EXPECT_EQ(found({0, 900, 1800, 2700, 90000, 90900}).frequency, 900);
  EXPECT_EQ(found({0, 900, 1800, 2700, 90000, 90900}).frequency_text(), "15 minutes");
}

TEST(TimeAxis, CountsMonthsQuartersAndYears) {
  const auto every = [](unsigned months, bool at_end) {
    std::vector<std::int64_t> times;
    for (unsigned i = 0; i < 20; ++i) {
      const unsigned month = i * months;
      const auto first = std::chrono::year{2019 + static_cast<int>(month / 12)} /
                         std::chrono::month{month % 12 + 1};
      const auto day = at_end ? (first / std::chrono::last).day() : std::chrono::day{1};
      times.push_back(std::chrono::sys_days{first / day}.time_since_epoch().count() * kDay);
    }
    return times;
  };
  EXPECT_EQ(found(every(1, false)).frequency, -1);
  EXPECT_EQ(found(every(3, false)).frequency, -3);
  EXPECT_EQ(found(every(12, false)).frequency, -12);
  EXPECT_EQ(found(every(1, false)).frequency_text(), "1 month");
  EXPECT_FALSE(found(every(1, false)).month_end);
  const auto ends = found(every(1, true));
  EXPECT_EQ(ends.frequency, -1);
  EXPECT_TRUE(ends.month_end);
  // From the end of February to the end of March.
  EXPECT_EQ(ends.advance(date(2020, 2, 29) * kDay, 1), date(2020, 3, 31) * kDay);
  EXPECT_EQ(found(every(3, false)).advance(date(2020, 11, 1) * kDay, 1), date(2021, 2, 1) * kDay);
  EXPECT_EQ(found(every(1, false)).advance(date(2020, 1, 1) * kDay, -1), date(2019, 12, 1) * kDay);
}

TEST(TimeAxis, SplitsNoMonthsAsGaps) {
  std::vector<std::int64_t> times;
  for (int i = 0; i < 48; ++i)
    times.push_back(date(2016 + i / 12, static_cast<unsigned>(i % 12 + 1), 1) * kDay);
  const auto dataset = fit_times(times);
  EXPECT_THAT(testing::findings_of(dataset), Not(HasSubstr("gap")));
  EXPECT_THAT(dataset.future_names(), ElementsAre("month"));
  EXPECT_EQ(dataset.schema().frequency, -1);
  EXPECT_EQ(dataset.time_at({0, 48}, 0), date(2020, 1, 1) * kDay * kMilliseconds);
}

// Reported elsewhere: the hour that repeats in autumn was taken for a duplicate, the one that lacks
// in spring for a gap.
TEST(TimeZones, KeepHoursApartOverClockChanges) {
  std::vector<std::int64_t> times;
  for (int t = 0; t < 96; ++t)
    times.push_back(date(2021, 10, 29) * kDay + t * kHour);  // clocks go back on the 31st
  const auto dataset = fit_times(times, "Europe/Berlin");
  EXPECT_EQ(dataset.schema().frequency, kHour * kMilliseconds);
  EXPECT_FALSE(dataset.schema().wall_clock);
  EXPECT_THAT(testing::findings_of(dataset), IsEmpty());
  // Midnight UTC is 2 o'clock in summer, 1 o'clock in winter; code i + 1 is hour i.
  const std::vector<Window> summer = {{0, 24}};
  const std::vector<Window> winter = {{0, 72}};
  EXPECT_EQ(dataset.gather(summer).input.known_categorical.index({0, 6, 0}).item<std::int64_t>(),
            3);
  EXPECT_EQ(dataset.gather(winter).input.known_categorical.index({0, 6, 0}).item<std::int64_t>(),
            2);
}

TEST(TimeZones, LetDaysHave23And25Hours) {
  std::vector<std::int64_t> times;
  for (int day = 0; day < 60; ++day) {
    const std::int64_t midnight = (date(2021, 10, 1) + day) * kDay;
    times.push_back(midnight - (day <= 30 ? 2 : 1) * kHour);  // midnight in Berlin, in UTC
  }
  const auto dataset = fit_times(times, "Europe/Berlin");
  EXPECT_TRUE(dataset.schema().wall_clock);
  EXPECT_EQ(dataset.schema().frequency, kDay * kMilliseconds);
  EXPECT_THAT(testing::findings_of(dataset), IsEmpty());
  EXPECT_THAT(dataset.future_names(), ElementsAre("weekday", "month"));
  EXPECT_EQ(dataset.time_at({0, 60}, 0), ((date(2021, 11, 30)) * kDay - kHour) * kMilliseconds);
  EXPECT_EQ(dataset.time_at({0, 0}, -1), ((date(2021, 9, 30)) * kDay - 2 * kHour) * kMilliseconds);
}

TEST(TimeZones, ThatNobodyKnowsFallBackToUtc) {
  std::vector<std::int64_t> times;
  for (int t = 0; t < 96; ++t) times.push_back(t * kHour);
  const auto dataset = fit_times(times, "Moon/Tranquility");
  EXPECT_THAT(testing::findings_of(dataset),
              HasSubstr("time zone 'Moon/Tranquility' is not in this system's database"));
  const std::vector<Window> window = {{0, 24}};
  EXPECT_EQ(dataset.gather(window).input.known_categorical.index({0, 6, 0}).item<std::int64_t>(),
            1);
}

TEST(Calendar, SuitsTheFrequency) {
  const auto names = [](std::int64_t step, int count) {
    std::vector<std::int64_t> times;
    for (int t = 0; t < count; ++t) times.push_back(date(2020, 1, 1) * kDay + t * step);
    return fit_times(times).future_names();
  };
  EXPECT_THAT(names(kHour, 200), ElementsAre("hour", "weekday"));
  EXPECT_THAT(names(kDay, 200), ElementsAre("weekday", "month"));
  EXPECT_THAT(names(7 * kDay, 200), ElementsAre("month"));
  // Within one day only the hour varies.
  EXPECT_THAT(names(600, 100), ElementsAre("hour"));
}

TEST(Calendar, FollowsTheOptions) {
  std::vector<std::int64_t> times;
  for (int t = 0; t < 100; ++t) times.push_back(date(2020, 1, 1) * kDay + t * kHour);
  auto options = short_windows();
  options.calendar = {"month", "monthday", "weekday", "hour"};
  const auto dataset = fit_times(times, "", options);
  EXPECT_THAT(dataset.future_names(), ElementsAre("month", "monthday", "weekday", "hour"));
  EXPECT_EQ(dataset.schema().known.categorical[1].cardinality(), 32);
  // 2020-01-02T01:00 was a Thursday: codes January 1, the 2nd 2, Thursday 4, hour 1 as 2.
  const std::vector<Window> window = {{0, 25}};
  const auto codes = dataset.gather(window).input.known_categorical.index({0, 6});
  EXPECT_TRUE(torch::equal(codes, torch::tensor({1, 2, 4, 2}, torch::kLong)));
  options.calendar = {"none"};
  EXPECT_THAT(fit_times(times, "", options).future_names(), IsEmpty());
  options.calendar = {"fortnight"};
  EXPECT_THAT(error_of<OptionError>([&] { fit_times(times, "", options); }),
              HasSubstr("'fortnight' is none of"));
}

TEST(Calendar, NeedsDates) {
  auto options = short_windows();
  options.calendar = {"hour"};
  const auto file = testing::Panel{.values = {{"y", wave}}}.write("steps.parquet");
  EXPECT_THAT(error_of<OptionError>([&] { Dataset::fit(file, options); }),
              HasSubstr("integer steps"));
}

TEST(TimeAxis, WritesTimesAsText) {
  EXPECT_EQ(seconds().text(date(2020, 2, 29) * kDay + 61), "2020-02-29T00:01:01");
  EXPECT_EQ(seconds("Europe/Berlin").text(-60), "1969-12-31T23:59Z");
  TimeAxis axis;
  EXPECT_EQ(axis.text(-7), "-7");
  axis.unit = TimeUnit::kMillisecond;
  EXPECT_EQ(axis.text(1005), "1970-01-01T00:00:01.005");
  axis.unit = TimeUnit::kDay;
  EXPECT_EQ(axis.text(date(2020, 1, 31)), "2020-01-31");
}

TEST(TimeAxis, ReadsOptions) {
  EXPECT_EQ(seconds().parse("1970-01-02T00:00:01", "train_until"), kDay + 1);
  EXPECT_EQ(seconds("Europe/Berlin").parse("2021-07-01", "train_until"),
            date(2021, 7, 1) * kDay - 2 * kHour);
  EXPECT_EQ(seconds("Europe/Berlin").parse("2021-07-01T00:00Z", "train_until"),
            date(2021, 7, 1) * kDay);
  EXPECT_THAT(error_of<OptionError>([] { seconds().parse("2021-07-01T00:00Z", "train_until"); }),
              HasSubstr("no time zone"));
  TimeAxis days;
  days.unit = TimeUnit::kDay;
  EXPECT_EQ(days.parse("1970-01-05", "train_until"), 4);
  EXPECT_THAT(error_of<OptionError>([&] { days.parse("1970-01-05T12:00", "train_until"); }),
              HasSubstr("not a whole day"));
}

TEST(TimeAxis, ConvertsUnitsExactlyOrNotAtAll) {
  EXPECT_THAT(detail::convert_times({-1, 2}, TimeUnit::kDay, TimeUnit::kSecond),
              ElementsAre(-kDay, 2 * kDay));
  EXPECT_THAT(detail::convert_times({-kDay}, TimeUnit::kSecond, TimeUnit::kDay), ElementsAre(-1));
  EXPECT_THAT(
      error_of<DataError>([] { detail::convert_times({1}, TimeUnit::kSecond, TimeUnit::kDay); }),
      HasSubstr("finer"));
  EXPECT_THAT(
      error_of<DataError>([] { detail::convert_times({1}, TimeUnit::kStep, TimeUnit::kDay); }),
      HasSubstr("integer steps"));
}

// A model trained on a CSV file's seconds must forecast a Parquet file's nanoseconds.
TEST(Apply, ConvertsTheTimeUnit) {
  std::vector<std::int64_t> times;
  std::vector<std::optional<std::int64_t>> nanoseconds;
  std::vector<double> y;
  for (int t = 0; t < 60; ++t) {
    times.push_back(date(2020, 1, 1) * kDay + t * kHour);
    nanoseconds.push_back(times.back() * 1'000'000'000);
    y.push_back(wave(0, t));
  }
  const auto trained = fit_times(times);
  const auto stamps = array_of<arrow::TimestampBuilder, std::int64_t>(
      arrow::timestamp(arrow::TimeUnit::NANO), nanoseconds);
  const auto applied = Dataset::apply(
      write_parquet("nanoseconds.parquet", {{"when", stamps}, {"y", reals(y)}}), trained.schema());
  EXPECT_EQ(applied.time_at({0, 6}, 0), times[6] * kMilliseconds);
}

}  // namespace
}  // namespace reprise
