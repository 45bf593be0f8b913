// SPDX-License-Identifier: Apache-2.0
/// The stages from a file to a `DatasetRows`.
#pragma once

#include "data/dataset_internal.h"
#include "data/sorted_table_internal.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace reprise::detail {

/// A table on its way: each stage reads what the earlier ones found.
struct Build {
  const TableFile& file;
  const Schema* given = nullptr;             ///< null: fit
  DataOptions options;                       ///< resolved step by step
  SortedTable table;                         ///< groups that are left out are taken from its list
  std::vector<std::vector<double>> targets;  ///< by target and sorted row
  std::vector<std::int64_t> sorted_row;      ///< by row of `rows`; -1 beyond the table
  DatasetRows rows;

  bool is_fit() const { return given == nullptr; }
  void report(AuditFinding::Level level, std::string what, std::string action);
  [[noreturn]] void fail(const std::string& what) const;
  /// Whether the values of a column are categories.
  bool is_categorical(const std::string& column) const;
  /// The row of the file behind a row of `rows`; -1 beyond the table.
  std::int64_t file_row(std::int64_t row) const;
};

/// roles.cpp: names what `options` leaves open.
void infer_time(const TableFile& file, DataOptions& options);
std::vector<Categories> infer_ids(const TableFile& file, DataOptions& options, const Times& times);
void infer_target(const TableFile& file, DataOptions& options);
/// Whether a column of this name is usually the time.
bool is_time_name(const std::string& name);

/// roles_by_values.cpp: roles of all other columns, once the series are known.
void infer_columns(Build& build);

/// series.cpp: reads the targets, splits the series, leaves out those that are too short.
void read_targets(Build& build);
void split_series(Build& build);

/// dataset_fill.cpp: vocabularies and codes; scalers and scaled values.
void fill_categoricals(Build& build);
void fill_reals(Build& build);
void fill_targets(Build& build);

/// Throws `DataError` for values of `column` (by row of the file) that are not finite float32
/// numbers, in rows of the table up to `known_rows` of each group or, with `all_rows`, in all of
/// them.
void check_finite(const Build& build, const std::string& column, const std::vector<double>& values,
                  bool all_rows);

}  // namespace reprise::detail
