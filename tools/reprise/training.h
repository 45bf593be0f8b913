// SPDX-License-Identifier: Apache-2.0
/// One training from table to run folder: shared by `train`, `demo` and `train_tft_parquet`.
#pragma once

#include "run_files.h"
#include "settings.h"
#include "terminal.h"

#include <nlohmann/json_fwd.hpp>

#include <filesystem>

namespace reprise {

struct TrainingOutcome {
  std::filesystem::path run;
  RunSummary summary;

  bool is_interrupted() const { return summary.result.reason == StopReason::kInterrupted; }
};

/// Reads the table, trains, scores the test windows, and fills the folder `run` (made here, after
/// the data are checked).
///
/// The first interrupt ends training after its step; the best weights are saved and nothing is
/// scored; nor where scoring does not fit into the memory budget, which a warning says. When
/// training fails, the best weights are saved too, summary.json says so, and the error goes on.
/// Throws `OptionError`, `DataError` and what `prepare_training` and `train` throw.
TrainingOutcome run_training(Settings settings, const std::filesystem::path& run,
                             Terminal& terminal);

/// Prints what came of it (scores beside the baselines, speed, peak memory, folder) and returns the
/// exit code.
int print_training(const TrainingOutcome& outcome, Terminal& terminal);

/// The document of `--json`: the folder and what its summary.json says.
nlohmann::ordered_json training_json(const TrainingOutcome& outcome);

/// `train` and `train_tft_parquet`: checks the settings, picks the run folder, trains, reports.
int run_train(Settings& settings, Terminal& terminal);

}  // namespace reprise
