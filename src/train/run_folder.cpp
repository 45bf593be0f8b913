// SPDX-License-Identifier: Apache-2.0
#include "reprise/run_folder.h"

#include "reprise/errors.h"
#include "reprise/safetensors.h"
#include "reprise/version.h"
#include "store/atomic_file.h"

#include <torch/torch.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <sstream>

namespace reprise {
namespace {

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kSchemaFile = "schema.json";

nlohmann::json to_json(const TftOptions& o) {
  return {{"encoder_length", o.encoder_length},
          {"horizon", o.horizon},
          {"hidden_size", o.hidden_size},
          {"attention_heads", o.attention_heads},
          {"lstm_layers", o.lstm_layers},
          {"dropout", o.dropout},
          {"quantiles", o.quantiles},
          {"variable_width", o.variable_width},
          {"encoder_grn", o.encoder_grn},
          {"layer_norm_epsilon", o.layer_norm_epsilon},
          {"static_reals", o.static_reals},
          {"known_reals", o.known_reals},
          {"observed_reals", o.observed_reals},
          {"static_cardinalities", o.static_cardinalities},
          {"known_cardinalities", o.known_cardinalities},
          {"observed_cardinalities", o.observed_cardinalities}};
}

TftOptions options_from_json(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  TftOptions o;
  json.at("encoder_length").get_to(o.encoder_length);
  json.at("horizon").get_to(o.horizon);
  json.at("hidden_size").get_to(o.hidden_size);
  json.at("attention_heads").get_to(o.attention_heads);
  json.at("lstm_layers").get_to(o.lstm_layers);
  json.at("dropout").get_to(o.dropout);
  json.at("quantiles").get_to(o.quantiles);
  json.at("variable_width").get_to(o.variable_width);
  json.at("encoder_grn").get_to(o.encoder_grn);
  json.at("layer_norm_epsilon").get_to(o.layer_norm_epsilon);
  json.at("static_reals").get_to(o.static_reals);
  json.at("known_reals").get_to(o.known_reals);
  json.at("observed_reals").get_to(o.observed_reals);
  json.at("static_cardinalities").get_to(o.static_cardinalities);
  json.at("known_cardinalities").get_to(o.known_cardinalities);
  json.at("observed_cardinalities").get_to(o.observed_cardinalities);
  o.validate();
  return o;
}

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
    return TemporalFusionTransformer(options_from_json(it->second));
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

void check_counts(const TftOptions& o, const Schema& schema, const std::filesystem::path& run) {
  const auto matches = [](std::size_t count, std::int64_t expected) {
    return static_cast<std::int64_t>(count) == expected;
  };
  if (!matches(schema.static_variables.real.size(), o.static_reals) ||
      !matches(schema.known.real.size(), o.known_reals) ||
      !matches(schema.observed.real.size(), o.observed_reals) ||
      schema.options.encoder_length != o.encoder_length || schema.options.horizon != o.horizon) {
    throw DataError(run.string() + ": " + kSchemaFile + " and " + kModelFile +
                    " are not of the same run");
  }
}

}  // namespace

void save_trained_model(const std::filesystem::path& run, const TrainedModel& trained) {
  SafetensorsFile file;
  for (const auto& item : trained.model->named_parameters())
    file.tensors[item.key()] = item.value().detach();
  file.metadata = {{"tft_options", to_json(trained.model->options()).dump()},
                   {"reprise_version", REPRISE_VERSION}};
  write_file_atomically(run / kSchemaFile, trained.schema.to_json());
  save_safetensors(run / kModelFile, file);
}

TrainedModel load_trained_model(const std::filesystem::path& run) {
  TrainedModel trained;
  const auto path = run / kModelFile;
  if (!std::filesystem::is_directory(run)) throw DataError(run.string() + ": no such run folder");
  trained.schema = Schema::from_json(read_text(run / kSchemaFile));
  const auto file = load_safetensors(path);
  trained.model = make_model(file, path);
  copy_weights(file, *trained.model, path);
  check_counts(trained.model->options(), trained.schema, run);
  return trained;
}

}  // namespace reprise
