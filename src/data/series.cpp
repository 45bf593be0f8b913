// SPDX-License-Identifier: Apache-2.0
#include "data/build_internal.h"
#include "data/text_internal.h"
#include "reprise/errors.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace reprise::detail {
namespace {

/// Rows of a sorted table that a message counts and quotes.
struct Places {
  std::int64_t count = 0;
  std::string first;

  void add(const SortedTable& table, const Group& group, std::int64_t sorted_row) {
    if (++count <= 3) first += (count > 1 ? ", " : "") + table.place(group, sorted_row);
  }
};

bool is_finite_float(double value) {
  return std::abs(value) <= std::numeric_limits<float>::max();
}

/// Rows up to the last known target; checks that none is missing before it.
std::int64_t known_rows(const SortedTable& table, const Group& group,
                        const std::vector<double>& target, Places& missing, Places& unusable) {
  std::int64_t end = group.end;
  while (end > group.begin && std::isnan(target[static_cast<std::size_t>(end - 1)])) --end;
  for (std::int64_t row = group.begin; row < end; ++row) {
    const double value = target[static_cast<std::size_t>(row)];
    if (std::isnan(value)) {
      missing.add(table, group, row);
    } else if (!is_finite_float(value)) {
      unusable.add(table, group, row);
    }
  }
  return end - group.begin;
}

/// Rows of the longest stretch without gaps among the first `end` rows of a group.
std::int64_t longest_run(const SortedTable& table, const Group& group, std::int64_t end) {
  std::int64_t longest = 0;
  for (std::int64_t row = 0; row < end; ++row) {
    longest =
        std::max(longest, row + 1 - table.run_begin[static_cast<std::size_t>(group.begin + row)]);
  }
  return longest;
}

struct SplitTimes {
  std::int64_t train = 0;
  std::int64_t valid = 0;
  std::int64_t test = std::numeric_limits<std::int64_t>::max();
};

SplitTimes split_times(const TimeAxis& axis, const DataOptions& options) {
  SplitTimes times;
  times.train = axis.parse(options.train_until, "train_until");
  times.valid = axis.parse(options.valid_until, "valid_until");
  if (!options.test_until.empty()) times.test = axis.parse(options.test_until, "test_until");
  if (times.valid < times.train)
    throw OptionError("valid_until", "valid_until: lies before train_until");
  if (times.test < times.valid)
    throw OptionError("test_until", "test_until: lies before valid_until");
  return times;
}

void split_by_time(const SortedTable& table, const Group& group, const SplitTimes& until,
                   Series& series) {
  const auto first = table.times.begin() + group.begin;
  const auto rows_before = [&](std::int64_t time) {
    return std::lower_bound(first, first + series.known_rows, time) - first;
  };
  series.train_end = rows_before(until.train);
  series.valid_end = rows_before(until.valid);
  series.test_end = rows_before(until.test);
}

void split_by_fraction(const DataOptions& options, Series& series) {
  // 0.29 * 100 is 28.999999999999996: such a product means the whole number.
  const auto part = [&](double fraction) {
    return static_cast<std::int64_t>(
        std::floor(static_cast<double>(series.known_rows) * fraction + 1e-6));
  };
  series.test_end = series.known_rows;
  series.valid_end = series.test_end - part(options.test_fraction);
  series.train_end = series.valid_end - part(options.valid_fraction);
}

/// Lengths of the series that are too short, for messages.
struct TooShort {
  std::int64_t count = 0;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  std::int64_t most = 0;
  std::string first;

  void add(std::int64_t rows, const std::string& series) {
    if (++count == 1) first = series;
    least = std::min(least, rows);
    most = std::max(most, rows);
  }

