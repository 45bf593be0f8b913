// SPDX-License-Identifier: Apache-2.0
/// A table file as it lies there: its columns, before any of them has a role; and CSV turned into
/// Parquet.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace reprise {

struct TableColumn {
  std::string name;
  std::string type;  ///< in Arrow's words: timestamp[ns], double, string, ...
};

struct TableShape {
  std::vector<TableColumn> columns;
  std::int64_t rows = 0;
};

/// Reads the columns of `file` (Parquet, or CSV by its extension). Throws `DataError` when it
/// cannot be read as such.
TableShape read_table_shape(const std::filesystem::path& file);

/// Reads `csv` and writes the same table to `parquet`. Throws `DataError` naming the file that
/// failed.
void convert_csv_to_parquet(const std::filesystem::path& csv, const std::filesystem::path& parquet);

}  // namespace reprise
