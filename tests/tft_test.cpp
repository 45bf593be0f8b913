// SPDX-License-Identifier: Apache-2.0
#include "reprise/tft.h"

#include "reprise/errors.h"
#include "reprise/quantile_loss.h"
#include "tests/testing.h"
#include "tests/tft_models.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>
#include <torch/torch.h>

namespace reprise {
namespace {

using testing::all_layers;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::one_step;
using testing::random_input;
using testing::small_options;
using torch::Tensor;

std::int64_t parameter_count(const TftOptions& options) {
  std::int64_t count = 0;
  for (const auto& parameter : TemporalFusionTransformer(options)->parameters())
    count += parameter.numel();
  return count;
}

TEST(TemporalFusionTransformer, HasTheCanonicalParameterCount) {
  // Four historical variables (one observed, three known), three future ones, one static category
  // of 369: hidden 128, 4 heads, 3 quantiles. 1,633,833 of NVIDIA's implementation without its
  // 16,384 unused weights.
  TftOptions options{.hidden_size = 128, .attention_heads = 4};
  options.observed_reals = 1;
  options.known_reals = 3;
  options.static_cardinalities = {369};
  EXPECT_EQ(parameter_count(options), 1'617'449);
}

TEST(TemporalFusionTransformer, UpdatesEveryParameterInOneStep) {
  for (bool encoder_grn : {false, true}) {
    torch::manual_seed(3);
    auto options = small_options();
    options.encoder_grn = encoder_grn;
    options.lstm_layers = 2;
    TemporalFusionTransformer model(options);
    std::vector<Tensor> before;
    for (const auto& parameter : model->parameters()) before.push_back(parameter.detach().clone());
    torch::optim::Adam adam(model->parameters(), torch::optim::AdamOptions(1e-2));
    quantile_loss(model->forward(random_input(options, 64)), torch::randn({64, 3}),
                  options.quantiles)
        .backward();
    adam.step();
    const auto named = model->named_parameters();
    for (std::size_t i = 0; i < before.size(); ++i) {
      EXPECT_FALSE(torch::equal(before[i], named[i].value())) << named[i].key();
    }
  }
}

TEST(TemporalFusionTransformer, DoesNotSeeTheFutureOfAStep) {
  torch::manual_seed(5);
  const auto options = small_options();
  TemporalFusionTransformer model(options);
  model->eval();
  const torch::NoGradGuard no_grad;
  auto input = random_input(options, 2);
  const auto before = model->forward(input);
  input.known_real = input.known_real.clone();
  input.known_real.narrow(1, options.encoder_length + 2, 1).add_(1);  // the third forecast step
  const auto after = model->forward(input);
  EXPECT_TRUE(torch::equal(before.narrow(1, 0, 2), after.narrow(1, 0, 2)));
  EXPECT_FALSE(torch::equal(before.narrow(1, 2, 1), after.narrow(1, 2, 1)));
}

TEST(TemporalFusionTransformer, ExplainsItsForecast) {
  torch::manual_seed(6);
  const auto options = small_options();
  TemporalFusionTransformer model(options);
  model->eval();
  const torch::NoGradGuard no_grad;
  const auto output = model->interpret(random_input(options, 4));
  const auto sums_to_one = [](const Tensor& weights) {
    return torch::allclose(weights.sum(-1), torch::ones({}));
  };
  EXPECT_THAT(output.static_weights.sizes().vec(), ElementsAre(4, 3));
  EXPECT_THAT(output.historical_weights.sizes().vec(), ElementsAre(4, 6, 6));
  EXPECT_THAT(output.future_weights.sizes().vec(), ElementsAre(4, 3, 3));
  EXPECT_THAT(output.attention.sizes().vec(), ElementsAre(4, 2, 3, 9));
  EXPECT_TRUE(sums_to_one(output.static_weights));
  EXPECT_TRUE(sums_to_one(output.historical_weights));
  EXPECT_TRUE(sums_to_one(output.future_weights));
  EXPECT_TRUE(sums_to_one(output.attention));
  EXPECT_EQ(output.attention.triu(7).abs().sum().item<float>(),
            0.0F);  // E + 1: each step's own future
}

TEST(TemporalFusionTransformer, IsTheSameForTheSameSeed) {
  const auto make = [] {
    torch::manual_seed(9);
    return TemporalFusionTransformer(small_options());
  };
  const auto a = make();
  const auto b = make();
  for (std::size_t i = 0; i < a->parameters().size(); ++i) {
    EXPECT_TRUE(torch::equal(a->parameters()[i], b->parameters()[i]));
  }
}

TEST(TemporalFusionTransformer, CanBeCloned) {
  TemporalFusionTransformer model(small_options());
  model->eval();
  torch::manual_seed(8);
  const auto next = torch::rand({1});
  torch::manual_seed(8);
  auto copy = std::dynamic_pointer_cast<TemporalFusionTransformerImpl>(model->clone());
  EXPECT_TRUE(torch::equal(torch::rand({1}), next));
  copy->eval();
  const auto input = random_input(small_options(), 2);
  EXPECT_TRUE(torch::equal(model->forward(input), copy->forward(input)));
  const torch::NoGradGuard no_grad;
  for (auto& parameter : copy->parameters()) parameter.add_(1);
  EXPECT_FALSE(torch::equal(model->forward(input), copy->forward(input)));
}

TEST(TemporalFusionTransformer, NamesTheInputThatIsWrong) {
  const auto options = small_options();
  TemporalFusionTransformer model(options);
  auto input = random_input(options, 2);
  input.known_real = torch::randn({2, 8, 1});
  EXPECT_THAT(testing::error_of([&] { model->forward(input); }),
              HasSubstr("expected input known_real [2, 9, 1]"));
  input = random_input(options, 2);
  input.static_categorical = Tensor();
  EXPECT_THAT(testing::error_of([&] { model->forward(input); }),
              HasSubstr("static_categorical is missing"));
}

TEST(TftOptions, NamesTheFieldThatIsOutOfRange) {
  const auto field_of = [](auto change) -> std::string {
    auto options = small_options();
    change(options);
    try {
      options.validate();
    } catch (const OptionError& error) {
      return error.field();
    }
    return "";
  };
  EXPECT_EQ(field_of([](TftOptions&) {}), "");
  EXPECT_EQ(field_of([](TftOptions& o) { o.attention_heads = 3; }), "heads");
  EXPECT_EQ(field_of([](TftOptions& o) { o.dropout = 1.0; }), "dropout");
  EXPECT_EQ(field_of([](TftOptions& o) { o.dropout = std::nan(""); }), "dropout");
  EXPECT_EQ(field_of([](TftOptions& o) { o.quantiles = {0.5, 0.1}; }), "quantiles");
  EXPECT_EQ(field_of([](TftOptions& o) { o.quantiles = {}; }), "quantiles");
  EXPECT_EQ(field_of([](TftOptions& o) { o.horizon = 0; }), "horizon");
  EXPECT_EQ(field_of([](TftOptions& o) { o.known_cardinalities = {0}; }), "known_cardinalities");
}

TEST(LayerNames, CoverTheLayersThatExist) {
  EXPECT_THAT(layer_names(small_options()), Contains("static_vsn"));
  EXPECT_THAT(layer_names({}),
              ElementsAre("historical_vsn", "lstm_encoder", "lstm_decoder", "gate", "enrichment",
                          "temporal_attention", "positionwise", "quantile"));
}

/// Every combination of input kinds: each present (0, 1 or 2 variables) or absent.
RC_GTEST_PROP(TemporalFusionTransformer, WorksWithAnyCombinationOfInputs, ()) {
  const auto count = [] {
    return *rc::gen::inRange<std::int64_t>(0, 3);
  };
  const auto cardinalities = [&] {
    return std::vector<std::int64_t>(static_cast<std::size_t>(count()), 3);
  };
  TftOptions options{.encoder_length = 4, .horizon = 2, .hidden_size = 4, .attention_heads = 2};
  options.static_reals = count();
  options.known_reals = count();
  options.observed_reals = *rc::gen::inRange<std::int64_t>(1, 3);
  options.static_cardinalities = cardinalities();
  options.known_cardinalities = cardinalities();
  options.observed_cardinalities = cardinalities();
  options.lstm_layers = *rc::gen::inRange<std::int64_t>(1, 3);
  options.variable_width = *rc::gen::element<std::int64_t>(0, 3, 4);
  options.encoder_grn = *rc::gen::arbitrary<bool>();
  TemporalFusionTransformer model(options);
  const auto input = random_input(options, 3);
  const auto plain = one_step(model, input, Checkpointing::kOff);
  const auto recomputed = one_step(model, input, Checkpointing::kAggressive);
  const auto all_recomputed = one_step(model, input, Checkpointing::kOff, all_layers(options));
  for (std::size_t i = 0; i < plain.size(); ++i) {
    RC_ASSERT(plain[i].second.defined());
    RC_ASSERT(plain[i].second.isfinite().all().template item<bool>());
    RC_ASSERT(testing::is_same_bytes(plain[i].second, recomputed[i].second));
    RC_ASSERT(testing::is_same_bytes(plain[i].second, all_recomputed[i].second));
  }
}

TEST(QuantileLoss, SumsOverQuantilesAndAveragesTheRest) {
  const auto prediction = torch::tensor({{{1.0, 2.0}, {3.0, 5.0}}});  // [1, 2, 2]
  const auto target = torch::tensor({{2.0, 4.0}});
  // q = .1: .1 * (2 - 1) = .1 and .1 * (4 - 3) = .1; q = .9: 0 and .1 * (5 - 4) = .1; (.1 + .1 + 0
  // + .1) / 2 = .15
  EXPECT_NEAR(quantile_loss(prediction, target, {0.1, 0.9}).item<double>(), 0.15, 1e-7);
  // The second step alone: .1 + .1 = .2
  const auto mask = torch::tensor({{0.0, 1.0}});
  EXPECT_NEAR(quantile_loss(prediction, target, {0.1, 0.9}, mask).item<double>(), 0.2, 1e-7);
  const auto with_gap = torch::tensor({{std::nan(""), 4.0}});
  EXPECT_NEAR(quantile_loss(prediction, with_gap, {0.1, 0.9}, mask).item<double>(), 0.2, 1e-7);
}

TEST(QuantileLoss, RefusesWrongShapes) {
  EXPECT_THAT(testing::error_of(
                  [] { quantile_loss(torch::zeros({2, 3, 1}), torch::zeros({2, 3}), {0.1, 0.9}); }),
              HasSubstr("expected prediction [B, H, 2]"));
  EXPECT_THAT(testing::error_of([] {
                quantile_loss(torch::zeros({2, 3, 1}), torch::zeros({2, 3}), {0.5},
                              torch::ones({2, 1}));
              }),
              HasSubstr("expected mask [2, 3]"));
}

TEST(QuantileRisk, IsARatioOfSumsOverAllBatches) {
  QuantileRisk risk({0.5});
  risk.add(torch::tensor({{{1.0}, {2.0}}}), torch::tensor({{2.0, 2.0}}));
  risk.add(torch::tensor({{{9.0}, {6.0}}}), torch::tensor({{8.0, 8.0}}));
  // 2 * (.5 * 1 + 0 + .5 * 1 + .5 * 2) / (2 + 2 + 8 + 8) = 4 / 20
  EXPECT_THAT(risk.risk(), ElementsAre(::testing::DoubleEq(0.2)));
  EXPECT_THAT(risk.coverage(), ElementsAre(0.5));  // 2 <= 2 and 8 <= 9 of 4
}

}  // namespace
}  // namespace reprise
