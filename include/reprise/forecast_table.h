// SPDX-License-Identifier: Apache-2.0
/// Write forecasts as a Parquet table.
#pragma once

#include "reprise/dataset.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

namespace reprise {

/// Writes forecasts batch by batch: one row for each window and step, with the id columns (as
/// text), `target` (the target column's name, where there are several), `origin` (time of the last
/// sample before the forecast), `time`, `horizon` (1 ... H) and a float64 column for each quantile,
/// named q0.1, q0.5, ... Times have the type of the table that the model was trained on. An id
/// column whose name is taken by one of these gets a trailing underscore.
class ForecastWriter {
 public:
  /// Throws `DataError` where the file cannot be written.
  ForecastWriter(const std::filesystem::path& file, const Schema& schema,
                 std::vector<double> quantiles);
  /// Without `finish` nothing is left behind.
  ~ForecastWriter();
  ForecastWriter(const ForecastWriter&) = delete;
  ForecastWriter& operator=(const ForecastWriter&) = delete;

  /// Appends forecasts [windows, H, Q] in original units.
  void append(const Dataset& dataset, std::span<const Window> windows,
              const torch::Tensor& forecasts);
  /// Completes the file and gives it its name.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Writes all forecasts [windows, H, Q] at once.
void write_forecasts(const std::filesystem::path& file, const Dataset& dataset,
                     std::span<const Window> windows, const torch::Tensor& forecasts,
                     const std::vector<double>& quantiles);

}  // namespace reprise
