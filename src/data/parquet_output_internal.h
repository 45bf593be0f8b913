// SPDX-License-Identifier: Apache-2.0
/// Write a Parquet file that appears under its name only when it is complete.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

namespace arrow {
class RecordBatch;
class Schema;
class Status;
}  // namespace arrow

namespace reprise::detail {

class ParquetOutput {
 public:
  /// Throws `DataError` where the file cannot be made, or is a device, a pipe or a folder.
  ParquetOutput(const std::filesystem::path& file, const std::shared_ptr<arrow::Schema>& schema);
  /// Removes what was not committed.
  ~ParquetOutput();
  ParquetOutput(const ParquetOutput&) = delete;
  ParquetOutput& operator=(const ParquetOutput&) = delete;

  /// Appends rows as a row group of their own.
  void write(const arrow::RecordBatch& rows);
  void commit();

 private:
  struct Impl;
  void check(const arrow::Status& status) const;

  std::filesystem::path file_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reprise::detail
