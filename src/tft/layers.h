// SPDX-License-Identifier: Apache-2.0
/// The modules that a Temporal Fusion Transformer is made of.
#pragma once

#include "reprise/tft.h"
#include "tft/attention.h"
#include "tft/embedding.h"
#include "tft/gated_residual_network.h"
#include "tft/variable_selection.h"

#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>

#include <memory>
#include <vector>

namespace reprise {
namespace detail {

/// The four contexts of the static variables: c_s, c_e, c_h, c_c.
struct StaticEncoderImpl : torch::nn::Module {
  StaticEncoderImpl(const GrnShape& shape, double dropout, double epsilon) {
    for (const char* name : {"selection", "enrichment", "hidden_state", "cell_state"}) {
      contexts.push_back(register_module(name, GatedResidualNetwork(shape, dropout, epsilon)));
    }
  }
  std::vector<GatedResidualNetwork> contexts;
};
TORCH_MODULE(StaticEncoder);

}  // namespace detail

/// A layer of `layer_names` is one or two of these: `historical_vsn` embeds its variables,
/// `temporal_attention` ends with its gate, and `positionwise` with the output gate.
struct TftLayers {
  static std::shared_ptr<TftLayers> of(const TemporalFusionTransformerImpl& model) {
    return model.layers_;
  }

  detail::Embedding static_embedding{nullptr};
  detail::Embedding known_embedding{nullptr};
  detail::Embedding observed_embedding{nullptr};
  detail::VariableSelection static_vsn{nullptr};
  detail::VariableSelection historical_vsn{nullptr};
  detail::VariableSelection future_vsn{nullptr};
  detail::StaticEncoder static_encoder{nullptr};
  detail::GatedResidualNetwork historical_encoder{nullptr};
  detail::GatedResidualNetwork future_encoder{nullptr};
  torch::nn::LSTM lstm_encoder{nullptr};
  torch::nn::LSTM lstm_decoder{nullptr};
  detail::GateAddNorm lstm_gate{nullptr};
  detail::GatedResidualNetwork enrichment{nullptr};
  detail::InterpretableAttention attention{nullptr};
  detail::GateAddNorm attention_gate{nullptr};
  detail::GatedResidualNetwork positionwise{nullptr};
  detail::GateAddNorm output_gate{nullptr};
  torch::nn::Linear quantile{nullptr};
};

}  // namespace reprise
