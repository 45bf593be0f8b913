// SPDX-License-Identifier: Apache-2.0
/// Rows of a table in the order of series and time.
#pragma once

#include "data/column_values_internal.h"
#include "data/time_axis_internal.h"
#include "reprise/dataset.h"

#include <cstdint>
#include <string>
#include <vector>

namespace reprise::detail {

/// The rows of one combination of id values, in the order of time: rows [begin, end) of the sorted
/// table.
struct Group {
  std::vector<std::string> id;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

struct SortedTable {
  std::vector<std::string> id_columns;
  std::vector<std::int64_t> file_row;  ///< of each sorted row
  std::vector<std::int64_t> times;     ///< of each sorted row
  std::vector<std::int32_t>
      run_begin;  ///< of each sorted row: first row of its group without a gap in between
  std::vector<Group> groups;  ///< sorted by id; numbers by value where all ids are numbers
  TimeAxis axis;

  /// "row 12 (id=a, 2020-01-01T00:00)", rows counted from 1 as in the file.
  std::string place(const Group& group, std::int64_t sorted_row) const;
};

/// Sorts the rows by `ids` (a column of categories each) and time. Throws `DataError` for a missing
/// id.
SortedTable sort_rows(const TableFile& file, const std::vector<std::string>& id_columns,
                      const std::vector<Categories>& ids, const Times& times);

/// Throws `DataError` where a series has two rows of the same time.
void check_duplicates(const TableFile& file, const SortedTable& table);

/// Finds the runs without gaps at the axis' frequency, reporting gaps and irregular steps.
void find_runs(SortedTable& table, std::vector<AuditFinding>& findings);

}  // namespace reprise::detail
