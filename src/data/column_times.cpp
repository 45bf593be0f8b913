// SPDX-License-Identifier: Apache-2.0
#include "data/column_values_internal.h"

#include "data/text_internal.h"

#include <arrow/api.h>
#include <arrow/util/value_parsing.h>

#include <cmath>
#include <limits>

namespace reprise::detail {
namespace {

TimeUnit unit_of(arrow::TimeUnit::type unit) {
  switch (unit) {
    case arrow::TimeUnit::SECOND:
      return TimeUnit::kSecond;
    case arrow::TimeUnit::MILLI:
      return TimeUnit::kMillisecond;
    case arrow::TimeUnit::MICRO:
      return TimeUnit::kMicrosecond;
    default:
      return TimeUnit::kNanosecond;
  }
}

/// Times of a column of text, in the coarsest unit that holds all of them.
Times parse_times(const TableFile& file, const std::string& name) {
  const auto texts = read_categories(file, name);
  Times times;
  for (const auto unit : {arrow::TimeUnit::SECOND, arrow::TimeUnit::MICRO, arrow::TimeUnit::NANO}) {
    std::vector<std::int64_t> parsed(texts.values.size());
    bool with_offset = false;
    bool all_parsed = true;
    for (std::size_t i = 0; i < parsed.size() && all_parsed; ++i) {
      bool has_offset = false;
      all_parsed = arrow::internal::ParseTimestampISO8601(
          texts.values[i].data(), texts.values[i].size(), unit, &parsed[i], &has_offset);
      with_offset = with_offset || has_offset;
      if (!all_parsed && unit == arrow::TimeUnit::NANO) {
        fail_column(
            file, name,
            "is text that is not a date or time such as 2020-01-31 or 2020-01-31T08:00, first '" +
                texts.values[i] + "'; name another time column or convert it");
      }
    }
    if (!all_parsed) continue;
    for (const std::int32_t code : texts.codes) {
      times.values.push_back(code < 0 ? std::numeric_limits<std::int64_t>::min()
                                      : parsed[static_cast<std::size_t>(code)]);
    }
    times.unit = unit_of(unit);
    if (with_offset) times.zone = "UTC";
    break;
  }
  return times;
}

template <typename ArrayType>
void fill_times(const arrow::Array& chunk, std::int64_t* out, std::int64_t divisor = 1) {
  const auto& values = static_cast<const ArrayType&>(chunk);
  for (std::int64_t i = 0; i < values.length(); ++i) {
    out[i] = values.IsNull(i) ? std::numeric_limits<std::int64_t>::min()
                              : static_cast<std::int64_t>(values.Value(i)) / divisor;
  }
}

Times read_timestamps(const TableFile& file, const std::string& name, const arrow::DataType& type) {
  Times times;
  times.values.resize(static_cast<std::size_t>(file.row_count()));
  times.unit = TimeUnit::kDay;
  if (type.id() == arrow::Type::TIMESTAMP) {
    times.unit = unit_of(static_cast<const arrow::TimestampType&>(type).unit());
    times.zone = static_cast<const arrow::TimestampType&>(type).timezone();
  }
  file.read({name}, [&](std::size_t, std::int64_t row, const arrow::Array& chunk) {
    std::int64_t* out = times.values.data() + row;
    switch (type.id()) {
      case arrow::Type::DATE32:
        return fill_times<arrow::Date32Array>(chunk, out);
      case arrow::Type::DATE64:
        return fill_times<arrow::Date64Array>(chunk, out, 86'400'000);
      default:
        return fill_times<arrow::TimestampArray>(chunk, out);
    }
  });
  return times;
}

Times read_steps(const TableFile& file, const std::string& name) {
  Times times;
  const auto numbers = read_reals(file, {name}).front();
  for (std::size_t row = 0; row < numbers.size(); ++row) {
    const double value = numbers[row];
    if (std::isnan(value)) {
      times.values.push_back(std::numeric_limits<std::int64_t>::min());
    } else if (value != std::floor(value) || std::abs(value) > 9007199254740992.0) {  // 2^53
      fail_column(file, name,
                  "is used as time, but row " + std::to_string(row + 1) + " holds " +
                      number_text(value) +
                      ": integer steps up to 2^53, dates or timestamps are needed");
    } else {
      times.values.push_back(static_cast<std::int64_t>(value));
    }
  }
  return times;
}

/// Rows counted and the first few named.
struct Rows {
  std::int64_t count = 0;
  std::string first;

  void add(std::size_t row) {
    if (++count <= 3) first += (count > 1 ? ", " : "") + std::to_string(row + 1);
  }
};

void check_times(const TableFile& file, const std::string& name,
                 const std::vector<std::int64_t>& values) {
  // So that differences of two times cannot overflow: 1823 to 2116 in nanoseconds, far beyond any
  // calendar in coarser units.
  constexpr std::int64_t kLimit = std::numeric_limits<std::int64_t>::max() / 2;
  Rows missing;
  Rows far;
  for (std::size_t row = 0; row < values.size(); ++row) {
    if (values[row] >= -kLimit && values[row] <= kLimit) continue;
    (values[row] == std::numeric_limits<std::int64_t>::min() ? missing : far).add(row);
  }
  if (missing.count > 0) {
    fail_column(file, name,
                "is the time, but has " + count_of(missing.count, "missing value") +
                    ", first in row " + missing.first + "; drop these rows");
  }
  if (far.count > 0) {
    fail_column(file, name,
                "is the time, but has " + count_of(far.count, "value") +
                    " too far from 1970 for its unit, first in row " + far.first +
                    "; drop these rows, or store the times in a coarser unit");
  }
}

}  // namespace

Times read_times(const TableFile& file, const std::string& name) {
  const auto& info = file.column(name, "time");
  Times times;
  if (info.kind == ColumnKind::kTime) {
    times = read_timestamps(file, name, *info.type);
  } else if (info.kind == ColumnKind::kReal) {
    times = read_steps(file, name);
  } else if (info.kind == ColumnKind::kCategory && info.type->id() != arrow::Type::BOOL) {
    times = parse_times(file, name);
  } else {
    fail_column(file, name, "holds " + info.type->ToString() + ", which cannot be time");
  }
  check_times(file, name, times.values);
  return times;
}

}  // namespace reprise::detail
