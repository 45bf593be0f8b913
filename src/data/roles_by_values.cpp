// SPDX-License-Identifier: Apache-2.0
#include "data/build_internal.h"
#include "data/text_internal.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace reprise::detail {
namespace {

/// Columns read at a time while their roles are sought.
constexpr std::size_t kColumnsAtOnce = 16;
/// An inferred category with more values than this, and than a tenth of the rows, is free text.
constexpr std::size_t kMostCategories = 1000;

/// What the values of a column say about its role.
struct Evidence {
  bool is_empty = true;
  bool is_constant = true;
  bool is_static = true;
  bool has_future = true;
};

Evidence evidence_of(const Build& build, const std::vector<double>& values) {
  Evidence evidence;
  double first = 0.0;
  bool has_future_rows = false;
  for (std::size_t g = 0; g < build.table.groups.size(); ++g) {
    const auto& group = build.table.groups[g];
    const std::int64_t known_end = group.begin + build.rows.groups[g].known_rows;
    bool is_first_of_group = true;
    double first_of_group = 0.0;
    for (std::int64_t row = group.begin; row < group.end; ++row) {
      const double value =
          values[static_cast<std::size_t>(build.table.file_row[static_cast<std::size_t>(row)])];
      if (row >= known_end) {
        has_future_rows = true;
        evidence.has_future = evidence.has_future && !std::isnan(value);
      }
      if (std::isnan(value)) continue;
      if (evidence.is_empty) first = value;
      evidence.is_empty = false;
      if (is_first_of_group) first_of_group = value;
      is_first_of_group = false;
      evidence.is_constant = evidence.is_constant && value == first;
      evidence.is_static = evidence.is_static && value == first_of_group;
    }
    // A series without any value of the column would have no static value.
    evidence.is_static = evidence.is_static && !is_first_of_group;
  }
  evidence.has_future = evidence.has_future && has_future_rows;
  return evidence;
}

class ColumnRoles {
 public:
  explicit ColumnRoles(Build& build) : build_(build) {}

  void infer() {
    for (const auto& name : unnamed_columns()) place_by_type_and_name(name);
    std::vector<std::string> reals;
    for (const auto& name : open_) {
      if (build_.is_categorical(name)) {
        place_category(name);
      } else {
        reals.push_back(name);
      }
    }
    for (std::size_t first = 0; first < reals.size(); first += kColumnsAtOnce) {
      const std::vector<std::string> names(
          reals.begin() + static_cast<std::ptrdiff_t>(first),
          reals.begin() +
              static_cast<std::ptrdiff_t>(std::min(first + kColumnsAtOnce, reals.size())));
      const auto columns = read_reals(build_.file, names);
      for (std::size_t i = 0; i < names.size(); ++i)
        place(names[i], evidence_of(build_, columns[i]));
    }
    in_file_order();
    report_left_out();
  }

 private:
  std::vector<std::string> unnamed_columns() const {
    const auto& options = build_.options;
    std::set<std::string> taken = {options.time};
    for (const auto* names : {&options.id, &options.target, &options.static_columns, &options.known,
                              &options.observed}) {
      taken.insert(names->begin(), names->end());
    }
    std::vector<std::string> names;
    for (const auto& info : build_.file.columns()) {
      if (!taken.contains(info.name)) names.push_back(info.name);
    }
    return names;
  }

  void place_by_type_and_name(const std::string& name) {
    if (name.empty()) return leave_out(name, "without a name");
    const auto& info = build_.file.column(name, "a variable");
    if (info.kind == ColumnKind::kUnusable) {
      leave_out(name, "of a type that is not used (lists, structs and the like)");
    } else if (info.kind == ColumnKind::kTime) {
      leave_out(name, "dates or timestamps beside the time column");
    } else if (name.starts_with("__index_level_")) {
      leave_out(name, "row labels of a pandas index");
    } else if (is_time_name(name)) {
      leave_out(name, "named as a time beside the time column");
    } else if (name.starts_with("static_")) {
      build_.options.static_columns.push_back(name);
    } else if (name.starts_with("known_")) {
      build_.options.known.push_back(name);
    } else if (name.starts_with("observed_")) {
      build_.options.observed.push_back(name);
    } else {
      open_.push_back(name);
    }
  }

  void place_category(const std::string& name) {
    const auto categories = read_categories(build_.file, name);
    if (categories.values.size() > kMostCategories &&
        static_cast<std::int64_t>(10 * categories.values.size()) > build_.file.row_count()) {
      return leave_out(name, "text with more values than categories have");
    }
    std::vector<double> values;
    for (const auto code : categories.codes) values.push_back(code < 0 ? std::nan("") : code);
    place(name, evidence_of(build_, values));
  }

  void place(const std::string& name, const Evidence& evidence) {
    if (evidence.is_empty) {
      leave_out(name, "without any value");
    } else if (evidence.is_constant) {
      leave_out(name, "the same in all rows");
    } else if (evidence.is_static) {
      build_.options.static_columns.push_back(name);
    } else if (evidence.has_future) {
      build_.options.known.push_back(name);
    } else {
      build_.options.observed.push_back(name);
    }
  }

  /// Columns named by the user first, as they named them; then the others as in the file.
  void in_file_order() {
    std::map<std::string, std::size_t> place;
    for (const auto& info : build_.file.columns()) place.emplace(info.name, place.size());
    const auto sort_tail = [&](std::vector<std::string>& names, std::size_t named) {
      std::sort(names.begin() + static_cast<std::ptrdiff_t>(named), names.end(),
                [&](const auto& a, const auto& b) { return place.at(a) < place.at(b); });
    };
    sort_tail(build_.options.static_columns, named_static_);
    sort_tail(build_.options.known, named_known_);
    sort_tail(build_.options.observed, named_observed_);
  }

  void leave_out(const std::string& name, const std::string& why) {
    left_out_[why].push_back(name);
  }

  void report_left_out() {
    for (const auto& [why, names] : left_out_) {
      build_.report(AuditFinding::Level::kInfo,
                    count_of(static_cast<std::int64_t>(names.size()), "column") + " " + why + ": " +
                        list_of(names),
                    "left out");
    }
  }

  Build& build_;
  std::vector<std::string> open_;
  std::map<std::string, std::vector<std::string>> left_out_;
  const std::size_t named_static_ = build_.options.static_columns.size();
  const std::size_t named_known_ = build_.options.known.size();
  const std::size_t named_observed_ = build_.options.observed.size();
};

}  // namespace

void infer_columns(Build& build) {
  const bool has_named_static = !build.options.static_columns.empty();
  ColumnRoles(build).infer();
  if (!has_named_static && build.options.static_columns.empty() && build.table.groups.size() > 1) {
    build.options.static_columns = build.options.id;
  }
}

}  // namespace reprise::detail
