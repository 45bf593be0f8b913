// SPDX-License-Identifier: Apache-2.0
#include "data/build_internal.h"
#include "data/scaling_internal.h"
#include "data/text_internal.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace reprise::detail {
namespace {

/// Columns read and scaled at a time: 16 floats fill a cache line of the row-major matrix.
constexpr std::size_t kColumnsAtOnce = 16;

bool is_per_series(const DataOptions& options) {
  return options.normalize == Normalization::kSeries || options.normalize == Normalization::kWindow;
}

/// The constant series of each column, for one finding about all of them.
class ConstantColumns {
 public:
  void add(const std::string& column, bool is_constant) {
    auto& [constant, all] = counts_[column];
    constant += is_constant ? 1 : 0;
    ++all;
  }

  void report(Build& build) const {
    std::int64_t columns = 0;
    std::string text;
    for (const auto& [column, count] : counts_) {
      const auto& [constant, all] = count;
      if (constant == 0 || ++columns > 8) continue;
      text += (columns > 1 ? ", '" : "'") + column + "' in " + std::to_string(constant) + " of " +
              count_of(all, "series");
    }
    if (columns == 0) return;
    if (columns > 8) text += " and " + std::to_string(columns - 8) + " more columns";
    build.report(AuditFinding::Level::kWarning, "constant in the training rows: " + text,
                 "scaled by 1");
  }

 private:
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> counts_;
};

ConstantColumns scale_targets(Build& build) {
  auto& schema = build.rows.schema;
  const auto& options = build.options;
  ConstantColumns constants;
  Moments all;
  std::vector<Moments> by_target(options.target.size());
  for (const auto& series : build.rows.series) {
    const auto& group = build.rows.groups[static_cast<std::size_t>(series.group)];
    const auto t = static_cast<std::size_t>(series.target);
    const auto* raw = build.rows.target_raw[t].data() + group.begin;
    const auto moments = Moments::of(series.train_end, [raw](std::int64_t i) { return raw[i]; });
    all.merge(moments);
    by_target[t].merge(moments);
    // One value has no deviation: such a series is scaled as one not seen in training.
    if (!is_per_series(options) || moments.count < 2) continue;
    schema.target.series[join_key(series.key)] = moments.scaler();
    constants.add(options.target[t], moments.is_constant());
  }
  schema.target.global = all.scaler();
  for (std::size_t t = 0; t < by_target.size() && by_target.size() > 1; ++t) {
    schema.target.series.try_emplace(join_key({options.target[t]}), by_target[t].scaler());
  }
  if (options.normalize == Normalization::kNone) {
    schema.target.global = {};
    schema.target.series.clear();
  }
  return constants;
}

/// The scaler under the first of `keys` that there is, else the global one.
Scaler find_scaler(const RealVariable& variable, std::initializer_list<std::string> keys) {
  for (const auto& key : keys) {
    const auto found = variable.series.find(key);
    if (found != variable.series.end()) return found->second;
  }
  return variable.global;
}

Scaler target_scaler(const Build& build, const Series& series) {
  const auto& options = build.options;
  const auto& variable = build.rows.schema.target;
  if (options.target.size() == 1) return find_scaler(variable, {join_key(series.key)});
  return find_scaler(
      variable,
      {join_key(series.key), join_key({options.target[static_cast<std::size_t>(series.target)]})});
}

/// Fits `variable` to the training rows of a column (by row of the file).
void fit_real(const Build& build, const std::vector<double>& values, RealVariable& variable,
              ConstantColumns& constants) {
  if (build.options.normalize == Normalization::kNone) return;
  Moments all;
  for (const auto& group : build.rows.groups) {
    const auto moments = Moments::of(group.train_rows, [&](std::int64_t i) {
      return values[static_cast<std::size_t>(build.file_row(group.begin + i))];
    });
    all.merge(moments);
    if (!is_per_series(build.options) || moments.count < 2) continue;
    variable.series[join_key(group.id)] = moments.scaler();
    constants.add(variable.name, moments.is_constant());
  }
  variable.global = all.scaler();
  if (!is_per_series(build.options)) constants.add(variable.name, all.is_constant());
}

/// Fills a matrix of time-varying reals with the columns of `variables`, from matrix column `first`
/// on.
void fill_varying(Build& build, std::span<RealVariable> variables, Matrix<float>& matrix,
                  std::int64_t first, bool is_known, ConstantColumns& constants) {
  for (std::size_t begin = 0; begin < variables.size(); begin += kColumnsAtOnce) {
    const auto block = variables.subspan(begin, std::min(kColumnsAtOnce, variables.size() - begin));
    std::vector<std::string> names;
    for (const auto& variable : block) names.push_back(variable.name);
    const auto columns = read_reals(build.file, names);
    for (std::size_t i = 0; i < block.size(); ++i) {
      check_finite(build, names[i], columns[i], is_known);
      if (build.is_fit()) fit_real(build, columns[i], block[i], constants);
    }
    std::vector<Scaler> scalers(block.size());
    for (const auto& group : build.rows.groups) {
      const std::string key = join_key(group.id);
      for (std::size_t i = 0; i < block.size(); ++i) scalers[i] = find_scaler(block[i], {key});
      const std::int64_t rows = is_known ? group.table_rows : group.known_rows;
      for (std::int64_t row = group.begin; row < group.begin + rows; ++row) {
        float* out = matrix.row(row) + first + static_cast<std::int64_t>(begin);
        const auto from = static_cast<std::size_t>(build.file_row(row));
        for (std::size_t i = 0; i < block.size(); ++i) {
          out[i] = normalise(columns[i][from], scalers[i], names[i].c_str());
        }
      }
    }
  }
}

/// The one value that a column has in each group, `missing` where it has none. Throws where it has
/// several.
template <typename T>
std::vector<T> static_values(const Build& build, const std::string& column,
                             const std::vector<T>& values, T missing) {
  std::vector<T> result;
  const auto is_missing = [&](T value) {
    return value == missing || value != value;
  };
  for (const auto& group : build.table.groups) {
    T found = missing;
    std::int64_t found_row = -1;
    for (std::int64_t row = group.begin; row < group.end; ++row) {
      const T value =
          values[static_cast<std::size_t>(build.table.file_row[static_cast<std::size_t>(row)])];
      if (is_missing(value)) continue;
      if (found_row >= 0 && value != found) {
        build.fail("column '" + column + "' is static, but changes within a series: " +
                   build.table.place(group, found_row) + " and " + build.table.place(group, row) +
                   " differ; name it as known or observed");
      }
      if (found_row < 0) found_row = row;
      found = value;
    }
    result.push_back(found);
  }
  return result;
}

void fill_static_reals(Build& build, ConstantColumns& constants) {
  auto& variables = build.rows.schema.static_variables.real;
  auto& matrix = build.rows.static_real;
  matrix.resize(static_cast<std::int64_t>(build.rows.series.size()),
                static_cast<std::int64_t>(variables.size()));
  for (std::size_t v = 0; v < variables.size(); ++v) {
    auto& variable = variables[v];
    const auto column = read_reals(build.file, {variable.name}).front();
    const auto values = static_values(build, variable.name, column, std::nan(""));
    for (std::size_t g = 0; g < values.size(); ++g) {
      if (std::abs(values[g]) <= std::numeric_limits<float>::max()) continue;
      build.fail("column '" + variable.name + "' (static) has no finite value in the series " +
                 describe_key(build.options.id, build.rows.groups[g].id) +
                 "; fill it, or leave the column out");
    }
    if (build.is_fit() && build.options.normalize != Normalization::kNone) {
      std::vector<double> trained;
      for (std::size_t g = 0; g < values.size(); ++g) {
        if (build.rows.groups[g].train_rows > 0) trained.push_back(values[g]);
      }
      const auto moments =
          Moments::of(static_cast<std::int64_t>(trained.size()),
                      [&](std::int64_t i) { return trained[static_cast<std::size_t>(i)]; });
      variable.global = moments.scaler();
      constants.add(variable.name, moments.is_constant());
    }
    for (std::size_t s = 0; s < build.rows.series.size(); ++s) {
      const auto group = static_cast<std::size_t>(build.rows.series[s].group);
      matrix.row(static_cast<std::int64_t>(s))[v] =
          normalise(values[group], variable.global, variable.name.c_str());
    }
  }
}

}  // namespace

