// SPDX-License-Identifier: Apache-2.0
#include "tests/detach_bug.h"

#include "reprise/quantile_loss.h"
#include "tests/tft_models.h"
#include "tft/layer_runner.h"

#include <torch/torch.h>

namespace reprise::testing {
namespace {

using torch::Tensor;

/// The modules behind each part of the report.
struct Part {
  const char* name;
  std::vector<const char*> modules;
};

const std::vector<Part>& parts() {
  static const std::vector<Part> list = {
      {"static_vsn", {"static_vsn", "static_embedding"}},
      {"historical_vsn", {"historical_vsn", "observed_embedding"}},
      {"future_vsn", {"future_vsn", "known_embedding"}},
      {"static_encoder", {"static_encoder"}},
      {"historical_encoder", {"historical_encoder"}},
      {"future_encoder", {"future_encoder"}},
      {"lstm_encoder", {"lstm_encoder"}},
      {"lstm_decoder", {"lstm_decoder"}},
      {"enrichment", {"lstm_gate", "enrichment"}},
      {"temporal_attention", {"attention", "attention_gate"}},
      {"output", {"positionwise", "output_gate", "quantile"}}};
  return list;
}

bool belongs_to(const std::string& parameter, const Part& part) {
  return std::ranges::any_of(
      part.modules, [&](const std::string& module) { return parameter.starts_with(module + "."); });
}

std::vector<Tensor> weights_of(const TemporalFusionTransformer& model) {
  std::vector<Tensor> weights;
  for (const auto& parameter : model->parameters()) weights.push_back(parameter.detach().clone());
  return weights;
}

WeightChange change_of(const Part& part, const TemporalFusionTransformer& model,
                       const std::vector<Tensor>& before) {
  WeightChange change{part.name, 0, 0, 0};
  double squared_change = 0;
  double squared_norm = 0;
  std::size_t i = 0;
  for (const auto& item : model->named_parameters()) {
    const auto& first = before[i++];
    if (!belongs_to(item.key(), part)) continue;
    const auto& gradient = item.value().grad();
    ++change.parameters;
    if (gradient.defined() && gradient.abs().max().item<double>() > 0) ++change.gradients;
    squared_change += (item.value().detach() - first).pow(2).sum().item<double>();
    squared_norm += first.pow(2).sum().item<double>();
  }
  change.relative_change = std::sqrt(squared_change / squared_norm);
  return change;
}

}  // namespace

Tensor loss_of(TemporalFusionTransformer& model, const TftInput& input, const Tensor& target,
               Variant variant) {
  auto options = model->options();
  options.checkpointing = Checkpointing::kAggressive;
  const auto correct = detail::checkpointing_runner(options);
  const auto runner = [&](const std::string& layer, const detail::LayerFunction& function,
                          std::vector<Tensor> inputs) {
    if (variant == Variant::kCorrect) return correct(layer, function, inputs);
    if (variant == Variant::kBroken && is_checkpointed(options, layer)) {
      for (auto& tensor : inputs) tensor = tensor.detach();
    }
    return function(inputs);
  };
  const auto output = detail::interpret_with(*model, input, runner);
  return quantile_loss(output.quantiles, target, options.quantiles);
}

DetachBugCase detach_bug_case() {
  torch::manual_seed(21);
  auto options = small_options();
  options.encoder_grn = true;
  DetachBugCase result{TemporalFusionTransformer(options), random_input(options, 32), {}};
  // Past, known and static inputs all say something about the target.
  const auto& input = result.input;
  const auto past = input.observed_real.select(2, 0).mean(1, /*keepdim=*/true);
  const auto known =
      input.known_real.select(2, 0).narrow(1, options.encoder_length, options.horizon);
  result.target = past + known + input.static_real.select(1, 0).unsqueeze(1);
  return result;
}

TrainedVariant train_variant(Variant variant, int steps) {
  auto [model, input, target] = detach_bug_case();
  const auto before = weights_of(model);
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(5e-3));
  torch::manual_seed(22);
  TrainedVariant result;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    auto loss = loss_of(model, input, target, variant);
    loss.backward();
    optimizer.step();
    (step == 0 ? result.first_loss : result.last_loss) = loss.item<double>();
  }
  for (const auto& part : parts()) result.changes.push_back(change_of(part, model, before));
  result.weights = weights_of(model);
  return result;
}

}  // namespace reprise::testing
