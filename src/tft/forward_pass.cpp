// SPDX-License-Identifier: Apache-2.0
#include "reprise/checkpoint.h"
#include "reprise/memory_timeline.h"
#include "tft/layer_runner.h"
#include "tft/layers.h"

#include <torch/torch.h>

#include <iterator>
#include <tuple>
#include <utility>

namespace reprise::detail {
namespace {

using torch::Tensor;
using Tensors = std::vector<Tensor>;

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

/// Steps [first, first + count) of `values` [B, T, V], which may be undefined.
Tensor steps_of(const Tensor& values, std::int64_t first, std::int64_t count) {
  return values.defined() ? values.narrow(1, first, count) : values;
}

Tensors to_tensors(Selection selection) {
  return {std::move(selection.value), std::move(selection.weights)};
}

Tensors run_lstm(torch::nn::LSTM& lstm, const Tensors& in) {
  auto [value, state] = lstm->forward(in[0], std::make_tuple(in[1], in[2]));
  return {value, std::get<0>(state), std::get<1>(state)};
}

/// One forward pass: the intermediate values that several layers read.
class ForwardPass {
 public:
  ForwardPass(std::shared_ptr<TftLayers> layers, const TftOptions& options, const TftInput& input,
              const LayerRunner& runner)
      : layers_(std::move(layers)), options_(options), input_(input), runner_(runner) {}

  TftOutput run() {
    encode_static();
    const auto history = select_history();
    const auto future = select_future(history);
    const auto steps = run_lstms(history, future);
    const auto attended = attend(enrich(steps));
    output_.quantiles = predict(attended, steps);
    return std::move(output_);
  }

 private:
  enum Context { kSelection, kEnrichment, kHiddenState, kCellState };

  /// `function` takes the layers and the inputs. It may not refer to this pass, which is gone when
  /// backward runs it again.
  template <typename Function>
  Tensors run_layer(const char* name, Function function, const Tensors& inputs) const {
    return runner_(
        name, [layers = layers_, function](const Tensors& in) { return function(*layers, in); },
        inputs);
  }

  Tensor context(Context which) const { return contexts_.empty() ? Tensor() : contexts_[which]; }

  void encode_static() {
    if (!layers_->static_vsn) return;
    const auto selected = run_layer(
        "static_vsn",
        [](TftLayers& l, const Tensors& in) {
          return to_tensors(l.static_vsn->forward(embed({{l.static_embedding, in[0], in[1]}})));
        },
        {input_.static_real, input_.static_categorical});
    output_.static_weights = selected[1];
    contexts_ = run_layer("static_encoder",
                          [](TftLayers& l, const Tensors& in) {
                            Tensors contexts;
                            for (auto& grn : l.static_encoder->contexts)
                              contexts.push_back(grn->forward(in[0]));
                            return contexts;
                          },
                          {selected[0]});
  }

  // The selection networks embed their variables themselves, so that a region keeps the raw batch
  // instead of D values for each of its numbers.
  Tensor select_history() {
    const auto selected = run_layer(
        "historical_vsn",
        [length = options_.encoder_length](TftLayers& l, const Tensors& in) {
          const auto variables =
              embed({{l.observed_embedding, in[0], in[1]},
                     {l.known_embedding, steps_of(in[2], 0, length), steps_of(in[3], 0, length)}});
          return to_tensors(l.historical_vsn->forward(variables, in[4]));
        },
        {input_.observed_real, input_.observed_categorical, input_.known_real,
         input_.known_categorical, context(kSelection)});
    output_.historical_weights = selected[1];
    return encode("historical_encoder", &TftLayers::historical_encoder, selected[0]);
  }

  Tensor select_future(const Tensor& history) {
    if (!layers_->future_vsn)
      return history.new_zeros({history.size(0), options_.horizon, options_.hidden_size});
    const auto selected = run_layer(
        "future_vsn",
        [first = options_.encoder_length, horizon = options_.horizon](TftLayers& l,
                                                                      const Tensors& in) {
          const auto variables = embed({{l.known_embedding, steps_of(in[0], first, horizon),
                                         steps_of(in[1], first, horizon)}});
          return to_tensors(l.future_vsn->forward(variables, in[2]));
        },
        {input_.known_real, input_.known_categorical, context(kSelection)});
    output_.future_weights = selected[1];
    return encode("future_encoder", &TftLayers::future_encoder, selected[0]);
  }

