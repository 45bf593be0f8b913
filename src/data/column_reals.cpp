// SPDX-License-Identifier: Apache-2.0
#include "data/column_values_internal.h"

#include "data/text_internal.h"
#include "reprise/errors.h"

#include <arrow/api.h>
#include <arrow/util/decimal.h>
#include <arrow/util/float16.h>

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

template <typename ArrayType, typename Convert>
void fill(const arrow::Array& chunk, double* out, const Convert& convert) {
  const auto& values = static_cast<const ArrayType&>(chunk);
  for (std::int64_t i = 0; i < values.length(); ++i) {
    out[i] = values.IsNull(i) ? kNaN : convert(values, i);
  }
}

template <typename ArrayType>
void fill_numbers(const arrow::Array& chunk, double* out, double factor = 1.0) {
  fill<ArrayType>(chunk, out, [factor](const ArrayType& values, std::int64_t i) {
    return static_cast<double>(values.Value(i)) * factor;
  });
}

template <typename ArrayType, typename Decimal>
void fill_decimals(const arrow::Array& chunk, double* out) {
  const int scale = static_cast<const arrow::DecimalType&>(*chunk.type()).scale();
  fill<ArrayType>(chunk, out, [scale](const ArrayType& values, std::int64_t i) {
    return Decimal(values.GetValue(i)).ToDouble(scale);
  });
}

}  // namespace

bool fill_reals(const arrow::Array& chunk, double* out) {
  switch (chunk.type_id()) {
    case arrow::Type::INT8:
      fill_numbers<arrow::Int8Array>(chunk, out);
      return true;
    case arrow::Type::INT16:
      fill_numbers<arrow::Int16Array>(chunk, out);
      return true;
    case arrow::Type::INT32:
      fill_numbers<arrow::Int32Array>(chunk, out);
      return true;
    case arrow::Type::INT64:
      fill_numbers<arrow::Int64Array>(chunk, out);
      return true;
    case arrow::Type::UINT8:
      fill_numbers<arrow::UInt8Array>(chunk, out);
      return true;
    case arrow::Type::UINT16:
      fill_numbers<arrow::UInt16Array>(chunk, out);
      return true;
    case arrow::Type::UINT32:
      fill_numbers<arrow::UInt32Array>(chunk, out);
      return true;
    case arrow::Type::UINT64:
      fill_numbers<arrow::UInt64Array>(chunk, out);
      return true;
    case arrow::Type::FLOAT:
      fill_numbers<arrow::FloatArray>(chunk, out);
      return true;
    case arrow::Type::DOUBLE:
      fill_numbers<arrow::DoubleArray>(chunk, out);
      return true;
    case arrow::Type::HALF_FLOAT:
      fill<arrow::HalfFloatArray>(chunk, out, [](const auto& values, std::int64_t i) {
        return arrow::util::Float16::FromBits(values.Value(i)).ToDouble();
      });
      return true;
    case arrow::Type::BOOL:
      fill_numbers<arrow::BooleanArray>(chunk, out);
      return true;
    case arrow::Type::DECIMAL32:
      fill_decimals<arrow::Decimal32Array, arrow::Decimal32>(chunk, out);
      return true;
    case arrow::Type::DECIMAL64:
      fill_decimals<arrow::Decimal64Array, arrow::Decimal64>(chunk, out);
      return true;
    case arrow::Type::DECIMAL128:
      fill_decimals<arrow::Decimal128Array, arrow::Decimal128>(chunk, out);
      return true;
    case arrow::Type::DECIMAL256:
      fill_decimals<arrow::Decimal256Array, arrow::Decimal256>(chunk, out);
      return true;
    case arrow::Type::TIME32:
      fill_numbers<arrow::Time32Array>(
          chunk, out, seconds_per(static_cast<const arrow::Time32Type&>(*chunk.type()).unit()));
      return true;
    case arrow::Type::TIME64:
      fill_numbers<arrow::Time64Array>(
          chunk, out, seconds_per(static_cast<const arrow::Time64Type&>(*chunk.type()).unit()));
      return true;
    case arrow::Type::DURATION:
      fill_numbers<arrow::DurationArray>(
          chunk, out, seconds_per(static_cast<const arrow::DurationType&>(*chunk.type()).unit()));
      return true;
    case arrow::Type::NA:
      std::fill(out, out + chunk.length(), kNaN);
      return true;
    default:
      return false;
  }
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
