// SPDX-License-Identifier: Apache-2.0
/// Forecasts that need no model: what a model has to beat.
#pragma once

#include "reprise/dataset.h"

#include <map>
#include <string>
#include <vector>

namespace reprise::detail {

/// Repeats the last season and adds the quantiles of its errors on the training rows; season 1
/// repeats the last value.
///
/// The error at step h is y[t] - y[t - lag] with lag = season * ceil(h / season), over all training
/// rows of the series; a series without training rows has the errors of all series together.
class SeasonalNaive {
 public:
  /// `season` in samples; `quantiles` in (0, 1). O(training rows * horizon).
  SeasonalNaive(const Dataset& dataset, std::int64_t season, std::vector<double> quantiles);

  /// [windows, H, Q] float64 in original units.
  at::Tensor forecast(std::span<const Window> windows) const;

 private:
  /// Quantiles of the errors, [H][Q].
  using ErrorQuantiles = std::vector<std::vector<double>>;

  const ErrorQuantiles& errors_of(const std::string& series) const;
  ErrorQuantiles error_quantiles(const std::vector<std::vector<double>>& runs) const;
  std::int64_t lag(std::int64_t step) const { return season_ * ((step + season_ - 1) / season_); }

  const Dataset& dataset_;
  std::int64_t season_;
  std::int64_t horizon_;
  std::vector<double> quantiles_;
  std::map<std::string, ErrorQuantiles> errors_;
  ErrorQuantiles all_errors_;
};

}  // namespace reprise::detail
