// SPDX-License-Identifier: Apache-2.0
/// Make tables with a learnable signal, of any size, for trials and benchmarks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace reprise {

/// Shape of a made-up table: columns `id`, `time` (integer steps), `target`, and static_*,
/// observed_* and known_*, whose names tell their roles.
struct SynthesizeOptions {
  std::int64_t series = 10;
  std::int64_t steps = 1000;             ///< rows of each series
  std::int64_t static_reals = 1;         ///< static_real_0, ...
  std::int64_t static_categoricals = 1;  ///< static_category_0, ...: text
  std::int64_t observed = 2;             ///< observed_0, ...
  std::int64_t known = 2;                ///< known_0, ...
  std::int64_t start = 0;                ///< time of the first row
  std::int64_t season = 24;              ///< steps of the seasonal cycle
  double noise =
      0.1;  ///< deviation of what cannot be forecast; the rest has a deviation of about 1
  std::uint64_t seed = 1;

  /// Throws `OptionError` naming the first field out of range.
  void validate() const;
};

/// Options of a named layout. "tft-225": 5 static variables, 1 target, 199 observed and 10 known
/// columns, so that a model sees 5 static, 210 historical and 10 future variables. Throws
/// `OptionError` for any other name.
SynthesizeOptions synthesize_preset(const std::string& name);

/// Writes the table as Parquet, atomically, holding a bounded number of rows. The target is the sum
/// of a level and a seasonal cycle that differ by series as its static columns say, known columns
/// of the same row, observed columns one season earlier, and noise. Equal options give equal
/// values. Throws `DataError` where the file cannot be written.
void synthesize(const std::filesystem::path& file, const SynthesizeOptions& options);

}  // namespace reprise
