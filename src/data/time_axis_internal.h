// SPDX-License-Identifier: Apache-2.0
/// Steps of a time column: its frequency, its calendar, its text.
#pragma once

#include "reprise/schema.h"

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace reprise::detail {

/// Unit and frequency of a time column, as in the `Schema`.
struct TimeAxis {
  TimeUnit unit = TimeUnit::kStep;
  std::string zone;
  std::int64_t frequency = 1;
  bool wall_clock = false;
  bool month_end = false;

  bool is_calendar() const { return unit != TimeUnit::kStep; }
  /// Of dates and timestamps: units in a day.
  std::int64_t day() const;

  /// Places on a line where neighbouring samples are `step()` apart, whatever the months' lengths
  /// and the clock changes.
  std::vector<std::int64_t> positions(std::span<const std::int64_t> times) const;
  std::int64_t step() const { return frequency < 0 ? -frequency : frequency; }

  /// The time `samples` steps after `time`.
  std::int64_t advance(std::int64_t time, std::int64_t samples) const;
  std::string text(std::int64_t time) const;
  /// "1 hour", "3 months", "1 step".
  std::string frequency_text() const;
  /// Reads an option such as `train_until`. Throws `OptionError` naming `field`.
  std::int64_t parse(const std::string& text, const std::string& field) const;
};

/// Rows [first, second) of one series.
using RowRange = std::pair<std::int64_t, std::int64_t>;

/// Finds frequency, wall clock and month ends of `times`, which are sorted within each of `series`.
void find_frequency(TimeAxis& axis, std::span<const std::int64_t> times,
                    std::span<const RowRange> series);

/// What the clocks in the axis' zone show, in the axis' unit, as if it were UTC. Throws `DataError`
/// for an unknown zone.
std::vector<std::int64_t> wall_clock(const TimeAxis& axis, std::span<const std::int64_t> times);

/// The instant when the clocks show `wall_time`: the earlier of two, the later end of an hour that
/// is skipped.
std::int64_t from_wall_clock(const TimeAxis& axis, std::int64_t wall_time);

/// Whether `wall_clock` can convert: without a zone, in UTC, or in a zone of the system's database.
bool knows_zone(const TimeAxis& axis);

/// Converts times to another unit. Throws `DataError` where steps meet calendar times, or a time is
/// no whole unit.
std::vector<std::int64_t> convert_times(std::vector<std::int64_t> times, TimeUnit from,
                                        TimeUnit to);

/// The calendar variables there are: hour, weekday, monthday, month.
const std::vector<std::string>& calendar_names();
/// All values of a calendar variable, in the order of their codes.
std::vector<std::string> calendar_vocabulary(const std::string& name);
/// Value of a calendar variable, from 0, at a time of the wall clock.
std::int32_t calendar_value(const TimeAxis& axis, const std::string& name, std::int64_t wall_time);
/// The calendar variables that make sense at the axis' frequency.
std::vector<std::string> default_calendar(const TimeAxis& axis);

}  // namespace reprise::detail
