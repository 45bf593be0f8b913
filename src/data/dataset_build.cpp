// SPDX-License-Identifier: Apache-2.0
#include "data/build_internal.h"
#include "data/text_internal.h"
#include "reprise/errors.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace reprise::detail {
namespace {

/// Throws for columns that are named but not there.
void check_columns(const TableFile& file, const DataOptions& options, bool is_fit) {
  const std::vector<std::pair<const char*, std::vector<std::string>>> roles = {
      {"time", options.time.empty() ? std::vector<std::string>{} : std::vector{options.time}},
      {"id", options.id},
      {"target", options.target},
      {"static", options.static_columns},
      {"known", options.known},
      {"observed", options.observed},
      {"categorical", options.categorical}};
  std::vector<std::string> missing;
  for (const auto& [role, names] : roles) {
    for (const auto& name : names) {
      if (is_fit) file.column(name, role);
      if (!file.has(name) && std::find(missing.begin(), missing.end(), name) == missing.end())
        missing.push_back(name);
    }
  }
  if (missing.empty()) return;
  std::vector<std::string> names;
  for (const auto& info : file.columns()) names.push_back(info.name);
  throw DataError(file.name() + ": lacks " + list_of(missing, 40) +
                  ", which the model was trained on; the columns are " + list_of(names, 40));
}

/// Checks that the table's steps are those the model was trained on.
void check_frequency(Build& build) {
  std::vector<RowRange> ranges;
  for (const auto& group : build.table.groups) ranges.emplace_back(group.begin, group.end);
  TimeAxis found = build.table.axis;
  find_frequency(found, build.table.times, ranges);
  const bool has_steps = std::any_of(ranges.begin(), ranges.end(), [](const auto& range) {
    return range.second - range.first > 1;
  });
  const auto& axis = build.table.axis;
  // One Monday and the next are a week apart, or seven days: what counts is that steps of the
  // model's are there.
  const auto positions = axis.positions(build.table.times);
  for (const auto& [first, last] : ranges) {
    for (std::int64_t row = first + 1; row < last; ++row) {
      if (positions[static_cast<std::size_t>(row)] - positions[static_cast<std::size_t>(row - 1)] ==
          axis.step())
        return;
    }
  }
  if (has_steps) {
    build.fail("the samples are " + found.frequency_text() +
               " apart, the model was trained on samples " + axis.frequency_text() + " apart");
  }
}

void read_keys(Build& build) {
  auto& options = build.options;
  if (build.is_fit()) infer_time(build.file, options);
  auto times = read_times(build.file, options.time);
  if (!build.is_fit()) {
    times.values = convert_times(std::move(times.values), times.unit, build.given->time_unit);
    times.unit = build.given->time_unit;
    if (times.zone.empty() != build.given->time_zone.empty()) {
      build.report(AuditFinding::Level::kWarning,
                   std::string("the times have ") +
                       (times.zone.empty()
                            ? "no time zone, those of training had '" + build.given->time_zone + "'"
                            : "the time zone '" + times.zone + "', those of training had none"),
                   "taken as UTC");
    }
    times.zone = build.given->time_zone;
  }
  const auto ids = infer_ids(build.file, options, times);
  build.table = sort_rows(build.file, options.id, ids, times);
  check_duplicates(build.file, build.table);
}

void find_steps(Build& build) {
  auto& axis = build.table.axis;
  if (build.is_fit()) {
    std::vector<RowRange> ranges;
    for (const auto& group : build.table.groups) ranges.emplace_back(group.begin, group.end);
    find_frequency(axis, build.table.times, ranges);
  } else {
    axis.frequency = build.given->frequency;
    axis.wall_clock = build.given->wall_clock;
    axis.month_end = build.given->month_end;
    check_frequency(build);
  }
  find_runs(build.table, build.rows.findings);
}

/// Rows beyond the table that forecasts need, by group: none where known columns have to come from
/// the table.
std::vector<std::int64_t> rows_beyond_table(const Build& build) {
  std::vector<std::int64_t> beyond(build.table.groups.size(), 0);
  if (!build.options.known.empty()) return beyond;
  for (const auto& series : build.rows.series) {
    const auto g = static_cast<std::size_t>(series.group);
    const auto& group = build.table.groups[g];
    // A gap between the last target and the table's end cannot be bridged.
    if (series.known_rows <= build.table.run_begin[static_cast<std::size_t>(group.end - 1)])
      continue;
    beyond[g] =
        std::max(beyond[g], series.known_rows + build.options.horizon - (group.end - group.begin));
  }
  return beyond;
}

/// Gives each group its rows in the matrices.
void lay_out(Build& build) {
  auto& rows = build.rows;
  const auto& table = build.table;
  const auto beyond = rows_beyond_table(build);
  for (std::size_t g = 0; g < rows.groups.size(); ++g) {
    const auto& group = table.groups[g];
    auto& laid = rows.groups[g];
    laid.begin = static_cast<std::int64_t>(rows.times.size());
    for (std::int64_t row = group.begin; row < group.end; ++row) {
      build.sorted_row.push_back(row);
      rows.times.push_back(table.times[static_cast<std::size_t>(row)]);
      rows.run_begin.push_back(table.run_begin[static_cast<std::size_t>(row)]);
    }
    for (std::int64_t step = 1; step <= beyond[g]; ++step) {
      build.sorted_row.push_back(-1);
      rows.times.push_back(
          table.axis.advance(table.times[static_cast<std::size_t>(group.end - 1)], step));
      rows.run_begin.push_back(rows.run_begin.back());
    }
    laid.rows = laid.table_rows + beyond[g];
    rows.table_rows += laid.table_rows;
    if (laid.rows > std::numeric_limits<std::int32_t>::max())
      build.fail("a series has more than 2^31 rows");
  }
}

/// Puts names and kinds of the variables into the schema; vocabularies and scalers follow.
void declare_variables(Build& build) {
  auto& schema = build.rows.schema;
  const auto declare = [&](VariableGroup& group, const std::vector<std::string>& names) {
    for (const auto& name : names) {
      if (build.is_categorical(name)) {
        group.categorical.push_back({.name = name, .vocabulary = {}});
      } else {
        group.real.push_back({.name = name, .global = {}, .series = {}});
      }
    }
  };
  schema.target.name = build.options.target.size() == 1 ? build.options.target.front() : "target";
  schema.observed.real.push_back(schema.target);
  declare(schema.static_variables, build.options.static_columns);
  declare(schema.known, build.options.known);
  declare(schema.observed, build.options.observed);
  if (build.options.target.size() > 1) {
    auto names = build.options.target;
    std::sort(names.begin(), names.end());
    schema.static_variables.categorical.push_back(
        {.name = "target", .vocabulary = std::move(names)});
  }
  for (const std::int64_t lag : build.options.lags) {
    schema.known.real.push_back({.name = "lag_" + std::to_string(lag), .global = {}, .series = {}});
  }
}

void resolve_roles(Build& build) {
  auto& options = build.options;
  std::erase_if(options.observed, [&](const auto& name) {
    return std::find(options.target.begin(), options.target.end(), name) != options.target.end();
  });
  if (build.is_fit()) {
    if (options.infer) infer_columns(build);
    declare_variables(build);
  }
  options.infer = false;
}

void store_axis(Build& build) {
  auto& rows = build.rows;
  rows.axis = build.table.axis;
  rows.schema.time_unit = rows.axis.unit;
  rows.schema.time_zone = rows.axis.zone;
  rows.schema.frequency = rows.axis.frequency;
  rows.schema.wall_clock = rows.axis.wall_clock;
  rows.schema.month_end = rows.axis.month_end;
}

}  // namespace

