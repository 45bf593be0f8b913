// SPDX-License-Identifier: Apache-2.0
#include "data/build_internal.h"
#include "data/text_internal.h"
#include "reprise/errors.h"

#include <algorithm>
#include <map>
#include <set>

namespace reprise::detail {
namespace {

/// The codes of a column's values in a vocabulary: 0 for values that it lacks.
std::vector<std::int32_t> codes_in(const std::vector<std::string>& vocabulary,
                                   const std::vector<std::string>& values) {
  std::map<std::string_view, std::int32_t> codes;
  for (std::size_t i = 0; i < vocabulary.size(); ++i)
    codes.emplace(vocabulary[i], static_cast<std::int32_t>(i) + 1);
  std::vector<std::int32_t> result;
  for (const auto& value : values) {
    const auto found = codes.find(value);
    result.push_back(found == codes.end() ? 0 : found->second);
  }
  return result;
}

/// Counts what becomes code 0, and says so once per column.
class UnknownValues {
 public:
  explicit UnknownValues(std::string column) : column_(std::move(column)) {}

  void add_missing() { ++missing_; }
  void add_unknown(const std::string& value) {
    ++unknown_;
    if (values_.size() < 100) values_.insert(value);
  }

  void report(Build& build) const {
    const std::string end = " of column '" + column_ + "'";
    if (missing_ > 0) {
      build.report(AuditFinding::Level::kWarning, count_of(missing_, "missing value") + end,
                   "taken as the unknown category");
    }
    if (unknown_ > 0) {
      build.report(AuditFinding::Level::kWarning,
                   count_of(unknown_, "value") + end +
                       " not in the training rows: " + list_of({values_.begin(), values_.end()}),
                   "taken as the unknown category");
    }
  }