  std::string lengths() const {
    return least == most ? count_of(least, "row")
                         : std::to_string(least) + " to " + count_of(most, "row");
  }
};

std::string need_text(const DataOptions& options, std::int64_t longest_lag, bool with_horizon) {
  std::string text = "encoder " + std::to_string(options.encoder_length);
  if (with_horizon) text += " + horizon " + std::to_string(options.horizon);
  if (longest_lag > 0) text += " + longest lag " + std::to_string(longest_lag);
  const std::int64_t need =
      options.encoder_length + (with_horizon ? options.horizon : 0) + longest_lag;
  return with_horizon || longest_lag > 0 ? text + " = " + std::to_string(need) : text;
}

/// Encoder and horizon that `rows` rows allow, for a message.
std::string advice(const DataOptions& options, std::int64_t rows) {
  if (rows < 2) return "; no encoder and horizon fit";
  const std::int64_t horizon = std::min(options.horizon, std::max<std::int64_t>(1, rows / 4));
  const std::int64_t encoder = std::min(options.encoder_length, rows - horizon);
  return "; encoder " + std::to_string(encoder) + " with horizon " + std::to_string(horizon) +
         " would fit" + (options.lags.empty() ? "" : " without lags");
}

class SeriesSplitter {
 public:
  explicit SeriesSplitter(Build& build) : build_(build) {}

  void run() {
    const auto& options = build_.options;
    SplitTimes until;
    if (!options.train_until.empty()) until = split_times(build_.table.axis, options);
    for (std::size_t g = 0; g < build_.table.groups.size(); ++g) {
      const auto& group = build_.table.groups[g];
      for (std::size_t t = 0; t < options.target.size(); ++t) {
        Series series;
        series.group = static_cast<std::int64_t>(g);
        series.target = static_cast<std::int64_t>(t);
        series.key = group.id;
        if (options.target.size() > 1) series.key.push_back(options.target[t]);
        series.known_rows =
            known_rows(build_.table, group, build_.targets[t], missing_[t], unusable_[t]);
        if (options.train_until.empty()) {
          split_by_fraction(options, series);
        } else {
          split_by_time(build_.table, group, until, series);
        }
        future_rows_ += group.end - group.begin - series.known_rows;
        series_.push_back(std::move(series));
      }
    }
    check_targets();
    keep_long_enough();
    keep_groups();
  }

 private:
  void check_targets() const {
    for (std::size_t t = 0; t < build_.options.target.size(); ++t) {
      const std::string column = "column '" + build_.options.target[t] + "' (target) has ";
      if (missing_[t].count > 0) {
        build_.fail(column + count_of(missing_[t].count, "missing or NaN value") +
                    " before the last known one of a series, first: " + missing_[t].first +
                    "; fill them, or drop these rows (series are split at gaps)");
      }
      if (unusable_[t].count > 0) {
        build_.fail(
            column + count_of(unusable_[t].count, "value") +
            " that are infinite or beyond the range of float32, first: " + unusable_[t].first);
      }
    }
  }

  /// Leaves out the series that have no window: for training with a horizon, for forecasts without.
  void keep_long_enough() {
    const auto& options = build_.options;
    std::int64_t lag = 0;
    for (const std::int64_t value : options.lags) lag = std::max(lag, value);
    const std::int64_t need =
        options.encoder_length + lag + (build_.is_fit() ? options.horizon : 0);
    TooShort all;
    TooShort dropped;
    TooShort untrained;
    std::vector<Series> kept;
    for (auto& series : series_) {
      const auto& group = build_.table.groups[static_cast<std::size_t>(series.group)];
      const std::string name = describe_key(options.id, series.key);
      const std::int64_t train_run = longest_run(build_.table, group, series.train_end);
      const std::int64_t run = longest_run(build_.table, group, series.known_rows);
      all.add(build_.is_fit() ? train_run : run, name);
      if (run < need) {
        dropped.add(run, name);
        continue;
      }
      if (build_.is_fit() && train_run < need) untrained.add(train_run, name);
      kept.push_back(std::move(series));
    }
    const bool trains = static_cast<std::int64_t>(kept.size()) > untrained.count;
    const std::string needed = need_text(options, lag, build_.is_fit());
    if (!trains) {
      build_.fail("all " + count_of(all.count, "series") + " are shorter than " + needed +
                  (build_.is_fit()
                       ? ": their longest stretches of training rows without a gap have "
                       : ": their longest stretches without a gap have ") +
                  all.lengths() + advice(options, all.most) + gaps_text());
    }
    report(dropped, "shorter than " + needed, "left out");
    report(untrained, "with fewer training rows than " + needed,
           "used for validation and test only");
    series_ = std::move(kept);
    if (build_.is_fit() && future_rows_ > 0) {
      build_.report(AuditFinding::Level::kInfo,
                    count_of(future_rows_, "row") + " at the end of series " +
                        (future_rows_ == 1 ? "has" : "have") + " no target",
                    "taken as the future: used for forecasts only");
    }
  }

