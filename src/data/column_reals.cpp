// SPDX-License-Identifier: Apache-2.0
#include "data/column_values_internal.h"

#include "data/text_internal.h"
#include "reprise/errors.h"

#include <arrow/api.h>
#include <arrow/util/decimal.h>
#include <arrow/util/float16.h>
#include <arrow/visit_array_inline.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace reprise::detail {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double seconds_per(arrow::TimeUnit::type unit) {
  switch (unit) {
    case arrow::TimeUnit::SECOND:
      return 1.0;
    case arrow::TimeUnit::MILLI:
      return 1e-3;
    case arrow::TimeUnit::MICRO:
      return 1e-6;
    default:
      return 1e-9;
  }
}

/// Writes an array's values as numbers; fails for types that are not of numbers.
class RealFiller {
 public:
  explicit RealFiller(double* out) : out_(out) {}

  template <typename Type>
  arrow::Status Visit(const arrow::NumericArray<Type>& values) {
    if constexpr (arrow::is_half_float_type<Type>::value) {
      return fill(values, [](const auto& array, std::int64_t i) {
        return arrow::util::Float16::FromBits(array.Value(i)).ToDouble();
      });
    } else if constexpr (arrow::is_time_type<Type>::value || arrow::is_duration_type<Type>::value) {
      const double factor = seconds_per(static_cast<const Type&>(*values.type()).unit());
      return fill(values, [factor](const auto& array, std::int64_t i) {
        return static_cast<double>(array.Value(i)) * factor;
      });
    } else if constexpr (arrow::is_number_type<Type>::value) {
      return fill(values, [](const auto& array, std::int64_t i) {
        return static_cast<double>(array.Value(i));
      });
    } else {
      return refuse(values);
    }
  }

  arrow::Status Visit(const arrow::BooleanArray& values) {
    return fill(values,
                [](const auto& array, std::int64_t i) { return array.Value(i) ? 1.0 : 0.0; });
  }
  arrow::Status Visit(const arrow::Decimal32Array& values) {
    return fill_decimals<arrow::Decimal32>(values);
  }
  arrow::Status Visit(const arrow::Decimal64Array& values) {
    return fill_decimals<arrow::Decimal64>(values);
  }
  arrow::Status Visit(const arrow::Decimal128Array& values) {
    return fill_decimals<arrow::Decimal128>(values);
  }
  arrow::Status Visit(const arrow::Decimal256Array& values) {
    return fill_decimals<arrow::Decimal256>(values);
  }
  arrow::Status Visit(const arrow::NullArray& values) {
    std::fill(out_, out_ + values.length(), kNaN);
    return arrow::Status::OK();
  }
  arrow::Status Visit(const arrow::Array& values) { return refuse(values); }

 private:
  template <typename ArrayType, typename Convert>
  arrow::Status fill(const ArrayType& values, const Convert& convert) {
    for (std::int64_t i = 0; i < values.length(); ++i) {
      out_[i] = values.IsNull(i) ? kNaN : convert(values, i);
    }
    return arrow::Status::OK();
  }

  template <typename Decimal, typename ArrayType>
  arrow::Status fill_decimals(const ArrayType& values) {
    const int scale = static_cast<const arrow::DecimalType&>(*values.type()).scale();
    return fill(values, [scale](const auto& array, std::int64_t i) {
      return Decimal(array.GetValue(i)).ToDouble(scale);
    });
  }

  static arrow::Status refuse(const arrow::Array& values) {
    return arrow::Status::TypeError(values.type()->ToString());
  }

  double* out_;
};

}  // namespace

bool fill_reals(const arrow::Array& chunk, double* out) {
  RealFiller filler(out);
  return arrow::VisitArrayInline(chunk, &filler).ok();
}

std::string number_text(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15)
    return std::to_string(std::llround(value));
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, end.ptr};
}

void fail_column(const TableFile& file, const std::string& name, const std::string& what) {
  throw DataError(file.name() + ": column '" + name + "' " + what);
}

namespace {

/// The first value of a column of text that is no number, for a message.
std::string first_text(const TableFile& file, const std::string& name) {
  const auto categories = read_categories(file, name);
  for (std::size_t row = 0; row < categories.codes.size(); ++row) {
    if (categories.codes[row] < 0) continue;
    const auto& text = categories.values[static_cast<std::size_t>(categories.codes[row])];
    double number = 0.0;
    const auto end = text.data() + text.size();
    if (std::from_chars(text.data(), end, number).ptr != end) {
      return ", first '" + text + "' in row " + std::to_string(row + 1);
    }
  }
  return ", though all of it reads as numbers: convert the column";
}

}  // namespace

std::vector<std::vector<double>> read_reals(const TableFile& file,
                                            const std::vector<std::string>& names) {
  std::vector<std::vector<double>> columns(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto& info = file.column(names[i], "a real variable");
    const bool is_bool = info.type->id() == arrow::Type::BOOL;
    if (info.kind == ColumnKind::kCategory && !is_bool) {
      fail_column(file, names[i],
                  "holds " + info.type->ToString() + " where numbers are needed" +
                      first_text(file, names[i]));
    }
    if (info.kind != ColumnKind::kReal && !is_bool && info.type->id() != arrow::Type::NA) {
      fail_column(file, names[i], "holds " + info.type->ToString() + " where numbers are needed");
    }
    columns[i].resize(static_cast<std::size_t>(file.row_count()));
  }
  file.read(names, [&](std::size_t column, std::int64_t row, const arrow::Array& chunk) {
    fill_reals(chunk, columns[column].data() + row);
  });
  return columns;
}

}  // namespace reprise::detail
