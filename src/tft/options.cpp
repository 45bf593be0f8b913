// SPDX-License-Identifier: Apache-2.0
#include "reprise/tft.h"
#include "tft/require_internal.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>

namespace reprise {
namespace {

using detail::require;

// Beyond these no machine trains the model, and building it would take the memory of all.
constexpr std::int64_t kMaxWidth = 16384;
constexpr std::int64_t kMaxLstmLayers = 64;

void require_cardinalities(const std::vector<std::int64_t>& cardinalities, const char* field) {
  for (auto cardinality : cardinalities)
    require(cardinality >= 1, field, "at least 1 category", cardinality);
}

void require_known_layers(const TftOptions& options) {
  const auto names = layer_names(options);
  for (const auto& [layer, is_on] : options.checkpoint_layers) {
    if (std::find(names.begin(), names.end(), layer) != names.end()) continue;
    throw OptionError("checkpoint_layer", c10::str("checkpoint_layer: the model has no layer '",
                                                   layer, "'; it has ", c10::Join(", ", names)));
  }
}

bool is_in_tier(Checkpointing tier, const std::string& layer) {
  const bool is_lstm = layer == "lstm_encoder" || layer == "lstm_decoder";
  switch (tier) {
    case Checkpointing::kOff:
    case Checkpointing::kAuto:
      return false;
    case Checkpointing::kMinimal:
      return is_lstm;
    case Checkpointing::kAggressive:
      return is_lstm || layer == "static_encoder" || layer == "historical_encoder" ||
             layer == "future_encoder" || layer == "temporal_attention";
  }
  return false;
}

}  // namespace

std::int64_t TftOptions::static_variables() const {
  return static_reals + std::ssize(static_cardinalities);
}

std::int64_t TftOptions::historical_variables() const {
  return observed_reals + std::ssize(observed_cardinalities) + future_variables();
}

std::int64_t TftOptions::future_variables() const {
  return known_reals + std::ssize(known_cardinalities);
}

void TftOptions::validate() const {
  require(encoder_length >= 1, "encoder", "at least 1 sample", encoder_length);
  require(horizon >= 1, "horizon", "at least 1 sample", horizon);
  require(hidden_size >= 1, "hidden", "at least 1", hidden_size);
  require(hidden_size <= kMaxWidth, "hidden", "at most 16384", hidden_size);
  require(attention_heads >= 1, "heads", "at least 1", attention_heads);
  require(hidden_size % attention_heads == 0, "heads",
          c10::str("a divisor of hidden (", hidden_size, ")").c_str(), attention_heads);
  require(lstm_layers >= 1 && lstm_layers <= kMaxLstmLayers, "lstm_layers", "1 to 64", lstm_layers);
  require(dropout >= 0.0 && dropout < 1.0, "dropout", "a number in [0, 1)", dropout);
  require(!quantiles.empty(), "quantiles", "at least one", "empty");
  for (double quantile : quantiles)
    require(quantile > 0.0 && quantile < 1.0, "quantiles", "numbers in (0, 1)", quantile);
  require(std::adjacent_find(quantiles.begin(), quantiles.end(), std::greater_equal<>()) ==
              quantiles.end(),
          "quantiles", "ascending numbers", c10::Join(",", quantiles));
  require(variable_width >= 0 && variable_width <= kMaxWidth, "variable_width",
          "0 (as hidden) to 16384", variable_width);
  require(std::isfinite(layer_norm_epsilon) && layer_norm_epsilon > 0.0, "layer_norm_epsilon",
          "a positive number", layer_norm_epsilon);
  require(static_reals >= 0, "static_reals", "0 or more", static_reals);
  require(known_reals >= 0, "known_reals", "0 or more", known_reals);
  require(observed_reals >= 0, "observed_reals", "0 or more", observed_reals);
  require_cardinalities(static_cardinalities, "static_cardinalities");
  require_cardinalities(known_cardinalities, "known_cardinalities");
  require_cardinalities(observed_cardinalities, "observed_cardinalities");
  require(historical_variables() >= 1, "observed_reals", "at least one observed or known variable",
          observed_reals);
  require_known_layers(*this);
}

std::vector<std::string> layer_names(const TftOptions& options) {
  const bool has_static = options.static_variables() > 0;
  const bool has_known = options.future_variables() > 0;
  std::vector<std::string> names;
  const auto add_if = [&](bool exists, const char* name) {
    if (exists) names.emplace_back(name);
  };
  add_if(has_static, "static_vsn");
  add_if(has_static, "static_encoder");
  add_if(true, "historical_vsn");
  add_if(options.encoder_grn, "historical_encoder");
  add_if(has_known, "future_vsn");
  add_if(options.encoder_grn && has_known, "future_encoder");
  for (const char* name : {"lstm_encoder", "lstm_decoder", "gate", "enrichment",
                           "temporal_attention", "positionwise", "quantile"}) {
    names.emplace_back(name);
  }
  return names;
}

bool is_checkpointed(const TftOptions& options, const std::string& layer) {
  const auto choice = options.checkpoint_layers.find(layer);
  return choice == options.checkpoint_layers.end() ? is_in_tier(options.checkpointing, layer)
                                                   : choice->second;
}

}  // namespace reprise
