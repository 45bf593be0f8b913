// SPDX-License-Identifier: Apache-2.0
// The model against the reference in tests/golden: forecast, weights, attention, loss and every
// gradient.
#include "reprise/quantile_loss.h"
#include "reprise/safetensors.h"
#include "reprise/tft.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <filesystem>
#include <map>
#include <set>
#include <sstream>

namespace reprise {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = fs::path(REPRISE_TEST_DIR) / "golden";

const std::vector<std::string> kCases = {
    "all_kinds",        "targets_only",     "no_known",
    "no_static",        "no_categorical",   "categorical_only",
    "two_lstm_layers",  "encoder_grn",      "encoder_grn_no_known",
    "variable_width_3", "variable_width_1", "one_variable",
    "two_variables",    "other_sizes",
};

/// How far a tensor may be from the reference: `relative` to its largest value, which counts as at
/// least `floor`.
struct Tolerance {
  torch::ScalarType type;
  double relative;
  double floor;
};

// Gradients are down to 1e-4 where they are the sum of terms near 1, whose rounding stays.
constexpr Tolerance kFloat64 = {torch::kFloat64, 1e-10, 1e-3};
constexpr Tolerance kFloat32 = {torch::kFloat32, 1e-5, 1.0};

template <typename T>
std::vector<T> list_of(const std::string& text) {
  std::vector<T> values;
  std::istringstream stream(text);
  for (std::string item; std::getline(stream, item, ',');)
    values.push_back(static_cast<T>(std::stod(item)));
  return values;
}

TftOptions options_of(const std::map<std::string, std::string>& metadata) {
  const auto integer = [&](const char* key) {
    return std::int64_t{std::stoll(metadata.at(key))};
  };
  const auto integers = [&](const char* key) {
    return list_of<std::int64_t>(metadata.at(key));
  };
  TftOptions options;
  options.encoder_length = integer("encoder_length");
  options.horizon = integer("horizon");
  options.hidden_size = integer("hidden_size");
  options.attention_heads = integer("attention_heads");
  options.lstm_layers = integer("lstm_layers");
  options.dropout = 0.0;
  options.quantiles = list_of<double>(metadata.at("quantiles"));
  options.variable_width = integer("variable_width");
  options.encoder_grn = integer("encoder_grn") != 0;
  options.layer_norm_epsilon = std::stod(metadata.at("layer_norm_epsilon"));
  options.static_reals = integer("static_reals");
  options.known_reals = integer("known_reals");
  options.observed_reals = integer("observed_reals");
  options.static_cardinalities = integers("static_cardinalities");
  options.known_cardinalities = integers("known_cardinalities");
  options.observed_cardinalities = integers("observed_cardinalities");
  return options;
}

/// A fixture, and the model of the same shape with the same parameters.
class Fixture {
 public:
  Fixture(const std::string& name, const Tolerance& tolerance)
      : file_(load_safetensors(kGolden / ("tft_" + name + ".safetensors"))),
        tolerance_(tolerance),
        model(options_of(file_.metadata)) {
    model->to(tolerance.type);
    const torch::NoGradGuard no_grad;
    for (const auto& parameter : model->named_parameters()) {
      const auto found = file_.tensors.find(parameter.key());
      if (found == file_.tensors.end() || found->second.sizes() != parameter.value().sizes()) {
        ADD_FAILURE() << name << ": the reference has no " << parameter.key() << ' '
                      << parameter.value().sizes();
        continue;
      }
      parameter.value().copy_(found->second);
    }
  }

  /// `name` in the type of the model; undefined where the case does not have it.
  torch::Tensor tensor(const std::string& name) const {
    const auto found = file_.tensors.find(name);
    if (found == file_.tensors.end()) return {};
    return found->second.is_floating_point() ? found->second.to(tolerance_.type) : found->second;
  }

  TftInput input() const {
    return {tensor("input.static_real"),   tensor("input.static_categorical"),
            tensor("input.observed_real"), tensor("input.observed_categorical"),
            tensor("input.known_real"),    tensor("input.known_categorical")};
  }

  std::set<std::string> parameter_names() const {
    std::set<std::string> names;
    for (const auto& [name, unused] : file_.tensors) {
      const bool is_other =
          name.starts_with("input.") || name.starts_with("expected.") || name.starts_with("grad.");
      if (!is_other && name != "target" && name != "mask") names.insert(name);
    }
    return names;
  }

