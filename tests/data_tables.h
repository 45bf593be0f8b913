// SPDX-License-Identifier: Apache-2.0
/// Make small tables for the tests of `src/data`.
#pragma once

#include "reprise/dataset.h"
#include "reprise/errors.h"

#include <arrow/api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace reprise::testing {

using Columns = std::vector<std::pair<std::string, std::shared_ptr<arrow::Array>>>;

/// A path of this name in a folder of this process, which is removed at its end.
std::filesystem::path temp_path(const std::string& name);

/// Writes a file of text and returns its path.
std::filesystem::path write_text(const std::string& name, const std::string& content);

/// Writes a Parquet file, `rows_per_group` rows a row group, and returns its path.
std::filesystem::path write_parquet(const std::string& name, const Columns& columns,
                                    std::int64_t rows_per_group = 1 << 20, bool int96 = false);

std::shared_ptr<arrow::Table> read_parquet(const std::filesystem::path& file);

/// An array of `Builder`'s type; an empty optional is null.
template <typename Builder, typename Value>
std::shared_ptr<arrow::Array> array_of(const std::shared_ptr<arrow::DataType>& type,
                                       const std::vector<std::optional<Value>>& values) {
  Builder builder(type, arrow::default_memory_pool());
  for (const auto& value : values) {
    const auto status = value ? builder.Append(*value) : builder.AppendNull();
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  return builder.Finish().ValueOrDie();
}

std::shared_ptr<arrow::Array> reals(const std::vector<double>& values);
std::shared_ptr<arrow::Array> integers(const std::vector<std::int64_t>& values);
std::shared_ptr<arrow::Array> texts(const std::vector<std::string>& values);

/// A table of `series` series named a, b, ... of `steps` steps, columns id, time, then one for each
/// function of series and step.
struct Panel {
  using Value = std::function<double(int, int)>;
  int series = 2;
  int steps = 60;
  std::vector<std::pair<std::string, Value>> values;

  Columns columns() const;
  std::filesystem::path write(const std::string& name) const;
};

/// Some smooth, not constant function that differs by series.
double wave(int series, int step);

/// Options with short windows.
DataOptions short_windows(std::int64_t encoder = 6, std::int64_t horizon = 3);

/// The error message that `run` ends with; empty if it does not throw `Error`.
template <typename Error>
std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// The error message of fitting a file.
std::string fit_error(const std::filesystem::path& file,
                      const DataOptions& options = short_windows());

/// Whether two tensors hold the same bytes, or are both undefined.
bool same_bytes(const torch::Tensor& a, const torch::Tensor& b);
bool same_inputs(const TftInput& a, const TftInput& b);

/// A panel whose rows from step `from` on are shifted by `shift`, but for known columns.
Panel perturbed(int from, double shift);

/// All findings as text.
std::string findings_of(const Dataset& dataset);

}  // namespace reprise::testing