void fill_targets(Build& build) {
  auto& rows = build.rows;
  for (const auto& target : build.targets) {
    auto& raw = rows.target_raw.emplace_back();
    for (const std::int64_t row : build.sorted_row) {
      raw.push_back(row < 0 ? std::nan("") : target[static_cast<std::size_t>(row)]);
    }
  }
  if (build.is_fit()) scale_targets(build).report(build);
  if (build.is_fit()) rows.schema.observed.real.front() = rows.schema.target;
  rows.target.assign(rows.target_raw.size(), std::vector<float>(rows.times.size(), std::nanf("")));
  for (auto& series : rows.series) {
    series.scaler = target_scaler(build, series);
    const auto& group = rows.groups[static_cast<std::size_t>(series.group)];
    const auto t = static_cast<std::size_t>(series.target);
    for (std::int64_t row = group.begin; row < group.begin + series.known_rows; ++row) {
      const auto i = static_cast<std::size_t>(row);
      rows.target[t][i] =
          normalise(rows.target_raw[t][i], series.scaler, build.options.target[t].c_str());
    }
  }
}

void fill_reals(Build& build) {
  auto& rows = build.rows;
  const auto row_count = static_cast<std::int64_t>(rows.times.size());
  auto& known = rows.schema.known.real;
  auto& observed = rows.schema.observed.real;
  const std::size_t lags = build.options.lags.size();
  ConstantColumns constants;
  rows.observed_real.resize(row_count, static_cast<std::int64_t>(observed.size()));
  rows.known_real.resize(row_count, static_cast<std::int64_t>(known.size()));
  fill_varying(build, std::span(observed).subspan(1), rows.observed_real, 1, false, constants);
  fill_varying(build, std::span(known).first(known.size() - lags), rows.known_real, 0, true,
               constants);
  fill_static_reals(build, constants);
  // Lags are the target at other times.
  for (std::size_t i = known.size() - lags; i < known.size() && build.is_fit(); ++i) {
    known[i].global = rows.schema.target.global;
    known[i].series = rows.schema.target.series;
  }
  constants.report(build);
}

}  // namespace reprise::detail
