// SPDX-License-Identifier: Apache-2.0
#include "reprise/dataset.h"

#include "data/dataset_internal.h"
#include "data/text_internal.h"
#include "reprise/errors.h"

#include <algorithm>

namespace reprise {
namespace {

void append_names(std::vector<std::string>& names, const std::vector<RealVariable>& variables) {
  for (const auto& variable : variables) names.push_back(variable.name);
}

void append_names(std::vector<std::string>& names,
                  const std::vector<CategoricalVariable>& variables) {
  for (const auto& variable : variables) names.push_back(variable.name);
}

std::vector<std::int64_t> cardinalities(const std::vector<CategoricalVariable>& variables) {
  std::vector<std::int64_t> result;
  for (const auto& variable : variables) result.push_back(variable.cardinality());
  return result;
}

/// Appends the windows of a series whose horizons lie in rows [first, last) and, for training,
/// encoders as well.
void append_windows(const detail::DatasetRows& rows, std::int32_t s, std::int64_t first,
                    std::int64_t last, std::int64_t stride, std::vector<Window>& windows) {
  const auto& series = rows.series[static_cast<std::size_t>(s)];
  const auto& group = rows.groups[static_cast<std::size_t>(series.group)];
  const std::int64_t horizon = rows.schema.options.horizon;
  const std::int32_t* run_begin = rows.run_begin.data() + group.begin;
  // A longer stride takes one window of each part as well, and cannot overflow.
  stride = std::min(stride, std::max<std::int64_t>(1, last - first));
  for (std::int64_t begin = first; begin < last;) {
    // Within [begin, end) there is no gap.
    std::int64_t end = begin + 1;
    while (end < last && run_begin[end] == run_begin[begin]) ++end;
    const std::int64_t earliest = std::max(begin, run_begin[begin] + rows.history_rows());
    for (std::int64_t origin = earliest; origin + horizon <= end; origin += stride) {
      windows.push_back({s, static_cast<std::int32_t>(origin)});
    }
    begin = end;
  }
}

}  // namespace

struct Dataset::Impl {
  detail::DatasetRows rows;

