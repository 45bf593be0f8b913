// SPDX-License-Identifier: Apache-2.0
/// The files of a training run: what `train` writes and `evaluate` and `predict` read.
#pragma once

#include "reprise/schema.h"
#include "reprise/tft.h"

#include <filesystem>

namespace reprise {

/// A trained model with what is needed to use it.
struct TrainedModel {
  TemporalFusionTransformer model{nullptr};
  Schema schema;
};

/// Writes `schema.json` and `model.safetensors` (the model's options are in its metadata), each
/// atomically.
void save_trained_model(const std::filesystem::path& run, const TrainedModel& trained);

/// Reads a run folder back. Throws `DataError` naming the file that is missing, damaged or does not
/// match the model.
TrainedModel load_trained_model(const std::filesystem::path& run);

}  // namespace reprise
