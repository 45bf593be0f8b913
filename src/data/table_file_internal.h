// SPDX-License-Identifier: Apache-2.0
/// Read columns of a Parquet or CSV file, a few at a time and row group by row group.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace arrow {
class Array;
class DataType;
}  // namespace arrow

namespace reprise::detail {

/// What a column's type can be used for.
enum class ColumnKind {
  kReal,      ///< numbers, durations and times of day
  kCategory,  ///< text, booleans, dictionaries
  kTime,      ///< dates and timestamps
  kUnusable,  ///< lists, maps, structs and the like
};

struct ColumnInfo {
  std::string name;
  std::shared_ptr<arrow::DataType> type;
  ColumnKind kind;
};

class TableFile {
 public:
  /// Called for each piece of a column, in the order of the rows: index among the names asked for,
  /// first row, values.
  using Visitor = std::function<void(std::size_t, std::int64_t, const arrow::Array&)>;

  /// Throws `DataError` for a file that is missing, damaged, not of its kind, or without rows.
  explicit TableFile(const std::filesystem::path& file);
  ~TableFile();

  const std::vector<ColumnInfo>& columns() const { return columns_; }
  std::int64_t row_count() const { return row_count_; }
  std::string name() const { return file_.string(); }

  bool has(const std::string& column) const;
  /// Throws `DataError` listing the known columns; `role` says who asks.
  const ColumnInfo& column(const std::string& column, const std::string& role) const;

  /// Hands the columns to `visit`, holding only one batch of row groups at a time.
  void read(const std::vector<std::string>& names, const Visitor& visit) const;

 private:
  struct Source;
  struct ParquetSource;
  struct CsvSource;

  std::filesystem::path file_;
  std::unique_ptr<Source> source_;
  std::vector<ColumnInfo> columns_;
  std::int64_t row_count_ = 0;
};

}  // namespace reprise::detail
