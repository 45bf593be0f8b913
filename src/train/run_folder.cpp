// SPDX-License-Identifier: Apache-2.0
#include "reprise/run_folder.h"

#include "reprise/errors.h"
#include "reprise/safetensors.h"
#include "reprise/version.h"
#include "store/atomic_file.h"

#include <torch/torch.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

namespace reprise {

// What a model's shape is written and read as; how it is run (`checkpointing`,
// `checkpoint_layers`) is no part of it.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TftOptions, encoder_length, horizon, hidden_size,
                                   attention_heads, lstm_layers, dropout, quantiles, variable_width,
                                   encoder_grn, layer_norm_epsilon, static_reals, known_reals,
                                   observed_reals, static_cardinalities, known_cardinalities,
                                   observed_cardinalities)

namespace {

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kSchemaFile = "schema.json";

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw DataError(path.string() + ": cannot be read; is this a run folder that finished?");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TemporalFusionTransformer make_model(const SafetensorsFile& file,
                                     const std::filesystem::path& path) {
  const auto it = file.metadata.find("tft_options");
  if (it == file.metadata.end()) {
    throw DataError(path.string() +
                    ": no tft_options in its metadata; it was not written by reprise");
  }
  try {
    return TemporalFusionTransformer(nlohmann::json::parse(it->second).get<TftOptions>());
  } catch (const std::exception& error) {
    throw DataError(path.string() + ": its tft_options are damaged: " + error.what());
  }
}

void copy_weights(const SafetensorsFile& file, torch::nn::Module& model,
                  const std::filesystem::path& path) {
  const torch::NoGradGuard no_grad;
  auto named = model.named_parameters();
  for (auto& item : named) {
    const auto it = file.tensors.find(item.key());
    if (it == file.tensors.end())
      throw DataError(path.string() + ": parameter " + item.key() + " is missing");
    if (it->second.sizes() != item.value().sizes()) {
      throw DataError(c10::str(path.string(), ": parameter ", item.key(), " is ",
                               it->second.sizes(), ", expected ", item.value().sizes()));
    }
    item.value().copy_(it->second);
  }
  for (const auto& [name, tensor] : file.tensors) {
    if (named.find(name) == nullptr)
      throw DataError(path.string() + ": parameter " + name + " is not of this model");
  }
}

Schema read_schema(const std::filesystem::path& path) {
  const std::string text = read_text(path);
  try {
    return Schema::from_json(text);
  } catch (const DataError& error) {
    throw DataError(path.string() + ": " + error.what());
  }
}

bool matches(const VariableGroup& group, std::int64_t reals,
             const std::vector<std::int64_t>& cardinalities) {
  return std::ssize(group.real) == reals &&
         std::equal(group.categorical.begin(), group.categorical.end(), cardinalities.begin(),
                    cardinalities.end(), [](const CategoricalVariable& variable, std::int64_t n) {
                      return variable.cardinality() == n;
                    });
}

void check_same_run(const TftOptions& o, const Schema& schema, const std::filesystem::path& run) {
  if (!matches(schema.static_variables, o.static_reals, o.static_cardinalities) ||
      !matches(schema.known, o.known_reals, o.known_cardinalities) ||
      !matches(schema.observed, o.observed_reals, o.observed_cardinalities) ||
      schema.options.encoder_length != o.encoder_length || schema.options.horizon != o.horizon) {
    throw DataError(run.string() + ": " + kSchemaFile + " and " + kModelFile +
                    " are not of the same run; copy both from one run folder");
  }
}

}  // namespace

void save_trained_model(const std::filesystem::path& run, const TrainedModel& trained) {
  SafetensorsFile file;
  for (const auto& item : trained.model->named_parameters())
    file.tensors[item.key()] = item.value().detach();
  file.metadata = {{"tft_options", nlohmann::json(trained.model->options()).dump()},
                   {"reprise_version", REPRISE_VERSION}};
  write_file_atomically(run / kSchemaFile, trained.schema.to_json());
  save_safetensors(run / kModelFile, file);
}

TrainedModel load_trained_model(const std::filesystem::path& run) {
  TrainedModel trained;
  const auto path = run / kModelFile;
  if (!std::filesystem::is_directory(run)) throw DataError(run.string() + ": no such run folder");
  trained.schema = read_schema(run / kSchemaFile);
  const auto file = load_safetensors(path);
  trained.model = make_model(file, path);
  copy_weights(file, *trained.model, path);
  check_same_run(trained.model->options(), trained.schema, run);
  return trained;
}

}  // namespace reprise
