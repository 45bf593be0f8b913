// SPDX-License-Identifier: Apache-2.0
/// Forecasts that need no model: what a model has to beat.
#pragma once

#include "reprise/dataset.h"

#include <map>
#include <string>
#include <vector>

namespace reprise::detail {

/// Repeats the last `repeated` values; its quantiles add those of its errors on the training rows.
///
/// The median is the repeated value itself. The errors are taken over training windows, by series,
/// step, and phase of the origin within the season (hour of the day for hourly data). Where a
/// series has too few windows for that, its phases count together; a series without training
/// windows has the errors of all series together.
class NaiveForecaster {
 public:
  /// `repeated` samples: the season for a seasonal naive forecast, 1 for the last value. `season`
  /// in samples. O(training windows * horizon), at most some hundred thousand windows.
  NaiveForecaster(const Dataset& dataset, std::int64_t repeated, std::int64_t season,
                  std::vector<double> quantiles);

  /// [windows, H, Q] float64 in original units.
  at::Tensor forecast(std::span<const Window> windows) const;

 private:
  using Steps = std::vector<std::vector<double>>;  ///< [H][errors, or Q quantiles]

  /// Errors by phase; a single phase where they count together.
  using Phases = std::vector<Steps>;

  std::int64_t phase_of(const Window& window) const;
  void add_errors(const Window& window, Steps& errors) const;
  Phases error_quantiles(Phases errors) const;
  Steps quantiles_of(Steps errors) const;

  const Dataset& dataset_;
  std::int64_t repeated_;
  std::int64_t season_;
  std::int64_t horizon_;
  std::vector<double> quantiles_;
  std::map<std::string, Phases> errors_;
  Steps all_errors_;
};

}  // namespace reprise::detail
