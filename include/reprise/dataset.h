// SPDX-License-Identifier: Apache-2.0
/// A Parquet or CSV table as scaled series, its windows, and batches gathered from them.
#pragma once

#include "reprise/schema.h"
#include "reprise/tft.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace reprise {

/// A window is an index: `origin` is the row of the first forecast step within a run of `series`
/// rows.
struct Window {
  std::int32_t series = 0;
  std::int32_t origin = 0;
};

enum class Split { kTrain, kValid, kTest };

/// One batch, on the CPU. `raw = normalised * scale + center`.
struct Batch {
  TftInput input;
  torch::Tensor target;  ///< [B, H] normalised; NaN where the future is not in the table
  torch::Tensor center;  ///< [B]
  torch::Tensor scale;   ///< [B]
};

/// Something about the table that a user should know, and what is done about it.
struct AuditFinding {
  enum class Level { kInfo, kWarning, kError } level;
  std::string what;    ///< e.g. "3 series have duplicate times, first: id=7 at 2020-01-01T00:00"
  std::string action;  ///< what training does about it
};

/// A table, sorted by series and time, scaled, in contiguous float32 rows per role.
class Dataset {
 public:
  /// Reads `file` (Parquet, or CSV by its extension), infers the roles that are not named, checks
  /// the rows, fits scalers and vocabularies on training rows only. Throws `DataError` (naming
  /// column, count and first rows) or `OptionError`.
  static Dataset fit(const std::filesystem::path& file, const DataOptions& options);

  /// Reads `file` as `schema` says, with its scalers and vocabularies; nothing is fitted. Rows
  /// whose target is missing are allowed at the end of a series: the future of a forecast.
  static Dataset apply(const std::filesystem::path& file, const Schema& schema);

  const Schema& schema() const;
  const std::vector<AuditFinding>& findings() const;
  std::int64_t row_count() const;
  std::int64_t series_count() const;
  /// Names of the model's variables in its order: static, historical and future.
  std::vector<std::string> static_names() const;
  std::vector<std::string> historical_names() const;
  std::vector<std::string> future_names() const;

  /// Fills the counts and cardinalities of `options` from the schema.
  void describe(TftOptions& options) const;

  /// Windows whose horizon lies within the rows of `split`, every `stride` samples from its first
  /// row.
  std::vector<Window> windows(Split split, std::int64_t stride = 1) const;
  /// One window per series that starts after its last row with a known target (for `predict`).
  std::vector<Window> forecast_windows() const;

  /// Gathers a batch of any windows. Thread-safe.
  Batch gather(std::span<const Window> windows) const;

  /// Key of a window's series: values of the id columns (and the target's name when there are
  /// several), in order.
  const std::vector<std::string>& series_key(const Window& window) const;
  /// Time of the sample `step` steps after the window's origin, in the unit of the schema.
  std::int64_t time_at(const Window& window, std::int64_t step) const;
  /// Raw target values of the `count` rows before the origin, oldest first; fewer when the series
  /// is shorter.
  std::vector<double> history(const Window& window, std::int64_t count) const;

 private:
  struct Impl;
  explicit Dataset(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

/// Hands out batches in order while other threads gather the next ones into a fixed ring of
/// buffers.
class BatchLoader {
 public:
  /// `windows` in the order wanted. `threads` gather ahead; 0 gathers when asked.
  BatchLoader(const Dataset& dataset, std::vector<Window> windows, std::int64_t batch_size,
              int threads = 1);
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  /// The next batch, or false at the end. Order and content do not depend on the number of threads.
  bool next(Batch& batch);
  std::int64_t batch_count() const;
  /// Seconds that `next` waited, in all.
  double wait_s() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reprise
