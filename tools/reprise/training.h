// SPDX-License-Identifier: Apache-2.0
/// One training from table to run folder: shared by `train`, `demo` and `train_tft_parquet`.
#pragma once

#include "reprise/dataset.h"
#include "reprise/run_folder.h"
#include "run_files.h"
#include "settings.h"
#include "terminal.h"

#include <nlohmann/json_fwd.hpp>

#include <filesystem>

namespace reprise {

/// What a training starts from.
struct PreparedTraining {
  Settings settings;  ///< data and model as resolved
  Dataset dataset;
  TrainedModel trained;  ///< by name only: it holds the first weights, drawn from the seed
  Overview overview;
};

/// Reads the table and makes the model. Throws `OptionError`, and `DataError` when there is no
/// window to train on too.
PreparedTraining prepare_training(Settings settings);

struct TrainingOutcome {
  std::filesystem::path run;
  RunSummary summary;

  bool is_interrupted() const { return summary.result.reason == StopReason::kInterrupted; }
};

/// Reads the table, trains, scores the test windows, and fills the folder `run` (made here, after
/// the data are checked).
///
/// The first interrupt ends training after its step; the best weights are saved and nothing is
/// scored. When training fails, the best weights are saved too, summary.json says so, and the error
/// goes on. Throws `OptionError`, `DataError` and what `train` throws.
TrainingOutcome run_training(Settings settings, const std::filesystem::path& run,
                             Terminal& terminal);

/// Prints what came of it (scores beside the baselines, speed, peak memory, folder) and returns the
/// exit code.
int print_training(const TrainingOutcome& outcome, Terminal& terminal);

/// The document of `--json`: the folder and what its summary.json says.
nlohmann::ordered_json training_json(const TrainingOutcome& outcome);

/// `train` and `train_tft_parquet`: checks the settings, picks the run folder, trains, reports.
int run_train(Settings& settings, Terminal& terminal);

/// Throws `DataError` when there is no window to train on.
void check_windows(const Overview& overview);

std::int64_t parameter_count(const TemporalFusionTransformer& model);

/// Throws `DataError` when there is no such file; what is in it is checked by who reads it.
void check_table_file(const std::string& file);

}  // namespace reprise
