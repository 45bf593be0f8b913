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

/// A window is an index: `origin` is the row of the first forecast step among the rows of `series`.
/// Its rows never cross a gap in time.
struct Window {
  std::int32_t series = 0;
  std::int32_t origin = 0;

  friend bool operator==(const Window&, const Window&) = default;
};

enum class Split { kTrain, kValid, kTest };

/// One batch, on the CPU. `raw = normalised * scale + center`.
struct Batch {
  TftInput input;
  torch::Tensor target;  ///< [B, H] normalised; NaN where the future is not in the table
  torch::Tensor center;  ///< [B] float64
  torch::Tensor scale;   ///< [B] float64, positive
};

/// How `gather` may change what it gathers.
struct GatherOptions {
  /// Share of a window's categorical variables (calendar and "target" left out) that read as
  /// unknown, code 0: so that the code of values not seen in training gets trained. The draw
  /// depends on `seed`, window and variable alone.
  double unknown_rate = 0.0;
  std::uint64_t seed = 0;
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
  /// whose target is missing are allowed at the end of a series: the future of a forecast, of which
  /// only known columns are read.
  static Dataset apply(const std::filesystem::path& file, const Schema& schema);

  const Schema& schema() const;
  const std::vector<AuditFinding>& findings() const;
  std::int64_t row_count() const;
  std::int64_t series_count() const;
  /// Names of the model's variables in its order: static, historical and future.
  std::vector<std::string> static_names() const;
  std::vector<std::string> historical_names() const;
  std::vector<std::string> future_names() const;

  /// Fills the counts, cardinalities and lengths of `options` from the schema.
  void describe(TftOptions& options) const;

  /// Windows whose horizon lies within the rows of `split`, every `stride` samples from the first
  /// origin that has its encoder. Encoders of training windows lie in training rows; those of the
  /// others may reach back over the border.
  std::vector<Window> windows(Split split, std::int64_t stride = 1) const;
  /// One window per series that starts after its last row with a known target (for `predict`).
  /// Throws `DataError` where the model has known columns and the table lacks rows for their
  /// future.
  std::vector<Window> forecast_windows() const;

  /// Gathers a batch of any windows. Thread-safe. Throws c10::ValueError for a window that does not
  /// fit its series.
  Batch gather(std::span<const Window> windows, const GatherOptions& options = {}) const;
  /// As `gather`, into the tensors of `batch` where they have the right shape and nobody else holds
  /// them.
  void gather_into(std::span<const Window> windows, const GatherOptions& options,
                   Batch& batch) const;

  /// Gives `batch` the memory that `gather_into` needs for `batch_size` windows.
  void allocate(std::int64_t batch_size, Batch& batch) const;

  /// Key of a window's series: values of the id columns (and the target's name when there are
  /// several), in order.
  const std::vector<std::string>& series_key(const Window& window) const;
  /// Time of the sample `step` steps after the window's origin, in the unit of the schema.
  std::int64_t time_at(const Window& window, std::int64_t step) const;
  /// The series and the time of a window's first sample to forecast, for messages: "id=a from
  /// 2024-01-02T11:00".
  std::string describe(const Window& window) const;
  /// Raw target values of the `count` rows before the origin, oldest first; fewer where the series,
  /// or its part since the last gap in time, is shorter.
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
  /// `windows` in the order wanted. `threads` gather ahead; 0 gathers when asked, as does
  /// one whose threads the system cannot start. All memory that it ever needs is there once it is
  /// made, for batches that are brought back.
  BatchLoader(const Dataset& dataset, std::vector<Window> windows, std::int64_t batch_size,
              int threads = 1, const GatherOptions& options = {});
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  /// The next batch, or false at the end. Order and content do not depend on the number of threads.
  /// Tensors that `batch` brings back are filled again later unless somebody still holds them, so a
  /// batch that was handed out never changes. What a thread threw is thrown here, by this call and
  /// every later one.
  bool next(Batch& batch);
  std::int64_t batch_count() const;
  /// Seconds that `next` waited, in all.
  double wait_s() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reprise
