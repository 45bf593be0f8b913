// SPDX-License-Identifier: Apache-2.0
#include "data/sorted_table_internal.h"

#include "data/text_internal.h"
#include "reprise/errors.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <optional>

namespace reprise::detail {
namespace {

std::optional<std::int64_t> as_integer(const std::string& text) {
  std::int64_t value = 0;
  const auto end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return value;
}

/// Rank of each value in the order people expect: by number where all are integers, else by text.
std::vector<std::int32_t> ranks(const std::vector<std::string>& values) {
  std::vector<std::int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const bool all_numbers = std::all_of(values.begin(), values.end(), [](const auto& value) {
    return as_integer(value).has_value();
  });
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    const auto& left = values[static_cast<std::size_t>(a)];
    const auto& right = values[static_cast<std::size_t>(b)];
    if (all_numbers && as_integer(left) != as_integer(right))
      return as_integer(left) < as_integer(right);
    return left < right;
  });
  std::vector<std::int32_t> rank(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    rank[static_cast<std::size_t>(order[i])] = static_cast<std::int32_t>(i);
  }
  return rank;
}

/// Number of the group of each row, in the order of the groups, and one row of each group.
struct Grouping {
  std::vector<std::int32_t> group;
  std::vector<std::int64_t> example;
};

Grouping group_rows(std::int64_t rows, const std::vector<Categories>& ids) {
  std::vector<std::vector<std::int32_t>> rank;
  for (const auto& column : ids) rank.push_back(ranks(column.values));
  Grouping result;
  result.group.resize(static_cast<std::size_t>(rows));
  std::map<std::vector<std::int32_t>, std::int32_t> groups;
  std::vector<std::int32_t> key(ids.size());
  std::vector<std::int32_t> last_key;
  std::int32_t last_group = -1;
  for (std::size_t row = 0; row < result.group.size(); ++row) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      key[i] = rank[i][static_cast<std::size_t>(ids[i].codes[row])];
    }
    if (last_group < 0 || key != last_key) {
      const auto [found, is_new] =
          groups.try_emplace(key, static_cast<std::int32_t>(groups.size()));
      if (is_new) result.example.push_back(static_cast<std::int64_t>(row));
      last_key = key;
      last_group = found->second;
    }
    result.group[row] = last_group;
  }
  std::vector<std::int32_t> place(groups.size());
  std::vector<std::int64_t> example;
  for (const auto& [ignored, number] : groups) {
    place[static_cast<std::size_t>(number)] = static_cast<std::int32_t>(example.size());
    example.push_back(result.example[static_cast<std::size_t>(number)]);
  }
  for (auto& number : result.group) number = place[static_cast<std::size_t>(number)];
  result.example = std::move(example);
  return result;
}

void check_ids(const TableFile& file, const std::vector<std::string>& columns,
               const std::vector<Categories>& ids) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto& codes = ids[i].codes;
    const auto missing = std::count(codes.begin(), codes.end(), -1);
    if (missing == 0) continue;
    const auto first = std::find(codes.begin(), codes.end(), -1) - codes.begin();
    fail_column(file, columns[i],
                "is an id, but has " + count_of(missing, "missing value") + ", first in row " +
                    std::to_string(first + 1) + "; drop or name these rows");
  }
}

struct GapCount {
  std::int64_t count = 0;
  std::string first;
};

void report(std::vector<AuditFinding>& findings, const GapCount& gaps, const std::string& what) {
  if (gaps.count == 0) return;
  findings.push_back({AuditFinding::Level::kWarning,
                      what + ": " + std::to_string(gaps.count) + ", first: " + gaps.first,
                      "series are split there: no window crosses it"});
}

}  // namespace

std::string SortedTable::place(const Group& group, std::int64_t sorted_row) const {
  const auto row = static_cast<std::size_t>(sorted_row);
  std::string text = "row " + std::to_string(file_row[row] + 1) + " (";
  if (!group.id.empty()) text += describe_key(id_columns, group.id) + ", ";
  return text + axis.text(times[row]) + ")";
}

