// SPDX-License-Identifier: Apache-2.0
#include "data/time_axis_internal.h"
#include "reprise/errors.h"

#include <arrow/util/value_parsing.h>

#include <charconv>
#include <chrono>
#include <cstdio>

namespace reprise::detail {
namespace {

std::string date_text(std::int64_t days) {
  const std::chrono::year_month_day date{std::chrono::sys_days{std::chrono::days{days}}};
  char buffer[48];
  std::snprintf(buffer, sizeof buffer, "%04d-%02u-%02u", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
  return buffer;
}

/// "1 hour", "15 minutes": `count` of the largest unit that divides it.
std::string duration_text(std::int64_t units, std::int64_t units_per_day) {
  struct Name {
    const char* name;
    std::int64_t per_day;  // of this unit in a day
  };
  static constexpr Name kNames[] = {{"day", 1},
                                    {"hour", 24},
                                    {"minute", 1440},
                                    {"second", 86'400},
                                    {"millisecond", 86'400'000},
                                    {"microsecond", 86'400'000'000},
                                    {"nanosecond", 86'400'000'000'000}};
  for (const auto& [name, per_day] : kNames) {
    if (units_per_day % per_day != 0 || units % (units_per_day / per_day) != 0) continue;
    const std::int64_t count = units / (units_per_day / per_day);
    return std::to_string(count) + " " + name + (count == 1 ? "" : "s");
  }
  return std::to_string(units);
}

}  // namespace

std::string TimeAxis::text(std::int64_t time) const {
  if (!is_calendar()) return std::to_string(time);
  const std::int64_t days = time / day() - (time % day() < 0 ? 1 : 0);
  if (unit == TimeUnit::kDay) return date_text(days);
  const std::int64_t second = day() / 86'400;
  const std::int64_t in_day = time - days * day();
  const std::int64_t seconds = in_day / second;
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "T%02d:%02d", static_cast<int>(seconds / 3600),
                static_cast<int>(seconds / 60 % 60));
  std::string result = date_text(days) + buffer;
  if (in_day % (60 * second) != 0) {
    std::snprintf(buffer, sizeof buffer, ":%02d", static_cast<int>(seconds % 60));
    result += buffer;
  }
  if (in_day % second != 0) {
    // The digits after the 1 of one second's units are as many as the unit has.
    result += "." + std::to_string(second + in_day % second).substr(1);
  }
  return zone.empty() ? result : result + "Z";
}

std::string TimeAxis::frequency_text() const {
  if (!is_calendar()) return frequency == 1 ? "1 step" : std::to_string(frequency) + " steps";
  if (frequency >= 0) return duration_text(frequency, day());
  if (step() % 12 == 0) return std::to_string(step() / 12) + (step() == 12 ? " year" : " years");
  return std::to_string(step()) + (step() == 1 ? " month" : " months");
}

std::int64_t TimeAxis::parse(const std::string& text, const std::string& field) const {
  std::int64_t value = 0;
  if (!is_calendar()) {
    const auto end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc{} && stop == end && !text.empty()) return value;
    throw OptionError(field,
                      field + ": '" + text + "' is not an integer step, as the time column has");
  }
  auto parse_unit = arrow::TimeUnit::SECOND;
  if (unit == TimeUnit::kMillisecond) parse_unit = arrow::TimeUnit::MILLI;
  if (unit == TimeUnit::kMicrosecond) parse_unit = arrow::TimeUnit::MICRO;
  if (unit == TimeUnit::kNanosecond) parse_unit = arrow::TimeUnit::NANO;
  bool has_offset = false;
  if (!arrow::internal::ParseTimestampISO8601(text.data(), text.size(), parse_unit, &value,
                                              &has_offset)) {
    throw OptionError(field, field + ": '" + text +
                                 "' is not a date or time such as 2020-01-31 or 2020-01-31T08:00");
  }
  if (has_offset && zone.empty()) {
    throw OptionError(
        field, field + ": '" + text + "' has a UTC offset, the time column has no time zone");
  }
  if (unit == TimeUnit::kDay) {
    if (value % 86'400 == 0) return value / 86'400;
    throw OptionError(field, field + ": '" + text + "' is not a whole day, as the time column has");
  }
  return has_offset || !knows_zone(*this) ? value : from_wall_clock(*this, value);
}

}  // namespace reprise::detail
