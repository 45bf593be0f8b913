// SPDX-License-Identifier: Apache-2.0
#include "prepare.h"

#include "batch_choice.h"
#include "reprise/errors.h"

#include <torch/utils.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

namespace reprise {

std::int64_t parameter_count(const TemporalFusionTransformer& model) {
  std::int64_t count = 0;
  for (const torch::Tensor& parameter : model->parameters()) {
    count += parameter.numel();
  }
  return count;
}

void check_windows(const Overview& overview) {
  if (overview.windows.train == 0) {
    throw DataError(overview.file + ": no training window: encoder " +
                    std::to_string(overview.model.encoder_length) + " and horizon " +
                    std::to_string(overview.model.horizon) +
                    " need longer series; use a smaller --encoder or --horizon, or another split");
  }
}

void check_table_file(const std::string& file) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(file, error);
  if (!std::filesystem::exists(status)) {
    throw DataError(file + ": there is no such file; --parquet-file takes a Parquet or CSV file");
  }
  if (!std::filesystem::is_regular_file(status)) {
    throw DataError(file + ": is not a file; --parquet-file takes a Parquet or CSV file");
  }
}

std::int64_t pass_size(const TrainOptions& options) {
  return options.micro_batch_size > 0 ? std::min(options.micro_batch_size, options.batch_size)
                                      : options.batch_size;
}

std::unique_ptr<MemoryBudget> memory_budget(const TrainOptions& options) {
  return options.memory_budget_bytes > 0
             ? std::make_unique<MemoryBudget>(options.memory_budget_bytes,
                                              c10::Device(options.device))
             : nullptr;
}

PreparedData prepare_data(Settings settings) {
  check_table_file(settings.parquet_file);
  const Dataset dataset = Dataset::fit(settings.parquet_file, settings.data);
  settings.data = dataset.schema().options;
  dataset.describe(settings.model);
  // Which layers there are is known now.
  settings.model.validate();
  Overview overview = describe(settings.parquet_file, dataset, settings.model);
  overview.memory_budget_bytes = settings.train.memory_budget_bytes;
  check_windows(overview);
  return {std::move(settings), dataset, std::move(overview)};
}

PreparedTraining prepare_training(Settings settings) {
  PreparedData data = prepare_data(std::move(settings));
  std::string batch_size_text = resolve_batch_size(data);
  torch::manual_seed(data.settings.train.seed);
  const TrainedModel trained = {TemporalFusionTransformer(data.settings.model),
                                data.dataset.schema()};
  data.overview.parameters = parameter_count(trained.model);
  return {std::move(data.settings), data.dataset, trained, std::move(data.overview),
          std::move(batch_size_text)};
}

}  // namespace reprise