  void expect_equal(const torch::Tensor& actual, const std::string& name) const {
    const auto found = file_.tensors.find(name);
    if (found == file_.tensors.end()) {
      EXPECT_FALSE(actual.defined())
          << name << " is not in the reference, but the model has " << actual.sizes();
      return;
    }
    const torch::Tensor& expected = found->second;
    ASSERT_TRUE(actual.defined()) << name;
    ASSERT_EQ(actual.scalar_type(), tolerance_.type) << name;
    ASSERT_EQ(actual.sizes(), expected.sizes()) << name;
    const double largest = std::max(expected.abs().max().item<double>(), tolerance_.floor);
    const double error =
        (actual.detach().to(torch::kFloat64) - expected).abs().max().item<double>();
    EXPECT_LE(error, tolerance_.relative * largest)
        << name << ", largest value " << largest;  // false for NaN
  }

  /// Runs forward and backward and compares the forecast, both losses and the gradient of every
  /// parameter.
  void expect_equal_training_step() {
    model->train();
    const torch::Tensor prediction = model->forward(input());
    expect_equal(prediction, "expected.quantiles");
    const auto& quantiles = model->options().quantiles;
    expect_equal(quantile_loss(prediction, tensor("target"), quantiles, tensor("mask")),
                 "expected.masked_loss");
    const torch::Tensor loss = quantile_loss(prediction, tensor("target"), quantiles);
    expect_equal(loss, "expected.loss");
    loss.backward();
    for (const auto& parameter : model->named_parameters()) {
      const torch::Tensor& gradient = parameter.value().grad();
      // No gradient is the same as zeros: the loss does not depend on the parameter.
      expect_equal(gradient.defined() ? gradient : torch::zeros_like(parameter.value()),
                   "grad." + parameter.key());
    }
  }

 private:
  SafetensorsFile file_;
  Tolerance tolerance_;

 public:
  TemporalFusionTransformer model;
};

class TftParity : public testing::TestWithParam<std::string> {};

TEST_P(TftParity, HasTheParametersOfTheReference) {
  const Fixture fixture(GetParam(), kFloat64);
  std::set<std::string> names;
  for (const auto& parameter : fixture.model->named_parameters()) names.insert(parameter.key());
  EXPECT_EQ(names, fixture.parameter_names());
}

TEST_P(TftParity, ForecastsAndExplainsAsTheReference) {
  for (const Tolerance& tolerance : {kFloat32, kFloat64}) {
    SCOPED_TRACE(toString(tolerance.type));
    Fixture fixture(GetParam(), tolerance);
    fixture.model->eval();
    const torch::NoGradGuard no_grad;
    const TftOutput output = fixture.model->interpret(fixture.input());
    fixture.expect_equal(output.quantiles, "expected.quantiles");
    fixture.expect_equal(output.attention, "expected.attention");
    fixture.expect_equal(output.static_weights, "expected.static_weights");
    fixture.expect_equal(output.historical_weights, "expected.historical_weights");
    fixture.expect_equal(output.future_weights, "expected.future_weights");
    fixture.expect_equal(fixture.model->forward(fixture.input()), "expected.quantiles");
  }
}

TEST_P(TftParity, HasTheLossAndGradientsOfTheReference) {
  for (const Tolerance& tolerance : {kFloat32, kFloat64}) {
    SCOPED_TRACE(toString(tolerance.type));
    Fixture(GetParam(), tolerance).expect_equal_training_step();
  }
}

TEST_P(TftParity, HasTheSameGradientsWithCheckpointing) {
  for (const Tolerance& tolerance : {kFloat32, kFloat64}) {
    SCOPED_TRACE(toString(tolerance.type));
    Fixture fixture(GetParam(), tolerance);
    fixture.model->set_checkpointing(Checkpointing::kAggressive);
    fixture.expect_equal_training_step();
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, TftParity, testing::ValuesIn(kCases),
                         [](const auto& test) { return test.param; });

TEST(TftParityCases, AreAllThatTheGeneratorWrote) {
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator(kGolden)) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() == ".safetensors" && name.starts_with("tft_"))
      found.insert(name.substr(4));
  }
  EXPECT_EQ(found, std::set<std::string>(kCases.begin(), kCases.end()));
}

}  // namespace
}  // namespace reprise