  const detail::Series& series(const Window& window) const {
    TORCH_CHECK_VALUE(
        window.series >= 0 && window.series < static_cast<std::int64_t>(rows.series.size()),
        "Dataset: window of series ", window.series, ", the data set has ", rows.series.size());
    return rows.series[static_cast<std::size_t>(window.series)];
  }
  const detail::GroupRows& group(const Window& window) const {
    return rows.groups[static_cast<std::size_t>(series(window).group)];
  }
};

Dataset::Dataset(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Dataset Dataset::fit(const std::filesystem::path& file, const DataOptions& options) {
  return Dataset(std::make_shared<const Impl>(Impl{detail::build_rows(file, options, nullptr)}));
}

Dataset Dataset::apply(const std::filesystem::path& file, const Schema& schema) {
  return Dataset(
      std::make_shared<const Impl>(Impl{detail::build_rows(file, schema.options, &schema)}));
}

const Schema& Dataset::schema() const {
  return impl_->rows.schema;
}

const std::vector<AuditFinding>& Dataset::findings() const {
  return impl_->rows.findings;
}

std::int64_t Dataset::row_count() const {
  return impl_->rows.table_rows;
}

std::int64_t Dataset::series_count() const {
  return static_cast<std::int64_t>(impl_->rows.series.size());
}

std::vector<std::string> Dataset::static_names() const {
  std::vector<std::string> names;
  append_names(names, schema().static_variables.real);
  append_names(names, schema().static_variables.categorical);
  return names;
}

std::vector<std::string> Dataset::historical_names() const {
  std::vector<std::string> names;
  append_names(names, schema().observed.real);
  append_names(names, schema().known.real);
  append_names(names, schema().observed.categorical);
  append_names(names, schema().known.categorical);
  return names;
}

std::vector<std::string> Dataset::future_names() const {
  std::vector<std::string> names;
  append_names(names, schema().known.real);
  append_names(names, schema().known.categorical);
  return names;
}

void Dataset::describe(TftOptions& options) const {
  options.encoder_length = schema().options.encoder_length;
  options.horizon = schema().options.horizon;
  options.static_reals = static_cast<std::int64_t>(schema().static_variables.real.size());
  options.known_reals = static_cast<std::int64_t>(schema().known.real.size());
  options.observed_reals = static_cast<std::int64_t>(schema().observed.real.size());
  options.static_cardinalities = cardinalities(schema().static_variables.categorical);
  options.known_cardinalities = cardinalities(schema().known.categorical);
  options.observed_cardinalities = cardinalities(schema().observed.categorical);
}

std::vector<Window> Dataset::windows(Split split, std::int64_t stride) const {
  TORCH_CHECK_VALUE(stride >= 1, "Dataset::windows: stride is ", stride, ", must be positive");
  std::vector<Window> windows;
  for (std::size_t s = 0; s < impl_->rows.series.size(); ++s) {
    const auto& series = impl_->rows.series[s];
    std::int64_t first = 0;
    std::int64_t last = series.train_end;
    if (split == Split::kValid) {
      first = series.train_end;
      last = series.valid_end;
    } else if (split == Split::kTest) {
      first = series.valid_end;
      last = series.test_end;
    }
    append_windows(impl_->rows, static_cast<std::int32_t>(s), first, last, stride, windows);
  }
  return windows;
}

std::vector<Window> Dataset::forecast_windows() const {
  const auto& rows = impl_->rows;
  std::vector<Window> windows;
  std::vector<std::string> without_future;
  for (std::size_t s = 0; s < rows.series.size(); ++s) {
    const auto& series = rows.series[s];
    const auto& group = rows.groups[static_cast<std::size_t>(series.group)];
    const std::int32_t* run_begin = rows.run_begin.data() + group.begin;
    const std::int64_t origin = series.known_rows;
    const std::int64_t end = origin + schema().options.horizon;
    if (end > group.rows || run_begin[end - 1] != run_begin[origin - 1]) {
      without_future.push_back(detail::describe_key(schema().options.id, series.key));
    } else if (run_begin[origin - 1] + rows.history_rows() <= origin) {
      windows.push_back({static_cast<std::int32_t>(s), static_cast<std::int32_t>(origin)});
    }
  }
  if (!without_future.empty()) {
    throw DataError(
        detail::count_of(static_cast<std::int64_t>(without_future.size()), "series") +
        " lack the " + std::to_string(schema().options.horizon) +
        " rows that follow the last known target without a gap, with the known columns " +
        detail::list_of(schema().options.known) + " filled: " + detail::list_of(without_future) +
        "; add these rows, with the target left empty");
  }
  return windows;
}

Batch Dataset::gather(std::span<const Window> windows, const GatherOptions& options) const {
  Batch batch;
  detail::gather_rows(impl_->rows, windows, options, batch);
  return batch;
}

void Dataset::gather_into(std::span<const Window> windows, const GatherOptions& options,
                          Batch& batch) const {
  detail::gather_rows(impl_->rows, windows, options, batch);
}

void Dataset::allocate(std::int64_t batch_size, Batch& batch) const {
  detail::allocate_batch(impl_->rows, batch_size, batch);
}

const std::vector<std::string>& Dataset::series_key(const Window& window) const {
  return impl_->series(window).key;
}

std::int64_t Dataset::time_at(const Window& window, std::int64_t step) const {
  const auto& rows = impl_->rows;
  const auto& group = impl_->group(window);
  const std::int64_t row = window.origin + step;
  const std::int64_t nearest = std::clamp<std::int64_t>(row, 0, group.rows - 1);
  const std::int64_t time = rows.times[static_cast<std::size_t>(group.begin + nearest)];
  return row == nearest ? time : rows.axis.advance(time, row - nearest);
}

std::string Dataset::describe(const Window& window) const {
  return detail::describe_key(schema().options.id, series_key(window)) + " from " +
         impl_->rows.axis.text(time_at(window, 0));
}

std::vector<double> Dataset::history(const Window& window, std::int64_t count) const {
  const auto& rows = impl_->rows;
  const auto& series = impl_->series(window);
  const auto& group = impl_->group(window);
  const std::int64_t origin = std::min<std::int64_t>(window.origin, series.known_rows);
  if (origin <= 0) return {};
  const std::int64_t run_begin = rows.run_begin[static_cast<std::size_t>(group.begin + origin - 1)];
  const std::int64_t first = std::max(run_begin, origin - std::max<std::int64_t>(count, 0));
  const auto raw = rows.target_raw[static_cast<std::size_t>(series.target)].begin() + group.begin;
  return {raw + first, raw + origin};
}

}  // namespace reprise