  void report(const TooShort& short_series, const std::string& what, const std::string& action) {
    if (short_series.count == 0) return;
    build_.report(AuditFinding::Level::kWarning,
                  std::to_string(short_series.count) + " of " +
                      count_of(static_cast<std::int64_t>(series_.size()), "series") + " are " +
                      what + " (" + short_series.lengths() + "), first: " + short_series.first,
                  action);
  }

  /// What earlier findings say about gaps, which may be why the series are short.
  std::string gaps_text() const {
    std::string text;
    for (const auto& finding : build_.rows.findings) {
      if (finding.level == AuditFinding::Level::kWarning) text += "; " + finding.what;
    }
    return text;
  }

  /// Takes the groups without series from the table and fills `rows.groups`.
  void keep_groups() {
    std::vector<Group> groups;
    std::int64_t last = -1;
    for (auto& series : series_) {
      if (series.group != last) {
        last = series.group;
        groups.push_back(build_.table.groups[static_cast<std::size_t>(last)]);
        auto& rows = build_.rows.groups.emplace_back();
        rows.id = groups.back().id;
        rows.table_rows = groups.back().end - groups.back().begin;
        rows.train_rows = rows.table_rows;
      }
      auto& rows = build_.rows.groups.back();
      rows.known_rows = std::max(rows.known_rows, series.known_rows);
      rows.train_rows = std::min(rows.train_rows, series.train_end);
      series.group = static_cast<std::int64_t>(groups.size()) - 1;
    }
    build_.table.groups = std::move(groups);
    build_.rows.series = std::move(series_);
  }

  Build& build_;
  std::vector<Series> series_;
  std::vector<Places> missing_ = std::vector<Places>(build_.options.target.size());
  std::vector<Places> unusable_ = std::vector<Places>(build_.options.target.size());
  std::int64_t future_rows_ = 0;
};

}  // namespace

void read_targets(Build& build) {
  const auto columns = read_reals(build.file, build.options.target);
  build.targets.resize(columns.size());
  for (std::size_t t = 0; t < columns.size(); ++t) {
    auto& target = build.targets[t];
    target.reserve(columns[t].size());
    for (const std::int64_t row : build.table.file_row)
      target.push_back(columns[t][static_cast<std::size_t>(row)]);
  }
}

void split_series(Build& build) {
  SeriesSplitter(build).run();
}

void check_finite(const Build& build, const std::string& column, const std::vector<double>& values,
                  bool all_rows) {
  Places bad;
  for (std::size_t g = 0; g < build.table.groups.size(); ++g) {
    const auto& group = build.table.groups[g];
    const std::int64_t end = all_rows ? group.end : group.begin + build.rows.groups[g].known_rows;
    for (std::int64_t row = group.begin; row < end; ++row) {
      const auto file_row =
          static_cast<std::size_t>(build.table.file_row[static_cast<std::size_t>(row)]);
      if (!is_finite_float(values[file_row])) bad.add(build.table, group, row);
    }
  }
  if (bad.count == 0) return;
  build.fail("column '" + column + "' has " + count_of(bad.count, "value") +
             " that are missing, NaN, infinite or beyond the range of float32, first: " +
             bad.first + "; fill them, or leave the column out");
}

}  // namespace reprise::detail
