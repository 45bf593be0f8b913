// SPDX-License-Identifier: Apache-2.0
#include "autograd/forward_context.h"
#include "reprise/checkpoint.h"
#include "reprise/tft.h"
#include "tft/attention.h"
#include "tft/embedding.h"
#include "tft/gated_residual_network.h"
#include "tft/variable_selection.h"

#include <torch/torch.h>

#include <iterator>
#include <utility>

namespace reprise {

using detail::EmbeddedVariables;
using detail::Embedding;
using detail::GateAddNorm;
using detail::GatedResidualNetwork;
using detail::InterpretableAttention;
using detail::VariableSelection;
using torch::Tensor;

/// The four contexts of the static variables: c_s, c_e, c_h, c_c.
struct StaticEncoderImpl : torch::nn::Module {
  StaticEncoderImpl(const detail::GrnShape& shape, double dropout, double epsilon) {
    for (const char* name : {"selection", "enrichment", "hidden_state", "cell_state"}) {
      contexts.push_back(register_module(name, GatedResidualNetwork(shape, dropout, epsilon)));
    }
  }
  std::vector<GatedResidualNetwork> contexts;
};
TORCH_MODULE(StaticEncoder);

struct TftLayers {
  Embedding static_embedding{nullptr};
  Embedding known_embedding{nullptr};
  Embedding observed_embedding{nullptr};
  VariableSelection static_vsn{nullptr};
  VariableSelection historical_vsn{nullptr};
  VariableSelection future_vsn{nullptr};
  StaticEncoder static_encoder{nullptr};
  GatedResidualNetwork historical_encoder{nullptr};
  GatedResidualNetwork future_encoder{nullptr};
  torch::nn::LSTM lstm_encoder{nullptr};
  torch::nn::LSTM lstm_decoder{nullptr};
  GateAddNorm lstm_gate{nullptr};
  GatedResidualNetwork enrichment{nullptr};
  InterpretableAttention attention{nullptr};
  GateAddNorm attention_gate{nullptr};
  GatedResidualNetwork positionwise{nullptr};
  GateAddNorm output_gate{nullptr};
  torch::nn::Linear quantile{nullptr};
};

namespace {

using Tensors = std::vector<Tensor>;

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

void check_input(const Tensor& tensor, const char* name,
                 const std::vector<std::int64_t>& expected) {
  if (expected.back() == 0) return;
  TORCH_CHECK_VALUE(tensor.defined(), "TemporalFusionTransformer: input ", name,
                    " is missing, expected ", at::IntArrayRef(expected));
  TORCH_CHECK_VALUE(tensor.sizes() == at::IntArrayRef(expected),
                    "TemporalFusionTransformer: expected input ", name, " ",
                    at::IntArrayRef(expected), ", got ", tensor.sizes());
}

std::int64_t batch_size_of(const TftInput& input) {
  for (const auto* tensor : {&input.observed_real, &input.known_real, &input.observed_categorical,
                             &input.known_categorical}) {
    if (tensor->defined()) return tensor->size(0);
  }
  TORCH_CHECK_VALUE(false, "TemporalFusionTransformer: no temporal input is given");
}

void check_inputs(const TftInput& input, const TftOptions& o) {
  const auto batch = batch_size_of(input);
  const auto steps = o.encoder_length + o.horizon;
  check_input(input.static_real, "static_real", {batch, o.static_reals});
  check_input(input.static_categorical, "static_categorical",
              {batch, std::ssize(o.static_cardinalities)});
  check_input(input.observed_real, "observed_real", {batch, o.encoder_length, o.observed_reals});
  check_input(input.observed_categorical, "observed_categorical",
              {batch, o.encoder_length, std::ssize(o.observed_cardinalities)});
  check_input(input.known_real, "known_real", {batch, steps, o.known_reals});
  check_input(input.known_categorical, "known_categorical",
              {batch, steps, std::ssize(o.known_cardinalities)});
}

/// One forward pass: the intermediate values that several layers read.
class ForwardPass {
 public:
  ForwardPass(TftLayers& layers, const TftOptions& options, const TftInput& input)
      : layers_(layers), options_(options), input_(input) {}

  TftOutput run() {
    encode_static();
    auto history = select_history();
    auto future = select_future(history);
    const auto selected = torch::cat({history, future}, 1);
    const auto steps = layers_.lstm_gate->forward(run_lstms(history, future), selected);
    const auto enriched = layers_.enrichment->forward(steps, context(kEnrichment));
    const auto attended = attend(enriched);
    const auto last_steps = steps.narrow(1, options_.encoder_length, options_.horizon);
    const auto decoded =
        layers_.output_gate->forward(layers_.positionwise->forward(attended), last_steps);
    output_.quantiles = layers_.quantile->forward(decoded);
    return std::move(output_);
  }

