// SPDX-License-Identifier: Apache-2.0
/// The files that training writes into its run folder beside the model: config.toml, metrics.jsonl,
/// summary.json.
#pragma once

#include "overview.h"
#include "reprise/trainer.h"

#include <nlohmann/json_fwd.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace reprise {

/// `out`, or runs/<stem of file>-<date-time> when it is empty.
std::filesystem::path choose_run_folder(const std::string& out, const std::string& file);

/// Throws `OptionError` when `run` exists and is anything but an empty folder.
void check_run_folder(const std::filesystem::path& run);

/// Makes the folder where there is none. Throws `OptionError`.
void make_run_folder(const std::filesystem::path& run);

/// metrics.jsonl: one line per step, one per evaluation, and one per retry of a step.
class MetricsFile {
 public:
  /// Throws `DataError` when the file cannot be written.
  explicit MetricsFile(const std::filesystem::path& run);

  void write(const StepReport& report);

 private:
  std::filesystem::path path_;
  std::ofstream stream_;
};

/// What summary.json says.
struct RunSummary {
  std::string status;  ///< finished or interrupted
  std::string stop_reason;
  Overview overview;
  TrainOptions options;
  std::string precision;
  std::int64_t threads = 0;
  TrainResult result;
  double total_s = 0.0;  ///< from reading the table to the last evaluation
  std::int64_t peak_resident_bytes = 0;
  std::vector<Score> scores;  ///< of the test windows; empty when there was no evaluation
};

nlohmann::ordered_json summary_json(const RunSummary& summary);

/// Writes summary.json, atomically.
void write_summary(const std::filesystem::path& run, const RunSummary& summary);

std::string to_string(StopReason reason);

}  // namespace reprise
