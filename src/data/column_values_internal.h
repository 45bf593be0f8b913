// SPDX-License-Identifier: Apache-2.0
/// Values of a column as what the forecaster computes with: real numbers, categories, times.
#pragma once

#include "data/table_file_internal.h"
#include "reprise/schema.h"

#include <cstdint>
#include <string>
#include <vector>

namespace reprise::detail {

/// A column of categories: `values[codes[row]]`, or -1 for a missing value. Values stand in the
/// order of appearance.
struct Categories {
  std::vector<std::int32_t> codes;
  std::vector<std::string> values;
};

struct Times {
  std::vector<std::int64_t> values;
  TimeUnit unit = TimeUnit::kStep;
  std::string zone;
};

/// Columns of numbers, by row of the file; NaN where a value is missing. Durations and times of day
/// are in seconds. Throws `DataError` for a column of another kind, quoting what it holds.
std::vector<std::vector<double>> read_reals(const TableFile& file,
                                            const std::vector<std::string>& names);

/// A column of any usable kind but times, as text. Numbers without fraction read alike, whatever
/// their type.
Categories read_categories(const TableFile& file, const std::string& name);

/// A column of dates, timestamps, whole numbers or ISO 8601 text. Throws `DataError` where a value
/// is missing.
Times read_times(const TableFile& file, const std::string& name);

/// Throws the `DataError` "FILE: column 'NAME' WHAT".
[[noreturn]] void fail_column(const TableFile& file, const std::string& name,
                              const std::string& what);

/// Converts one piece of a column to numbers; false where its type is not one of numbers.
bool fill_reals(const arrow::Array& chunk, double* out);

/// A number as text, without fraction where it has none.
std::string number_text(double value);

}  // namespace reprise::detail
