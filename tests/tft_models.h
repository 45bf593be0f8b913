// SPDX-License-Identifier: Apache-2.0
/// Small Temporal Fusion Transformers and batches for them.
#pragma once

#include "reprise/quantile_loss.h"
#include "reprise/tft.h"
#include "tests/testing.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace reprise::testing {

inline TftOptions small_options() {
  TftOptions options{.encoder_length = 6, .horizon = 3, .hidden_size = 8, .attention_heads = 2};
  options.static_reals = 2;
  options.known_reals = 1;
  options.observed_reals = 2;
  options.static_cardinalities = {3};
  options.known_cardinalities = {4, 5};
  options.observed_cardinalities = {2};
  return options;
}

inline torch::Tensor random_codes(const std::vector<std::int64_t>& leading,
                                  const std::vector<std::int64_t>& cardinalities) {
  std::vector<torch::Tensor> columns;
  for (auto cardinality : cardinalities)
    columns.push_back(torch::randint(cardinality, leading, torch::kLong));
  return columns.empty() ? torch::Tensor() : torch::stack(columns, -1);
}

inline torch::Tensor random_reals(std::vector<std::int64_t> leading, std::int64_t variables) {
  leading.push_back(variables);
  return variables == 0 ? torch::Tensor() : torch::randn(leading);
}

inline TftInput random_input(const TftOptions& o, std::int64_t batch) {
  const auto steps = o.encoder_length + o.horizon;
  return {.static_real = random_reals({batch}, o.static_reals),
          .static_categorical = random_codes({batch}, o.static_cardinalities),
          .observed_real = random_reals({batch, o.encoder_length}, o.observed_reals),
          .observed_categorical = random_codes({batch, o.encoder_length}, o.observed_cardinalities),
          .known_real = random_reals({batch, steps}, o.known_reals),
          .known_categorical = random_codes({batch, steps}, o.known_cardinalities)};
}

using StepResult = std::vector<std::pair<std::string, torch::Tensor>>;
using LayerChoices = std::map<std::string, bool>;

/// Loss, gradients by name, and the next random number of one training step's passes.
inline StepResult one_step(TemporalFusionTransformer& model, const TftInput& input,
                           Checkpointing checkpointing, const LayerChoices& layers = {}) {
  model->set_checkpointing(checkpointing);
  model->set_checkpoint_layers(layers);
  model->zero_grad();
  torch::manual_seed(11);
  const auto& options = model->options();
  auto target = torch::randn({input.observed_real.size(0), options.horizon});
  auto loss = quantile_loss(model->forward(input), target, options.quantiles);
  loss.backward();
  StepResult result = {{"loss", loss.detach()}};
  for (const auto& item : model->named_parameters())
    result.emplace_back(item.key(), item.value().grad().clone());
  result.emplace_back("next random number", torch::rand({2}));
  return result;
}

/// Every layer that the model has, recomputed.
inline LayerChoices all_layers(const TftOptions& options) {
  LayerChoices layers;
  for (const auto& name : layer_names(options)) layers[name] = true;
  return layers;
}

inline void expect_same_bytes(const StepResult& a, const StepResult& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(is_same_bytes(a[i].second, b[i].second)) << a[i].first;
  }
}

}  // namespace reprise::testing
