// SPDX-License-Identifier: Apache-2.0
/// What a training starts from: the table, the settings as resolved, and the model.
#pragma once

#include "overview.h"
#include "reprise/dataset.h"
#include "reprise/memory_budget.h"
#include "reprise/run_folder.h"
#include "settings.h"

#include <memory>
#include <string>

namespace reprise {

/// A table as a training sees it.
struct PreparedData {
  Settings settings;  ///< data and the model's inputs as resolved
  Dataset dataset;
  Overview overview;
};

/// The same with a model, and a batch size.
struct PreparedTraining {
  Settings settings;
  Dataset dataset;
  TrainedModel trained;  ///< by name only: it holds the first weights, drawn from the seed
  Overview overview;
  std::string
      batch_size_text;  ///< how `--batch-size auto` was resolved, one line; "" where it was not
};

/// Reads the table. Throws `OptionError`, and `DataError` when there is no window to train on too.
PreparedData prepare_data(Settings settings);

/// Reads the table, chooses the batch size where that is asked for, and makes the model. Throws as
/// `prepare_data` and `resolve_batch_size` do.
PreparedTraining prepare_training(Settings settings);

/// The memory budget of `options`, in force while it lives; none where there is none. Throws
/// `BudgetError`.
std::unique_ptr<MemoryBudget> memory_budget(const TrainOptions& options);

/// Windows per forward and backward pass: those of a micro-batch, or of a whole step.
std::int64_t pass_size(const TrainOptions& options);

/// Throws `DataError` when there is no window to train on.
void check_windows(const Overview& overview);

/// Throws `DataError` when there is no such file; what is in it is checked by who reads it.
void check_table_file(const std::string& file);

std::int64_t parameter_count(const TemporalFusionTransformer& model);

}  // namespace reprise
