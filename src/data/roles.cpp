// SPDX-License-Identifier: Apache-2.0
#include "data/build_internal.h"
#include "data/text_internal.h"
#include "reprise/errors.h"

#include <arrow/type.h>
#include <arrow/type_traits.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

namespace reprise::detail {
namespace {

template <std::size_t N>
bool is_one_of(const std::string& name, const std::array<const char*, N>& names) {
  return std::find(names.begin(), names.end(), lower_case(name)) != names.end();
}

bool is_id_name(const std::string& name) {
  static constexpr std::array kNames = {"id",      "unique_id", "series_id", "series",
                                        "item_id", "group_id",  "group"};
  return is_one_of(name, kNames);
}

bool is_target_name(const std::string& name) {
  static constexpr std::array kNames = {"target", "y", "value"};
  return is_one_of(name, kNames);
}

std::string column_list(const TableFile& file) {
  std::vector<std::string> columns;
  for (const auto& info : file.columns())
    columns.push_back(info.name + " (" + info.type->ToString() + ")");
  return list_of(columns, 40);
}

/// Columns that have no role yet.
std::vector<ColumnInfo> open_columns(const TableFile& file, const DataOptions& options) {
  std::set<std::string> taken = {options.time};
  for (const auto* names :
       {&options.id, &options.target, &options.static_columns, &options.known, &options.observed}) {
    taken.insert(names->begin(), names->end());
  }
  std::vector<ColumnInfo> open;
  for (const auto& info : file.columns()) {
    // pandas writes its row labels under an empty name.
    if (!info.name.empty() && !taken.contains(info.name)) open.push_back(info);
  }
  return open;
}

/// Whether no two rows agree in time and in the given categories.
bool makes_unique(const Times& times, const std::vector<const Categories*>& ids) {
  std::vector<std::pair<std::int64_t, std::int64_t>> keys;
  keys.reserve(times.values.size());
  for (std::size_t row = 0; row < times.values.size(); ++row) {
    std::int64_t code = 0;
    for (const auto* column : ids) {
      if (column->codes[row] < 0) return false;
      code = code * static_cast<std::int64_t>(column->values.size()) + column->codes[row];
    }
    keys.emplace_back(code, times.values[row]);
  }
  std::sort(keys.begin(), keys.end());
  return std::adjacent_find(keys.begin(), keys.end()) == keys.end();
}

struct Candidate {
  std::string name;
  Categories categories;
};

/// Columns that may name series, likeliest first: usual names, then text with few distinct values.
std::vector<Candidate> id_candidates(const TableFile& file, const DataOptions& options) {
  std::vector<Candidate> candidates;
  auto without_statics = options;  // an id may be a static category too
  without_statics.static_columns.clear();
  for (const auto& info : open_columns(file, without_statics)) {
    const bool is_text = info.kind == ColumnKind::kCategory && info.type->id() != arrow::Type::BOOL;
    const bool is_number = arrow::is_integer(info.type->id());
    const bool has_role_prefix = info.name.starts_with("static_") ||
                                 info.name.starts_with("known_") ||
                                 info.name.starts_with("observed_");
    if (!(is_text || (is_number && is_id_name(info.name))) || has_role_prefix) continue;
    candidates.push_back({info.name, read_categories(file, info.name)});
    // As many values as rows: names of rows, not of series.
    if (2 * static_cast<std::int64_t>(candidates.back().categories.values.size()) >
        file.row_count()) {
      candidates.pop_back();
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    const bool a_named = is_id_name(a.name);
    const bool b_named = is_id_name(b.name);
    if (a_named != b_named) return a_named;
    return !a_named && a.categories.values.size() < b.categories.values.size();
  });
  return candidates;
}

/// The first single column, else the first pair, that makes the times unique.
std::optional<std::vector<std::size_t>> find_ids(const Times& times,
                                                 const std::vector<Candidate>& candidates) {
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (makes_unique(times, {&candidates[i].categories})) return std::vector{i};
  }
  const std::size_t most = std::min<std::size_t>(candidates.size(), 8);
  for (std::size_t i = 0; i < most; ++i) {
    for (std::size_t j = i + 1; j < most; ++j) {
      if (makes_unique(times, {&candidates[i].categories, &candidates[j].categories}))
        return std::vector{i, j};
    }
  }
  return std::nullopt;
}

}  // namespace

bool is_time_name(const std::string& name) {
  static constexpr std::array kNames = {"time", "timestamp", "datetime",   "date", "ds",
                                        "t",    "time_idx",  "time_index", "step"};
  return is_one_of(name, kNames);
}

void infer_time(const TableFile& file, DataOptions& options) {
  if (!options.time.empty()) return;
  std::vector<std::string> dated;
  std::vector<std::string> named;
  std::vector<std::string> dated_and_named;
  for (const auto& info : open_columns(file, options)) {
    const bool is_named = is_time_name(info.name);
    if (info.kind == ColumnKind::kTime) {
      dated.push_back(info.name);
      if (is_named) dated_and_named.push_back(info.name);
    } else if (is_named && info.kind != ColumnKind::kUnusable) {
      named.push_back(info.name);
    }
  }
  for (const auto* choice : {&dated, &dated_and_named}) {
    if (choice->size() != 1) continue;
    options.time = choice->front();
    return;
  }
  if (dated.empty() && named.size() == 1) {
    options.time = named.front();
    return;
  }
  const auto& choices = dated.empty() ? named : dated;
  throw DataError(
      file.name() + ": " +
      (choices.empty()
           ? std::string(
                 "no time column: none is a date or timestamp, or named time, date, ds, t or so")
           : "several columns could be the time: " + list_of(choices)) +
      "; name it as time; the columns are " + column_list(file));
}

std::vector<Categories> infer_ids(const TableFile& file, DataOptions& options, const Times& times) {
  std::vector<Categories> ids;
  if (!options.id.empty() || !options.infer) {
    for (const auto& name : options.id) ids.push_back(read_categories(file, name));
    return ids;
  }
  auto candidates = id_candidates(file, options);
  const bool has_id_name = !candidates.empty() && is_id_name(candidates.front().name);
  if (!has_id_name && makes_unique(times, {})) return ids;
  const auto chosen = find_ids(times, candidates);
  // Without ids that tell the rows apart the caller reports the rows that repeat.
  if (!chosen) return ids;
  for (const std::size_t i : *chosen) {
    options.id.push_back(candidates[i].name);
    ids.push_back(std::move(candidates[i].categories));
  }
  return ids;
}

void infer_target(const TableFile& file, DataOptions& options) {
  if (!options.target.empty()) return;
  std::vector<std::string> numbers;
  std::vector<std::string> named;
  for (const auto& info : open_columns(file, options)) {
    if (info.kind != ColumnKind::kReal) continue;
    if (is_target_name(info.name)) named.push_back(info.name);
    const bool has_role_prefix = info.name.starts_with("static_") ||
                                 info.name.starts_with("known_") ||
                                 info.name.starts_with("observed_");
    if (!has_role_prefix && !is_time_name(info.name)) numbers.push_back(info.name);
  }
  if (named.size() != 1 && numbers.size() != 1) {
    throw DataError(file.name() + ": " +
                    (numbers.empty() ? std::string("no column of numbers is left for the target")
                                     : "the target could be any of " + list_of(numbers, 40)) +
                    "; name it as target; the columns are " + column_list(file));
  }
  options.target = {named.size() == 1 ? named.front() : numbers.front()};
}

}  // namespace reprise::detail
