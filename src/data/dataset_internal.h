// SPDX-License-Identifier: Apache-2.0
/// What a `Dataset` holds: rows in the order of series and time, one row-major matrix per role.
#pragma once

#include "data/time_axis_internal.h"
#include "reprise/dataset.h"

#include <cstdint>
#include <string>
#include <vector>

namespace reprise::detail {

/// Row-major values [rows, columns].
template <typename T>
struct Matrix {
  std::int64_t columns = 0;
  std::vector<T> values;

  void resize(std::int64_t rows, std::int64_t new_columns) {
    columns = new_columns;
    values.assign(static_cast<std::size_t>(rows * new_columns), T{});
  }
  T* row(std::int64_t i) { return values.data() + i * columns; }
  const T* row(std::int64_t i) const { return values.data() + i * columns; }
};

/// The rows of one combination of id values. Rows may go on beyond the table, up to a horizon after
/// the last target.
struct GroupRows {
  std::vector<std::string> id;
  std::int64_t begin = 0;  ///< first row in the matrices
  std::int64_t rows = 0;
  std::int64_t table_rows = 0;  ///< of which are in the table
  std::int64_t known_rows = 0;  ///< of which some target is known
  std::int64_t train_rows = 0;  ///< of which are training rows of every target
};

/// One target of one group: what windows are cut from. Row numbers count from the group's first
/// row.
struct Series {
  std::vector<std::string> key;
  std::int64_t group = 0;
  std::int64_t target = 0;
  std::int64_t known_rows = 0;  ///< before the future, where the target is missing
  std::int64_t train_end = 0;
  std::int64_t valid_end = 0;
  std::int64_t test_end = 0;
  Scaler scaler;
};

struct DatasetRows {
  Schema schema;
  std::vector<AuditFinding> findings;
  TimeAxis axis;
  std::int64_t table_rows = 0;
  std::vector<GroupRows> groups;
  std::vector<Series> series;
  std::vector<std::int64_t> times;      ///< by row
  std::vector<std::int32_t> run_begin;  ///< by row: first row of its group without a gap in between
  std::vector<std::vector<double>> target_raw;  ///< by target and row; NaN in the future
  std::vector<std::vector<float>> target;       ///< the same, normalised by the series' scaler
  Matrix<float> observed_real;  ///< column 0 is left to the past target, which differs by series
  Matrix<float> known_real;     ///< the last columns are left to the lags, for the same reason
  Matrix<std::int32_t> observed_categorical;
  Matrix<std::int32_t> known_categorical;
  Matrix<float> static_real;                ///< by series
  Matrix<std::int64_t> static_categorical;  ///< by series

  std::int64_t longest_lag() const;
  /// Rows before the origin that a window needs.
  std::int64_t history_rows() const { return schema.options.encoder_length + longest_lag(); }
};

/// Reads and lays out a table; `schema` is null where everything is to be fitted.
DatasetRows build_rows(const std::filesystem::path& file, const DataOptions& options,
                       const Schema* schema);

void allocate_batch(const DatasetRows& rows, std::int64_t batch_size, Batch& batch);
void gather_rows(const DatasetRows& rows, std::span<const Window> windows,
                 const GatherOptions& options, Batch& batch);

}  // namespace reprise::detail
