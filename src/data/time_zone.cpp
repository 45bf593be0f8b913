// SPDX-License-Identifier: Apache-2.0
#include "data/time_axis_internal.h"
#include "reprise/errors.h"

#include <arrow/api.h>
#include <arrow/compute/api.h>
#if __has_include(<arrow/compute/initialize.h>)
#include <arrow/compute/initialize.h>
#endif

#include <algorithm>
#include <array>

namespace reprise::detail {
namespace {

void load_kernels() {
#if __has_include(<arrow/compute/initialize.h>)
  static const arrow::Status status = arrow::compute::Initialize();
  if (!status.ok()) throw DataError("time zones cannot be read: " + status.message());
#endif
}

arrow::TimeUnit::type arrow_unit(TimeUnit unit) {
  switch (unit) {
    case TimeUnit::kMillisecond:
      return arrow::TimeUnit::MILLI;
    case TimeUnit::kMicrosecond:
      return arrow::TimeUnit::MICRO;
    case TimeUnit::kNanosecond:
      return arrow::TimeUnit::NANO;
    default:
      return arrow::TimeUnit::SECOND;
  }
}

bool is_utc(const std::string& zone) {
  static constexpr std::array kNames = {"",    "UTC",     "Etc/UTC", "Z",
                                        "GMT", "Etc/GMT", "+00:00",  "-00:00"};
  return std::find(kNames.begin(), kNames.end(), zone) != kNames.end();
}

[[noreturn]] void fail(const TimeAxis& axis, const arrow::Status& status) {
  throw DataError("time zone '" + axis.zone + "': " + status.message());
}

}  // namespace

std::vector<std::int64_t> wall_clock(const TimeAxis& axis, std::span<const std::int64_t> times) {
  std::vector<std::int64_t> result(times.begin(), times.end());
  if (!axis.is_calendar() || axis.unit == TimeUnit::kDay || is_utc(axis.zone)) return result;
  load_kernels();
  const auto values = std::make_shared<arrow::TimestampArray>(
      arrow::timestamp(arrow_unit(axis.unit), axis.zone), static_cast<std::int64_t>(times.size()),
      arrow::Buffer::Wrap(times.data(), times.size()));
  const auto local = arrow::compute::LocalTimestamp(values);
  if (!local.ok()) fail(axis, local.status());
  const auto array = std::static_pointer_cast<arrow::TimestampArray>(local->make_array());
  std::copy_n(array->raw_values(), result.size(), result.begin());
  return result;
}

std::int64_t from_wall_clock(const TimeAxis& axis, std::int64_t wall_time) {
  if (is_utc(axis.zone) || axis.unit == TimeUnit::kDay) return wall_time;
  load_kernels();
  const auto values = std::make_shared<arrow::TimestampArray>(
      arrow::timestamp(arrow_unit(axis.unit)), 1, arrow::Buffer::Wrap(&wall_time, 1));
  using Options = arrow::compute::AssumeTimezoneOptions;
  const auto instant = arrow::compute::AssumeTimezone(
      values, Options(axis.zone, Options::AMBIGUOUS_EARLIEST, Options::NONEXISTENT_LATEST));
  if (!instant.ok()) fail(axis, instant.status());
  return std::static_pointer_cast<arrow::TimestampArray>(instant->make_array())->Value(0);
}

bool knows_zone(const TimeAxis& axis) {
  try {
    const std::int64_t epoch = 0;
    wall_clock(axis, {&epoch, 1});
    return true;
  } catch (const DataError&) {
    return false;
  }
}

}  // namespace reprise::detail