std::int64_t DatasetRows::longest_lag() const {
  std::int64_t longest = 0;
  for (const std::int64_t lag : schema.options.lags) longest = std::max(longest, lag);
  return longest;
}

void Build::report(AuditFinding::Level level, std::string what, std::string action) {
  rows.findings.push_back({level, std::move(what), std::move(action)});
}

void Build::fail(const std::string& what) const {
  throw DataError(file.name() + ": " + what);
}

bool Build::is_categorical(const std::string& column) const {
  const auto has = [&](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), column) != names.end();
  };
  return has(options.id) || has(options.categorical) ||
         file.column(column, "a variable").kind == ColumnKind::kCategory;
}

std::int64_t Build::file_row(std::int64_t row) const {
  const std::int64_t sorted = sorted_row[static_cast<std::size_t>(row)];
  return sorted < 0 ? -1 : table.file_row[static_cast<std::size_t>(sorted)];
}

DatasetRows build_rows(const std::filesystem::path& path, const DataOptions& options,
                       const Schema* schema) {
  options.validate();
  const TableFile file(path);
  Build build{.file = file,
              .given = schema,
              .options = options,
              .table = {},
              .targets = {},
              .sorted_row = {},
              .rows = {}};
  if (schema != nullptr) build.rows.schema = *schema;
  check_columns(file, options, build.is_fit());
  read_keys(build);
  find_steps(build);
  if (build.is_fit()) infer_target(file, build.options);
  read_targets(build);
  split_series(build);
  resolve_roles(build);
  lay_out(build);
  if (build.is_fit()) store_axis(build);
  build.rows.axis = build.table.axis;
  fill_targets(build);
  fill_categoricals(build);
  fill_reals(build);
  build.rows.schema.options = build.options;
  return std::move(build.rows);
}

}  // namespace reprise::detail
