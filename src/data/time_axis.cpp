// SPDX-License-Identifier: Apache-2.0
#include "data/time_axis_internal.h"

#include "data/text_internal.h"
#include "reprise/errors.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <map>
#include <unordered_map>

namespace reprise::detail {
namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return a / b - (a % b < 0 ? 1 : 0);
}

struct CalendarTime {
  std::chrono::year_month_day date;
  std::int64_t days;         // since 1970-01-01
  std::int64_t time_of_day;  // in units
};

CalendarTime calendar_time(const TimeAxis& axis, std::int64_t wall_time) {
  const std::int64_t days = floor_div(wall_time, axis.day());
  const auto date = std::chrono::year_month_day{std::chrono::sys_days{std::chrono::days{days}}};
  return {date, days, wall_time - days * axis.day()};
}

std::int64_t month_index(const CalendarTime& time) {
  return static_cast<int>(time.date.year()) * std::int64_t{12} +
         static_cast<unsigned>(time.date.month()) - 1;
}

bool is_last_of_month(const CalendarTime& time) {
  return time.date.day() == (time.date.year() / time.date.month() / std::chrono::last).day();
}

/// The most common difference of neighbours, and how often it occurs; {0, 0} without neighbours.
std::pair<std::int64_t, std::int64_t> most_common_step(std::span<const std::int64_t> positions,
                                                       std::span<const RowRange> series) {
  std::unordered_map<std::int64_t, std::int64_t> counts;
  for (const auto& [first, last] : series) {
    for (std::int64_t row = first + 1; row < last; ++row) {
      const std::int64_t step =
          positions[static_cast<std::size_t>(row)] - positions[static_cast<std::size_t>(row - 1)];
      if (step != 0) ++counts[step];
    }
  }
  std::pair<std::int64_t, std::int64_t> best = {0, 0};
  for (const auto& [step, count] : counts) {
    if (count > best.second || (count == best.second && step < best.first)) best = {step, count};
  }
  return best;
}

TimeAxis axis_of(TimeUnit unit) {
  TimeAxis axis;
  axis.unit = unit;
  return axis;
}

enum class MonthAnchor { kNone, kSameDay, kLastDay };

/// Whether all times lie on the same day of the month, or all on its last, at the same time of the
/// day.
MonthAnchor month_anchor(const TimeAxis& axis, std::span<const std::int64_t> wall_times) {
  bool same_day = true;
  bool last_day = true;
  const auto first = calendar_time(axis, wall_times.front());
  for (const std::int64_t wall_time : wall_times) {
    const auto time = calendar_time(axis, wall_time);
    if (time.time_of_day != first.time_of_day) return MonthAnchor::kNone;
    same_day = same_day && time.date.day() == first.date.day();
    last_day = last_day && is_last_of_month(time);
    if (!same_day && !last_day) return MonthAnchor::kNone;
  }
  return same_day ? MonthAnchor::kSameDay : MonthAnchor::kLastDay;
}

/// Makes the axis count months where `wall_times` allow it.
bool count_months(TimeAxis& axis, std::span<const std::int64_t> wall_times,
                  std::span<const RowRange> series, bool on_wall_clock) {
  const auto anchor = month_anchor(axis, wall_times);
  if (anchor == MonthAnchor::kNone) return false;
  std::vector<std::int64_t> months;
  months.reserve(wall_times.size());
  for (const std::int64_t time : wall_times)
    months.push_back(month_index(calendar_time(axis, time)));
  const auto [step, count] = most_common_step(months, series);
  if (step == 0) return false;
  axis.frequency = -step;
  axis.wall_clock = on_wall_clock;
  axis.month_end = anchor == MonthAnchor::kLastDay;
  return true;
}

}  // namespace

std::int64_t TimeAxis::day() const {
  switch (unit) {
    case TimeUnit::kSecond:
      return 86'400;
    case TimeUnit::kMillisecond:
      return 86'400'000;
    case TimeUnit::kMicrosecond:
      return 86'400'000'000;
    case TimeUnit::kNanosecond:
      return 86'400'000'000'000;
    default:
      return 1;
  }
}

void find_frequency(TimeAxis& axis, std::span<const std::int64_t> times,
                    std::span<const RowRange> series) {
  auto [step, count] = most_common_step(times, series);
  axis.frequency = step == 0 ? 1 : step;
  axis.wall_clock = false;
  axis.month_end = false;
  if (!axis.is_calendar() || step == 0) return;
  const bool has_clock_changes = !axis.zone.empty() && knows_zone(axis);
  // With clock changes a day has 23 to 25 hours: a tenth of a day is a safe margin.
  if (axis.frequency < axis.day() - axis.day() / 10) return;
  std::vector<std::int64_t> wall_times;
  if (has_clock_changes) {
    wall_times = wall_clock(axis, times);
    const auto [wall_step, wall_count] = most_common_step(wall_times, series);
    if (wall_count > count) {
      axis.frequency = wall_step;
      axis.wall_clock = true;
    }
  }
  if (axis.frequency < 28 * axis.day()) return;
  if (has_clock_changes && count_months(axis, wall_times, series, true)) return;
  count_months(axis, times, series, false);
}

