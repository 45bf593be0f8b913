// SPDX-License-Identifier: Apache-2.0
/// Gated residual networks (Lim et al. 2021, eq. 2 to 5): one, and many side by side.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>

namespace reprise::detail {

/// A linear layer with Glorot-uniform weights and zero bias.
torch::nn::Linear make_linear(std::int64_t in, std::int64_t out, bool has_bias = true);

struct GrnShape {
  std::int64_t input;
  std::int64_t hidden;
  std::int64_t output;
  bool has_context = false;
};

/// GRN(a, c) = LayerNorm(skip(a) + GLU(Dropout(W1 ELU(W2 a + W3 c + b2) + b1))); skip is learned
/// where widths differ.
class GatedResidualNetworkImpl : public torch::nn::Module {
 public:
  GatedResidualNetworkImpl(const GrnShape& shape, double dropout, double epsilon);

  /// `input` [B, T, I] with `context` [B, D], or any [..., I] without a context, gives [..., O].
  torch::Tensor forward(const torch::Tensor& input, const torch::Tensor& context = {});

 private:
  double dropout_;
  torch::nn::Linear input_{nullptr};
  torch::nn::Linear context_{nullptr};
  torch::nn::Linear hidden_{nullptr};
  torch::nn::Linear gate_{nullptr};
  torch::nn::Linear skip_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
};
TORCH_MODULE(GatedResidualNetwork);

/// V gated residual networks, one for each variable, with weights [V, in, out]: one batched matmul
/// instead of V.
class StackedGrnImpl : public torch::nn::Module {
 public:
  /// `input_size` I to `hidden_size` D for each of `variables` V.
  StackedGrnImpl(std::int64_t variables, std::int64_t input_size, std::int64_t hidden_size,
                 double dropout, double epsilon);

  /// `input` [R, V, I] gives [V, R, D].
  torch::Tensor forward(const torch::Tensor& input);

 private:
  torch::Tensor make_weight(const char* name, std::int64_t in, std::int64_t out);
  torch::Tensor make_constant(const char* name, std::int64_t out, double value);

  std::int64_t variables_;
  double dropout_;
  double epsilon_;
  torch::Tensor input_weight_, input_bias_;
  torch::Tensor hidden_weight_, hidden_bias_;
  torch::Tensor gate_weight_, gate_bias_;
  torch::Tensor skip_weight_, skip_bias_;
  torch::Tensor norm_weight_, norm_bias_;
};
TORCH_MODULE(StackedGrn);

/// LayerNorm(skip + GLU(Dropout(value))): eq. 17, 20 and, without dropout, 22.
class GateAddNormImpl : public torch::nn::Module {
 public:
  GateAddNormImpl(std::int64_t hidden_size, double dropout, double epsilon);

  /// `value` and `skip` [..., D] give [..., D].
  torch::Tensor forward(const torch::Tensor& value, const torch::Tensor& skip);

 private:
  double dropout_;
  torch::nn::Linear gate_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
};
TORCH_MODULE(GateAddNorm);

}  // namespace reprise::detail