 private:
  enum Context { kSelection, kEnrichment, kHiddenState, kCellState };

  /// Runs a layer, as a checkpointed region where the tier says so.
  Tensors run_layer(CheckpointFunction function, Tensors inputs) {
    if (options_.checkpointing == Checkpointing::kOff) return function(inputs);
    return checkpoint(std::move(function), std::move(inputs));
  }

  Tensor context(Context which) const { return contexts_.empty() ? Tensor() : contexts_[which]; }

  void encode_static() {
    if (!layers_.static_vsn) return;
    auto selection = layers_.static_vsn->forward(
        detail::embed({{layers_.static_embedding, input_.static_real, input_.static_categorical}}));
    output_.static_weights = selection.weights;
    contexts_ = run_layer(
        [encoder = layers_.static_encoder](const Tensors& in) {
          Tensors contexts;
          for (auto grn : encoder->contexts) contexts.push_back(grn->forward(in[0]));
          return contexts;
        },
        {selection.value});
  }

  Tensor past(const Tensor& known) const {
    return known.defined() ? known.narrow(1, 0, options_.encoder_length) : known;
  }
  Tensor future(const Tensor& known) const {
    return known.defined() ? known.narrow(1, options_.encoder_length, options_.horizon) : known;
  }

  Tensor encode(GatedResidualNetwork& encoder, const Tensor& value) {
    if (!encoder) return value;
    return run_layer(
        [encoder](const Tensors& in) mutable { return Tensors{encoder->forward(in[0])}; },
        {value})[0];
  }

  Tensor select_history() {
    auto selection = layers_.historical_vsn->forward(
        detail::embed(
            {{layers_.observed_embedding, input_.observed_real, input_.observed_categorical},
             {layers_.known_embedding, past(input_.known_real), past(input_.known_categorical)}}),
        context(kSelection));
    output_.historical_weights = selection.weights;
    return encode(layers_.historical_encoder, selection.value);
  }

  Tensor select_future(const Tensor& history) {
    if (!layers_.future_vsn)
      return history.new_zeros({history.size(0), options_.horizon, options_.hidden_size});
    auto selection = layers_.future_vsn->forward(
        detail::embed({{layers_.known_embedding, future(input_.known_real),
                        future(input_.known_categorical)}}),
        context(kSelection));
    output_.future_weights = selection.weights;
    return encode(layers_.future_encoder, selection.value);
  }

  Tensor initial_state(Context which, const Tensor& history) const {
    const auto layers = options_.lstm_layers;
    if (contexts_.empty())
      return history.new_zeros({layers, history.size(0), options_.hidden_size});
    return contexts_[which].unsqueeze(0).expand({layers, -1, -1}).contiguous();
  }

  static CheckpointFunction lstm_function(torch::nn::LSTM lstm) {
    return [lstm](const Tensors& in) mutable {
      auto [value, state] = lstm->forward(in[0], std::make_tuple(in[1], in[2]));
      return Tensors{value, std::get<0>(state), std::get<1>(state)};
    };
  }

  Tensor run_lstms(const Tensor& history, const Tensor& future) {
    const auto encoded = run_layer(
        lstm_function(layers_.lstm_encoder),
        {history, initial_state(kHiddenState, history), initial_state(kCellState, history)});
    const auto decoded =
        run_layer(lstm_function(layers_.lstm_decoder), {future, encoded[1], encoded[2]});
    return torch::cat({encoded[0], decoded[0]}, 1);
  }

  Tensor attend(const Tensor& enriched) {
    const auto outputs = run_layer(
        [attention = layers_.attention, gate = layers_.attention_gate,
         horizon = options_.horizon](const Tensors& in) mutable {
          const auto attended = attention->forward(in[0], horizon);
          const auto skip = in[0].narrow(1, in[0].size(1) - horizon, horizon);
          return Tensors{gate->forward(attended.value, skip), attended.attention};
        },
        {enriched});
    output_.attention = outputs[1];
    return outputs[0];
  }

  TftLayers& layers_;
  const TftOptions& options_;
  const TftInput& input_;
  Tensors contexts_;
  TftOutput output_;
};

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
  check_inputs(input, options_);
  return ForwardPass(*layers_, options_, input).run();
}

}  // namespace reprise