SortedTable sort_rows(const TableFile& file, const std::vector<std::string>& id_columns,
                      const std::vector<Categories>& ids, const Times& times) {
  check_ids(file, id_columns, ids);
  const auto grouping = group_rows(file.row_count(), ids);
  SortedTable table;
  table.id_columns = id_columns;
  table.axis.unit = times.unit;
  table.axis.zone = times.zone;
  table.file_row.resize(times.values.size());
  std::iota(table.file_row.begin(), table.file_row.end(), 0);
  const auto before = [&](std::int64_t a, std::int64_t b) {
    const auto left = static_cast<std::size_t>(a);
    const auto right = static_cast<std::size_t>(b);
    if (grouping.group[left] != grouping.group[right])
      return grouping.group[left] < grouping.group[right];
    if (times.values[left] != times.values[right]) return times.values[left] < times.values[right];
    return a < b;
  };
  if (!std::is_sorted(table.file_row.begin(), table.file_row.end(), before)) {
    std::sort(table.file_row.begin(), table.file_row.end(), before);
  }
  table.times.reserve(times.values.size());
  for (std::int64_t row = 0; row < file.row_count(); ++row) {
    const auto from = static_cast<std::size_t>(table.file_row[static_cast<std::size_t>(row)]);
    table.times.push_back(times.values[from]);
    const auto group = static_cast<std::size_t>(grouping.group[from]);
    if (group == table.groups.size()) {
      auto& added = table.groups.emplace_back();
      const auto example = static_cast<std::size_t>(grouping.example[group]);
      for (const auto& column : ids) {
        added.id.push_back(column.values[static_cast<std::size_t>(column.codes[example])]);
      }
      added.begin = row;
    }
    table.groups.back().end = row + 1;
  }
  return table;
}

void check_duplicates(const TableFile& file, const SortedTable& table) {
  std::int64_t count = 0;
  std::string examples;
  for (const auto& group : table.groups) {
    for (std::int64_t row = group.begin + 1; row < group.end; ++row) {
      if (table.times[static_cast<std::size_t>(row)] !=
          table.times[static_cast<std::size_t>(row - 1)])
        continue;
      if (++count > 3) continue;
      examples +=
          (count > 1 ? "; " : "") + table.place(group, row - 1) + " and " + table.place(group, row);
    }
  }
  if (count == 0) return;
  throw DataError(file.name() + ": " + count_of(count, "row") + " repeat" +
                  (count == 1 ? "s" : "") +
                  " the time of another row of the same series, first: " + examples +
                  (table.id_columns.empty() ? "; name the column that tells the series apart as id"
                                            : "; drop them, or name further id columns"));
}

void find_runs(SortedTable& table, std::vector<AuditFinding>& findings) {
  const auto positions = table.axis.positions(table.times);
  const std::int64_t step = table.axis.step();
  table.run_begin.resize(table.times.size());
  GapCount gaps;
  GapCount irregular;
  for (const auto& group : table.groups) {
    std::int64_t begin = group.begin;
    for (std::int64_t row = group.begin; row < group.end; ++row) {
      const auto i = static_cast<std::size_t>(row);
      const std::int64_t distance = row == group.begin ? step : positions[i] - positions[i - 1];
      if (distance != step) {
        begin = row;
        auto& kind = distance > 0 && distance % step == 0 ? gaps : irregular;
        if (++kind.count == 1) {
          kind.first =
              "after " + table.place(group, row - 1) + " comes " + table.axis.text(table.times[i]);
        }
      }
      table.run_begin[i] = static_cast<std::int32_t>(begin - group.begin);
    }
  }
  const std::string frequency = table.axis.frequency_text();
  report(findings, gaps, "gaps in time (rows missing at a frequency of " + frequency + ")");
  report(findings, irregular, "irregular steps (no multiple of the frequency, " + frequency + ")");
}

}  // namespace reprise::detail
