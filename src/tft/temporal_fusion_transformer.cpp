// SPDX-License-Identifier: Apache-2.0
#include "reprise/tft.h"

#include "autograd/forward_context.h"
#include "tft/layer_runner.h"
#include "tft/layers.h"

#include <torch/torch.h>

#include <iterator>
#include <utility>

namespace reprise {

using detail::Embedding;
using detail::GateAddNorm;
using detail::GatedResidualNetwork;
using detail::InterpretableAttention;
using detail::StaticEncoder;
using detail::VariableSelection;
using torch::Tensor;

namespace {

/// Glorot input weights, orthogonal recurrent weights, forget gate open (bias 1): as the original
/// implementation's.
torch::nn::LSTM make_lstm(const TftOptions& options) {
  const auto size = options.hidden_size;
  torch::nn::LSTM lstm(
      torch::nn::LSTMOptions(size, size).num_layers(options.lstm_layers).batch_first(true));
  const torch::NoGradGuard no_grad;
  for (auto& item : lstm->named_parameters()) {
    auto& parameter = item.value();
    if (item.key().starts_with("weight_ih")) {
      for (auto& gate : parameter.chunk(4)) torch::nn::init::xavier_uniform_(gate);
    } else if (item.key().starts_with("weight_hh")) {
      for (auto& gate : parameter.chunk(4)) torch::nn::init::orthogonal_(gate);
    } else {
      parameter.zero_();
      if (item.key().starts_with("bias_ih")) parameter.narrow(0, size, size).fill_(1.0);
    }
  }
  return lstm;
}

}  // namespace

TemporalFusionTransformerImpl::TemporalFusionTransformerImpl(TftOptions options)
    : options_(std::move(options)) {
  options_.validate();
  make_layers();
}

std::shared_ptr<torch::nn::Module> TemporalFusionTransformerImpl::clone(
    const std::optional<torch::Device>& device) const {
  const detail::RandomState random_state;  // the copy's first weights are drawn in vain
  auto copy = std::make_shared<TemporalFusionTransformerImpl>(options_);
  random_state.restore();
  const auto from = parameters();
  copy->to(from[0].scalar_type());
  copy->to(device.value_or(from[0].device()));
  copy->train(is_training());
  const torch::NoGradGuard no_grad;
  auto to = copy->parameters();
  for (std::size_t i = 0; i < from.size(); ++i) to[i].copy_(from[i]);
  return copy;
}

void TemporalFusionTransformerImpl::make_layers() {
  const auto& o = options_;
  const auto width = o.variable_width > 0 ? o.variable_width : o.hidden_size;
  const bool has_static = o.static_variables() > 0;
  const bool has_known = o.future_variables() > 0;
  const auto known_categoricals = std::ssize(o.known_cardinalities);
  const auto make_embedding = [&](const char* name, std::int64_t reals,
                                  const std::vector<std::int64_t>& cardinalities) {
    return register_module(name, Embedding(reals, width, cardinalities, o.hidden_size));
  };
  const auto make_vsn = [&](const char* name, std::int64_t reals, std::int64_t categoricals,
                            bool has_context) {
    const detail::VariableSelectionShape shape{reals, categoricals, width, o.hidden_size,
                                               has_context};
    return register_module(name, VariableSelection(shape, o.dropout, o.layer_norm_epsilon));
  };
  const auto make_grn = [&](const char* name, bool has_context) {
    const detail::GrnShape shape{o.hidden_size, o.hidden_size, o.hidden_size, has_context};
    return register_module(name, GatedResidualNetwork(shape, o.dropout, o.layer_norm_epsilon));
  };
  const auto make_gate = [&](const char* name, double dropout) {
    return register_module(name, GateAddNorm(o.hidden_size, dropout, o.layer_norm_epsilon));
  };

  layers_ = std::make_shared<TftLayers>();
  auto& l = *layers_;
  l.static_embedding = make_embedding("static_embedding", o.static_reals, o.static_cardinalities);
  l.known_embedding = make_embedding("known_embedding", o.known_reals, o.known_cardinalities);
  l.observed_embedding =
      make_embedding("observed_embedding", o.observed_reals, o.observed_cardinalities);
  if (has_static) {
    l.static_vsn =
        make_vsn("static_vsn", o.static_reals, std::ssize(o.static_cardinalities), false);
    const detail::GrnShape shape{o.hidden_size, o.hidden_size, o.hidden_size, false};
    l.static_encoder =
        register_module("static_encoder", StaticEncoder(shape, o.dropout, o.layer_norm_epsilon));
  }
  l.historical_vsn =
      make_vsn("historical_vsn", o.observed_reals + o.known_reals,
               std::ssize(o.observed_cardinalities) + known_categoricals, has_static);
  if (has_known)
    l.future_vsn = make_vsn("future_vsn", o.known_reals, known_categoricals, has_static);
  if (o.encoder_grn) l.historical_encoder = make_grn("historical_encoder", false);
  if (o.encoder_grn && has_known) l.future_encoder = make_grn("future_encoder", false);
  l.lstm_encoder = register_module("lstm_encoder", make_lstm(o));
  l.lstm_decoder = register_module("lstm_decoder", make_lstm(o));
  l.lstm_gate = make_gate("lstm_gate", o.dropout);
  l.enrichment = make_grn("enrichment", has_static);
  l.attention =
      register_module("attention", InterpretableAttention(o.hidden_size, o.attention_heads));
  l.attention_gate = make_gate("attention_gate", o.dropout);
  l.positionwise = make_grn("positionwise", false);
  l.output_gate = make_gate("output_gate", 0.0);  // eq. 22 has no dropout
  l.quantile =
      register_module("quantile", detail::make_linear(o.hidden_size, std::ssize(o.quantiles)));
}

Tensor TemporalFusionTransformerImpl::forward(const TftInput& input) {
  return interpret(input).quantiles;
}

TftOutput TemporalFusionTransformerImpl::interpret(const TftInput& input) {
  return detail::interpret_with(*this, input, detail::checkpointing_runner(options_));
}

void TemporalFusionTransformerImpl::set_checkpoint_layers(std::map<std::string, bool> layers) {
  auto options = options_;
  options.checkpoint_layers = std::move(layers);
  options.validate();
  options_ = std::move(options);
}

}  // namespace reprise
