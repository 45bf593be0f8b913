// SPDX-License-Identifier: Apache-2.0
#include "reprise/verify_gradients.h"

#include "autograd/forward_context.h"
#include "commands.h"
#include "json_text.h"
#include "prepare.h"
#include "reprise/errors.h"
#include "reprise/memory.h"
#include "reprise/quantile_loss.h"
#include "reprise/rematerializer.h"
#include "text.h"

#include <torch/utils.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

namespace reprise {
namespace {

// Of a plain pass's activations, what a recomputing one may keep where no budget is given.
constexpr std::int64_t kVerifiedPercent = 60;
// The first goes without a plan; later ones by plans that know more and more.
constexpr int kStepsBefore = 2;

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

// All are the first forward and backward pass of a training.
class Comparison {
 public:
  Comparison(PreparedTraining& prepared, const Batch& batch)
      : model_(prepared.trained.model),
        chosen_(model_->options()),
        train_(prepared.settings.train),
        batch_(batch) {
    model_->to(torch::Device(train_.device));
    model_->train();
    torch::manual_seed(train_.seed);
  }

  GradientReport of_tier() {
    return compare([&] { return loss(chosen_.checkpointing, chosen_.checkpoint_layers); });
  }

  // Of a step that goes by a plan, which takes steps before it.
  GradientReport of_auto() {
    std::optional<Rematerializer> rematerializer;
    const auto forward = [&] {
      return rematerializer->forward(
          [&] { return loss(Checkpointing::kAuto, chosen_.checkpoint_layers); });
    };
    std::int64_t replayed_before = 0;
    auto report = compare([&] {
      rematerializer.emplace(RematerializerOptions{.budget_bytes = budget_bytes()});
      const detail::RandomState random_state;
      for (int i = 0; i < kStepsBefore; ++i) {
        torch::autograd::grad({forward()}, model_->parameters(), {}, {}, false, true);
        random_state.restore();
      }
      replayed_before = rematerializer->stats().replayed_operations;
      return forward();
    });
    replayed_operations_ = rematerializer->stats().replayed_operations - replayed_before;
    return report;
  }

  // In the step that was compared, of auto.
  std::int64_t replayed_operations() const { return replayed_operations_; }

 private:
  GradientReport compare(const std::function<torch::Tensor()>& recomputed) {
    const auto plain = [&] {
      plain_start_bytes_ = memory_stats().current_bytes;
      reset_peak_memory();
      return loss(Checkpointing::kOff, {});
    };
    return verify_gradients(named_tensors(*model_), plain, recomputed);
  }

  torch::Tensor loss(Checkpointing tier, const LayerChoices& layers) {
    model_->set_checkpointing(tier);
    model_->set_checkpoint_layers(layers);
    return quantile_loss(model_->forward(batch_.input), batch_.target, chosen_.quantiles);
  }

  // Gradients are made in both passes.
  std::int64_t budget_bytes() const {
    if (train_.memory_budget_bytes > 0) return train_.memory_budget_bytes;
    std::int64_t gradient_bytes = 0;
    for (const torch::Tensor& parameter : model_->parameters()) {
      gradient_bytes += static_cast<std::int64_t>(parameter.nbytes());
    }
    const auto now = memory_stats();
    const std::int64_t plain_bytes = now.peak_bytes - plain_start_bytes_ - gradient_bytes;
    return now.current_bytes + gradient_bytes +
           std::max<std::int64_t>(plain_bytes, 0) / 100 * kVerifiedPercent;
  }

  TemporalFusionTransformer& model_;
  const TftOptions chosen_;
  const TrainOptions& train_;
  const Batch& batch_;
  std::int64_t plain_start_bytes_ = 0;
  std::int64_t replayed_operations_ = 0;
};

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
  if (settings.model.checkpointing == Checkpointing::kOff &&
      settings.model.checkpoint_layers.empty()) {
    settings.model.checkpointing = Checkpointing::kAggressive;
    terminal.note("no checkpointing is chosen: --checkpointing aggressive is verified");
  }
  PreparedTraining prepared = prepare_training(settings);
  const TftOptions& model = prepared.settings.model;
  const bool is_auto = model.checkpointing == Checkpointing::kAuto;
  const std::vector<std::string> layers =
      is_auto ? std::vector<std::string>{} : recomputed_layers(model);
  const std::unique_ptr<MemoryBudget> budget =
      is_auto ? nullptr : memory_budget(prepared.settings.train);
  TrainOptions one_pass = prepared.settings.train;
  one_pass.batch_size = pass_size(one_pass);
  const Batch batch = first_training_batch(prepared.dataset, one_pass);
  const std::int64_t windows = batch.target.size(0);
  Comparison comparison(prepared, batch);
  const GradientReport report = is_auto ? comparison.of_auto() : comparison.of_tier();
  const std::int64_t replayed = comparison.replayed_operations();
  if (is_auto && replayed == 0) {
    throw OptionError("memory_budget",
                      "--memory-budget: leaves nothing to recompute: there is nothing to verify; "
                      "give a smaller one, or leave it away");
  }
  terminal.result(
      prepared.batch_size_text + prepared.overview.file + ": the first training batch, " +
      format_count(windows) + " windows\nRecomputed: " +
      (is_auto ? format_count(replayed) + " operators" : join(layers)) + "\n" + report.to_text());
  nlohmann::ordered_json document = {
      {"file", prepared.overview.file},
      {"windows", windows},
      {"checkpointing", to_string(model.checkpointing)},
      {"checkpoint_layer", layer_choice_texts(model.checkpoint_layers)},
      {"recomputed_layers", layers}};
  if (is_auto) document["replayed_operations"] = replayed;
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
