// SPDX-License-Identifier: Apache-2.0
#include "reprise/verify_gradients.h"

#include "commands.h"
#include "json_text.h"
#include "prepare.h"
#include "reprise/errors.h"
#include "reprise/quantile_loss.h"
#include "text.h"

#include <torch/utils.h>

#include <memory>

namespace reprise {
namespace {

// What is compared with the plain pass. Throws `OptionError` where that is nothing.
std::vector<std::string> recomputed_layers(const TftOptions& model) {
  std::vector<std::string> layers = layer_names(model);
  std::erase_if(layers, [&](const std::string& layer) { return !is_checkpointed(model, layer); });
  if (layers.empty()) {
    throw OptionError("checkpoint_layer",
                      "--checkpoint-layer: leaves no layer that is recomputed: there is nothing to "
                      "verify; layers: " +
                          join(layer_names(model)));
  }
  return layers;
}

// Both are the first forward and backward pass of a training.
GradientReport compare_gradients(PreparedTraining& prepared, const Batch& batch) {
  TemporalFusionTransformer& model = prepared.trained.model;
  const TftOptions chosen = model->options();
  const auto loss = [&](Checkpointing tier, const LayerChoices& layers) {
    model->set_checkpointing(tier);
    model->set_checkpoint_layers(layers);
    return quantile_loss(model->forward(batch.input), batch.target, chosen.quantiles);
  };
  model->to(torch::Device(prepared.settings.train.device));
  model->train();
  torch::manual_seed(prepared.settings.train.seed);
  return verify_gradients(
      named_tensors(*model), [&] { return loss(Checkpointing::kOff, {}); },
      [&] { return loss(chosen.checkpointing, chosen.checkpoint_layers); });
}

nlohmann::ordered_json differing_json(const GradientReport& report) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const GradientComparison& parameter : report.parameters) {
    if (!parameter.is_equal) {
      list.push_back({{"name", parameter.name},
                      {"has_plain_gradient", parameter.has_plain_gradient},
                      {"has_checkpointed_gradient", parameter.has_checkpointed_gradient},
                      {"largest_difference", parameter.largest_difference}});
    }
  }
  return list;
}

nlohmann::ordered_json report_json(const GradientReport& report) {
  return {{"equal", report.is_equal()},
          {"compared_parameters", report.parameters.size()},
          {"differing_parameters", differing_json(report)},
          {"without_gradient", report.without_gradient()},
          {"differing_buffers", report.differing_buffers},
          {"equal_outputs", report.has_equal_outputs},
          {"equal_random_stream", report.has_equal_random_stream},
          {"plain_repeatable", report.is_plain_repeatable}};
}

int run_verify(Settings& settings, Terminal& terminal) {
  settle(settings);
  require_tier(settings, "verify");
  if (settings.model.checkpointing == Checkpointing::kOff &&
      settings.model.checkpoint_layers.empty()) {
    settings.model.checkpointing = Checkpointing::kAggressive;
    terminal.note("no checkpointing is chosen: --checkpointing aggressive is verified");
  }
  PreparedTraining prepared = prepare_training(settings);
  const TftOptions& model = prepared.settings.model;
  const std::vector<std::string> layers = recomputed_layers(model);
  const std::unique_ptr<MemoryBudget> budget = memory_budget(prepared.settings.train);
  TrainOptions one_pass = prepared.settings.train;
  one_pass.batch_size = pass_size(one_pass);
  const Batch batch = first_training_batch(prepared.dataset, one_pass);
  const std::int64_t windows = batch.target.size(0);
  const GradientReport report = compare_gradients(prepared, batch);
  terminal.result(prepared.batch_size_text + prepared.overview.file +
                  ": the first training batch, " + format_count(windows) +
                  " windows\nRecomputed: " + join(layers) + "\n" + report.to_text());
  nlohmann::ordered_json document = {
      {"file", prepared.overview.file},
      {"windows", windows},
      {"checkpointing", to_string(model.checkpointing)},
      {"checkpoint_layer", layer_choice_texts(model.checkpoint_layers)},
      {"recomputed_layers", layers}};
  document.update(report_json(report));
  terminal.json(json_text(document));
  return report.is_equal() ? kExitDone : kExitFailed;
}

}  // namespace

Command verify_command(Settings& settings) {
  return {.name = "verify",
          .summary = "Compare the gradients of a training step with and without recomputation",
          .example =
              "reprise verify --parquet-file sales.parquet --target sales --checkpointing "
              "minimal",
          .fields = training_fields(settings),
          .positionals = {},
          .required = {"parquet_file"},
          .run = run_verify};
}

}  // namespace reprise