 private:
  std::string column_;
  std::int64_t missing_ = 0;
  std::int64_t unknown_ = 0;
  std::set<std::string> values_;
};

/// Sorted values of the rows for which `is_used` holds.
template <typename Rows>
std::vector<std::string> vocabulary_of(const Categories& categories, const Rows& rows) {
  std::vector<bool> used(categories.values.size(), false);
  rows([&](std::int32_t code) {
    if (code >= 0) used[static_cast<std::size_t>(code)] = true;
  });
  std::vector<std::string> vocabulary;
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (used[i]) vocabulary.push_back(categories.values[i]);
  }
  std::sort(vocabulary.begin(), vocabulary.end());
  return vocabulary;
}

void fill_varying(Build& build, CategoricalVariable& variable, std::int64_t column,
                  Matrix<std::int32_t>& matrix, bool is_known) {
  const auto categories = read_categories(build.file, variable.name);
  const auto code_at = [&](std::int64_t row) {
    return categories.codes[static_cast<std::size_t>(build.file_row(row))];
  };
  if (build.is_fit()) {
    variable.vocabulary = vocabulary_of(categories, [&](const auto& use) {
      for (const auto& group : build.rows.groups) {
        for (std::int64_t i = 0; i < group.train_rows; ++i) use(code_at(group.begin + i));
      }
    });
  }
  const auto codes = codes_in(variable.vocabulary, categories.values);
  UnknownValues unknown(variable.name);
  for (const auto& group : build.rows.groups) {
    const std::int64_t rows = is_known ? group.table_rows : group.known_rows;
    for (std::int64_t row = group.begin; row < group.begin + rows; ++row) {
      const auto code = code_at(row);
      if (code < 0) {
        unknown.add_missing();
        continue;
      }
      const auto i = static_cast<std::size_t>(code);
      matrix.row(row)[column] = codes[i];
      if (codes[i] == 0) unknown.add_unknown(categories.values[i]);
    }
  }
  unknown.report(build);
}

/// The one code of each group, -1 where it has none.
std::vector<std::int32_t> codes_by_group(const Build& build, const Categories& categories,
                                         const std::string& column) {
  std::vector<std::int32_t> result;
  for (const auto& group : build.table.groups) {
    std::int32_t found = -1;
    std::int64_t found_row = -1;
    for (std::int64_t row = group.begin; row < group.end; ++row) {
      const auto code =
          categories
              .codes[static_cast<std::size_t>(build.table.file_row[static_cast<std::size_t>(row)])];
      if (code < 0) continue;
      if (found >= 0 && code != found) {
        build.fail(
            "column '" + column +
            "' is static, but changes within a series: " + build.table.place(group, found_row) +
            " has '" + categories.values[static_cast<std::size_t>(found)] + "' and " +
            build.table.place(group, row) + " has '" +
            categories.values[static_cast<std::size_t>(code)] + "'; name it as known or observed");
      }
      if (found < 0) found_row = row;
      found = code;
    }
    result.push_back(found);
  }
  return result;
}

void fill_static(Build& build, CategoricalVariable& variable, std::int64_t column) {
  const auto categories = read_categories(build.file, variable.name);
  const auto by_group = codes_by_group(build, categories, variable.name);
  if (build.is_fit()) {
    variable.vocabulary = vocabulary_of(categories, [&](const auto& use) {
      for (std::size_t g = 0; g < by_group.size(); ++g) {
        if (build.rows.groups[g].train_rows > 0) use(by_group[g]);
      }
    });
  }
  const auto codes = codes_in(variable.vocabulary, categories.values);
  UnknownValues unknown(variable.name);
  for (const auto code : by_group) {
    if (code < 0) {
      unknown.add_missing();
    } else if (codes[static_cast<std::size_t>(code)] == 0) {
      unknown.add_unknown(categories.values[static_cast<std::size_t>(code)]);
    }
  }
  unknown.report(build);
  for (std::size_t s = 0; s < build.rows.series.size(); ++s) {
    const auto code = by_group[static_cast<std::size_t>(build.rows.series[s].group)];
    build.rows.static_categorical.row(static_cast<std::int64_t>(s))[column] =
        code < 0 ? 0 : codes[static_cast<std::size_t>(code)];
  }
}

void fill_statics(Build& build) {
  auto& rows = build.rows;
  auto& variables = rows.schema.static_variables.categorical;
  rows.static_categorical.resize(static_cast<std::int64_t>(rows.series.size()),
                                 static_cast<std::int64_t>(variables.size()));
  const bool has_target_name = build.options.target.size() > 1;
  for (std::size_t v = 0; v + (has_target_name ? 1 : 0) < variables.size(); ++v) {
    fill_static(build, variables[v], static_cast<std::int64_t>(v));
  }
  if (!has_target_name) return;
  const auto codes = codes_in(variables.back().vocabulary, build.options.target);
  for (std::size_t s = 0; s < rows.series.size(); ++s) {
    rows.static_categorical.row(static_cast<std::int64_t>(s))[variables.size() - 1] =
        codes[static_cast<std::size_t>(rows.series[s].target)];
  }
}

std::vector<std::int64_t> wall_times(Build& build) {
  const auto& axis = build.table.axis;
  if (knows_zone(axis)) return wall_clock(axis, build.rows.times);
  build.report(AuditFinding::Level::kWarning,
               "the time zone '" + axis.zone + "' is not in this system's database",
               "calendar variables are those of UTC");
  return build.rows.times;
}

/// Calendar variables that take more than one value in the training rows.
std::vector<std::string> varying(const Build& build, const std::vector<std::string>& names,
                                 const std::vector<std::int64_t>& wall) {
  std::vector<std::string> result;
  for (const auto& name : names) {
    std::set<std::int32_t> values;
    for (const auto& group : build.rows.groups) {
      for (std::int64_t row = group.begin;
           row < group.begin + group.train_rows && values.size() < 2; ++row) {
        values.insert(calendar_value(build.table.axis, name, wall[static_cast<std::size_t>(row)]));
      }
    }
    if (values.size() > 1) result.push_back(name);
  }
  return result;
}

/// Settles which calendar variables there are, and declares them.
void resolve_calendar(Build& build, const std::vector<std::int64_t>& wall) {
  auto& calendar = build.options.calendar;
  const auto& axis = build.table.axis;
  if (calendar.empty() || calendar == std::vector<std::string>{"auto"}) {
    calendar = varying(build, default_calendar(axis), wall);
    std::erase_if(calendar, [&](const auto& name) { return build.file.has(name); });
  } else if (!axis.is_calendar()) {
    throw OptionError("calendar", "calendar: needs dates or timestamps, the time column '" +
                                      build.options.time + "' holds integer steps");
  }
  for (const auto& name : calendar) {
    const auto& known = build.options.known;
    if (std::find(known.begin(), known.end(), name) != known.end()) {
      throw OptionError("calendar",
                        "calendar: '" + name + "' is a known column of the table already");
    }
    build.rows.schema.known.categorical.push_back(
        {.name = name, .vocabulary = calendar_vocabulary(name)});
  }
  if (calendar.empty()) calendar = {"none"};
}

void fill_calendar(Build& build, const std::vector<std::int64_t>& wall) {
  auto& matrix = build.rows.known_categorical;
  const auto count = static_cast<std::int64_t>(build.options.calendar.size());
  for (std::size_t row = 0; row < wall.size(); ++row) {
    auto* out = matrix.row(static_cast<std::int64_t>(row)) + matrix.columns - count;
    for (const auto& name : build.options.calendar)
      *out++ = calendar_value(build.table.axis, name, wall[row]) + 1;
  }
}

}  // namespace

void fill_categoricals(Build& build) {
  auto& rows = build.rows;
  const auto row_count = static_cast<std::int64_t>(rows.times.size());
  fill_statics(build);
  auto& observed = rows.schema.observed.categorical;
  rows.observed_categorical.resize(row_count, static_cast<std::int64_t>(observed.size()));
  for (std::size_t v = 0; v < observed.size(); ++v) {
    fill_varying(build, observed[v], static_cast<std::int64_t>(v), rows.observed_categorical,
                 false);
  }
  auto& known = rows.schema.known.categorical;
  const auto is_none = [&] {
    return build.options.calendar == std::vector<std::string>{"none"};
  };
  const std::size_t from_table =
      known.size() - (build.is_fit() || is_none() ? 0 : build.options.calendar.size());
  std::vector<std::int64_t> wall;
  if (!is_none()) wall = wall_times(build);
  if (build.is_fit() && !is_none()) resolve_calendar(build, wall);
  rows.known_categorical.resize(row_count, static_cast<std::int64_t>(known.size()));
  for (std::size_t v = 0; v < from_table; ++v) {
    fill_varying(build, known[v], static_cast<std::int64_t>(v), rows.known_categorical, true);
  }
  if (!is_none()) fill_calendar(build, wall);
}

}  // namespace reprise::detail
