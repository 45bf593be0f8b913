// SPDX-License-Identifier: Apache-2.0
// Which layers are recomputed, and that it changes nothing; the seam that they run through.
#include "reprise/tft.h"
#include "tests/testing.h"
#include "tests/tft_models.h"
#include "tft/layer_runner.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <map>

namespace reprise {
namespace {

using testing::all_layers;
using ::testing::ElementsAre;
using testing::expect_same_bytes;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::one_step;
using testing::random_input;
using testing::small_options;
using torch::Tensor;

/// Every layer exists, and dropout draws random numbers in most of them.
TftOptions options_of_every_layer() {
  auto options = small_options();
  options.dropout = 0.3;
  options.encoder_grn = true;
  return options;
}

TEST(TemporalFusionTransformer, GivesBitwiseEqualGradientsInEveryTier) {
  for (bool encoder_grn : {false, true}) {
    torch::manual_seed(4);
    auto options = options_of_every_layer();
    options.encoder_grn = encoder_grn;
    TemporalFusionTransformer model(options);
    const auto input = random_input(options, 5);
    const auto plain = one_step(model, input, Checkpointing::kOff);
    for (auto tier : {Checkpointing::kMinimal, Checkpointing::kAggressive})
      expect_same_bytes(plain, one_step(model, input, tier));
  }
}

TEST(TemporalFusionTransformer, GivesBitwiseEqualGradientsWithAnyLayerRecomputedOrNot) {
  torch::manual_seed(4);
  const auto options = options_of_every_layer();
  TemporalFusionTransformer model(options);
  const auto input = random_input(options, 5);
  const auto plain = one_step(model, input, Checkpointing::kOff);
  for (const auto& layer : layer_names(options)) {
    SCOPED_TRACE(layer);
    expect_same_bytes(plain, one_step(model, input, Checkpointing::kOff, {{layer, true}}));
    expect_same_bytes(plain, one_step(model, input, Checkpointing::kAggressive, {{layer, false}}));
  }
  expect_same_bytes(plain, one_step(model, input, Checkpointing::kOff, all_layers(options)));
}

TEST(TemporalFusionTransformer, RefusesToRecomputeALayerThatItDoesNotHave) {
  TemporalFusionTransformer model(small_options());
  const auto error = testing::error_of([&] { model->set_checkpoint_layers({{"lstm", true}}); });
  EXPECT_THAT(error, HasSubstr("no layer 'lstm'"));
  EXPECT_THAT(error, HasSubstr("static_vsn, static_encoder, historical_vsn, future_vsn, lstm_enc"));
  EXPECT_THAT(model->options().checkpoint_layers, IsEmpty());
}

TEST(InterpretWith, RunsTheLayersInTheOrderOfTheirNames) {
  for (const auto& options : {options_of_every_layer(), TftOptions{.encoder_length = 6}}) {
    TemporalFusionTransformer model(options);
    std::vector<std::string> names;
    const auto run = detail::checkpointing_runner(options);
    detail::interpret_with(*model, random_input(options, 2),
                           [&](const std::string& layer, const detail::LayerFunction& function,
                               const std::vector<Tensor>& inputs) {
                             names.push_back(layer);
                             return run(layer, function, inputs);
                           });
    EXPECT_EQ(names, layer_names(options));
  }
}

TEST(InterpretWith, HandsTheBatchItselfToTheSelectionNetworks) {
  const auto options = options_of_every_layer();
  TemporalFusionTransformer model(options);
  const auto input = random_input(options, 2);
  std::map<std::string, std::vector<Tensor>> inputs_of;
  detail::interpret_with(*model, input,
                         [&](const std::string& layer, const detail::LayerFunction& function,
                             const std::vector<Tensor>& inputs) {
                           inputs_of[layer] = inputs;
                           return function(inputs);
                         });
  const auto is_batch = [&](const char* layer, const std::vector<Tensor>& batch) {
    return std::equal(batch.begin(), batch.end(), inputs_of[layer].begin(),
                      [](const Tensor& a, const Tensor& b) { return a.is_same(b); });
  };
  EXPECT_TRUE(is_batch("static_vsn", {input.static_real, input.static_categorical}));
  EXPECT_TRUE(is_batch("historical_vsn", {input.observed_real, input.observed_categorical,
                                          input.known_real, input.known_categorical}));
  EXPECT_TRUE(is_batch("future_vsn", {input.known_real, input.known_categorical}));
}

TEST(InterpretWith, LetsATestBreakALayer) {
  torch::manual_seed(12);
  const auto options = options_of_every_layer();
  TemporalFusionTransformer model(options);
  const auto output =
      detail::interpret_with(*model, random_input(options, 2),
                             [](const std::string& layer, const detail::LayerFunction& function,
                                std::vector<Tensor> inputs) {
                               if (layer == "lstm_encoder")
                                 for (auto& input : inputs) input = input.detach();
                               return function(inputs);
                             });
  output.quantiles.sum().backward();
  const auto parameters = model->named_parameters();
  EXPECT_TRUE(parameters["lstm_encoder.weight_ih_l0"].grad().defined());
  EXPECT_TRUE(parameters["future_encoder.input.weight"].grad().defined());
  // Its inputs are the only way to the static contexts of the LSTM.
  EXPECT_FALSE(parameters["static_encoder.hidden_state.input.weight"].grad().defined());
}

TEST(TftOptions, RefuseLayersThatTheModelDoesNotHave) {
  auto options = small_options();
  options.checkpoint_layers = {{"quantile", true}};
  EXPECT_NO_THROW(options.validate());
  options.checkpoint_layers = {{"future_encoder", true}};  // there with `encoder_grn` alone
  EXPECT_THAT(testing::error_of([&] { options.validate(); }),
              HasSubstr("no layer 'future_encoder'; it has static_vsn, "));
  options.encoder_grn = true;
  EXPECT_NO_THROW(options.validate());
}

std::vector<std::string> checkpointed_layers(const TftOptions& options) {
  auto names = layer_names(options);
  std::erase_if(names, [&](const auto& name) { return !is_checkpointed(options, name); });
  return names;
}

TEST(IsCheckpointed, FollowsTheTierUnlessALayerIsNamed) {
  auto options = options_of_every_layer();
  EXPECT_THAT(checkpointed_layers(options), IsEmpty());
  options.checkpointing = Checkpointing::kMinimal;
  EXPECT_THAT(checkpointed_layers(options), ElementsAre("lstm_encoder", "lstm_decoder"));
  options.checkpointing = Checkpointing::kAggressive;
  EXPECT_THAT(checkpointed_layers(options),
              ElementsAre("static_encoder", "historical_encoder", "future_encoder", "lstm_encoder",
                          "lstm_decoder", "temporal_attention"));
  options.checkpointing = Checkpointing::kMinimal;
  options.checkpoint_layers = {{"lstm_decoder", false}, {"quantile", true}};
  EXPECT_THAT(checkpointed_layers(options), ElementsAre("lstm_encoder", "quantile"));
}

}  // namespace
}  // namespace reprise