  Tensor encode(const char* name, GatedResidualNetwork TftLayers::* encoder,
                const Tensor& value) const {
    if (!((*layers_).*encoder)) return value;
    return run_layer(name,
                     [encoder](TftLayers& l, const Tensors& in) {
                       return Tensors{(l.*encoder)->forward(in[0])};
                     },
                     {value})[0];
  }

  Tensor initial_state(Context which, const Tensor& history) const {
    const auto layers = options_.lstm_layers;
    if (contexts_.empty())
      return history.new_zeros({layers, history.size(0), options_.hidden_size});
    return contexts_[which].unsqueeze(0).expand({layers, -1, -1}).contiguous();
  }

  /// [B, E, D] and [B, H, D] give [B, N, D].
  Tensor run_lstms(const Tensor& history, const Tensor& future) const {
    const auto encoded = run_layer(
        "lstm_encoder",
        [](TftLayers& l, const Tensors& in) { return run_lstm(l.lstm_encoder, in); },
        {history, initial_state(kHiddenState, history), initial_state(kCellState, history)});
    const auto decoded =
        run_layer("lstm_decoder",
                  [](TftLayers& l, const Tensors& in) { return run_lstm(l.lstm_decoder, in); },
                  {future, encoded[1], encoded[2]});
    // Past and future are joined inside: a region keeps the parts, which the LSTMs keep anyway.
    return run_layer(
        "gate",
        [](TftLayers& l, const Tensors& in) {
          const auto selected = torch::cat({in[2], in[3]}, 1);
          return Tensors{l.lstm_gate->forward(torch::cat({in[0], in[1]}, 1), selected)};
        },
        {encoded[0], decoded[0], history, future})[0];
  }

  Tensor enrich(const Tensor& steps) const {
    return run_layer("enrichment",
                     [](TftLayers& l, const Tensors& in) {
                       return Tensors{l.enrichment->forward(in[0], in[1])};
                     },
                     {steps, context(kEnrichment)})[0];
  }

  Tensor attend(const Tensor& enriched) {
    const auto outputs = run_layer(
        "temporal_attention",
        [horizon = options_.horizon](TftLayers& l, const Tensors& in) {
          const auto attended = l.attention->forward(in[0], horizon);
          const auto skip = in[0].narrow(1, in[0].size(1) - horizon, horizon);
          return Tensors{l.attention_gate->forward(attended.value, skip), attended.attention};
        },
        {enriched});
    output_.attention = outputs[1];
    return outputs[0];
  }

  Tensor predict(const Tensor& attended, const Tensor& steps) const {
    const auto decoded = run_layer(
        "positionwise",
        [first = options_.encoder_length, horizon = options_.horizon](TftLayers& l,
                                                                      const Tensors& in) {
          const auto last_steps = in[1].narrow(1, first, horizon);
          return Tensors{l.output_gate->forward(l.positionwise->forward(in[0]), last_steps)};
        },
        {attended, steps});
    return run_layer(
        "quantile",
        [](TftLayers& l, const Tensors& in) { return Tensors{l.quantile->forward(in[0])}; },
        {decoded[0]})[0];
  }

  std::shared_ptr<TftLayers> layers_;
  const TftOptions& options_;
  const TftInput& input_;
  const LayerRunner& runner_;
  Tensors contexts_;
  TftOutput output_;
};

}  // namespace

LayerRunner checkpointing_runner(const TftOptions& options) {
  return [options](const std::string& layer, const LayerFunction& function, const Tensors& inputs) {
    const LayerScope scope(layer);
    if (!is_checkpointed(options, layer)) return function(inputs);
    return checkpoint(CheckpointOptions{.name = layer}, function, inputs);
  };
}

TftOutput interpret_with(TemporalFusionTransformerImpl& model, const TftInput& input,
                         const LayerRunner& runner) {
  check_inputs(input, model.options());
  return ForwardPass(TftLayers::of(model), model.options(), input, runner).run();
}

}  // namespace reprise::detail