std::vector<std::int64_t> TimeAxis::positions(std::span<const std::int64_t> times) const {
  std::vector<std::int64_t> result = wall_clock
                                         ? detail::wall_clock(*this, times)
                                         : std::vector<std::int64_t>(times.begin(), times.end());
  if (frequency < 0) {
    for (auto& time : result) time = month_index(calendar_time(*this, time));
  }
  return result;
}

std::vector<std::int64_t> convert_times(std::vector<std::int64_t> times, TimeUnit from,
                                        TimeUnit to) {
  if (from == to) return times;
  if (from == TimeUnit::kStep || to == TimeUnit::kStep) {
    throw DataError(std::string("the time column holds ") +
                    (from == TimeUnit::kStep ? "integer steps" : "dates or timestamps") +
                    ", the model was trained on " +
                    (to == TimeUnit::kStep ? "integer steps" : "dates or timestamps"));
  }
  const std::int64_t from_day = axis_of(from).day();
  const std::int64_t to_day = axis_of(to).day();
  for (auto& time : times) {
    const std::int64_t before = time;
    if (to_day >= from_day) {
      if (__builtin_mul_overflow(time, to_day / from_day, &time)) {
        throw DataError("the time column holds a time out of the range of the model's time unit");
      }
    } else {
      const std::int64_t ratio = from_day / to_day;
      time = floor_div(time, ratio);
      if (time * ratio != before) {
        throw DataError("the time column holds " + axis_of(from).text(before) +
                        ", which is finer than the time unit that the model was trained on");
      }
    }
  }
  return times;
}

const std::vector<std::string>& calendar_names() {
  static const std::vector<std::string> kNames = {"hour", "weekday", "monthday", "month"};
  return kNames;
}

std::vector<std::string> calendar_vocabulary(const std::string& name) {
  if (name == "weekday") {
    return {"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"};
  }
  const int first = name == "hour" ? 0 : 1;
  const int count = name == "hour" ? 24 : name == "monthday" ? 31 : 12;
  std::vector<std::string> values;
  for (int i = 0; i < count; ++i) values.push_back(std::to_string(first + i));
  return values;
}

std::int32_t calendar_value(const TimeAxis& axis, const std::string& name, std::int64_t wall_time) {
  const auto time = calendar_time(axis, wall_time);
  if (name == "hour") return static_cast<std::int32_t>(time.time_of_day * 24 / axis.day());
  // 1970-01-01 was a Thursday, the fourth day of the week.
  if (name == "weekday") return static_cast<std::int32_t>(((time.days + 3) % 7 + 7) % 7);
  if (name == "monthday")
    return static_cast<std::int32_t>(static_cast<unsigned>(time.date.day())) - 1;
  return static_cast<std::int32_t>(static_cast<unsigned>(time.date.month())) - 1;
}

std::vector<std::string> default_calendar(const TimeAxis& axis) {
  if (!axis.is_calendar()) return {};
  if (axis.frequency < 0) {
    return axis.step() % 12 == 0 ? std::vector<std::string>{} : std::vector<std::string>{"month"};
  }
  if (axis.frequency < axis.day()) return {"hour", "weekday"};
  if (axis.frequency < 7 * axis.day()) return {"weekday", "month"};
  return {"month"};
}

std::int64_t TimeAxis::advance(std::int64_t time, std::int64_t samples) const {
  if (frequency > 0 && !wall_clock) return time + samples * frequency;
  const std::int64_t from = wall_clock ? detail::wall_clock(*this, {&time, 1}).front() : time;
  std::int64_t moved = from + samples * frequency;
  if (frequency < 0) {
    const auto start = calendar_time(*this, from);
    const std::int64_t month = month_index(start) + samples * step();
    const auto first =
        std::chrono::year{static_cast<int>(floor_div(month, 12))} /
        std::chrono::month{static_cast<unsigned>(month - floor_div(month, 12) * 12 + 1)};
    const auto last = (first / std::chrono::last).day();
    const auto day = month_end ? last : std::min(start.date.day(), last);
    moved = std::chrono::sys_days{first / day}.time_since_epoch().count() * this->day() +
            start.time_of_day;
  }
  return wall_clock ? from_wall_clock(*this, moved) : moved;
}

}  // namespace reprise::detail
