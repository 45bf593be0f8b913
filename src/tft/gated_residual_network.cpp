// SPDX-License-Identifier: Apache-2.0
#include "tft/gated_residual_network.h"

#include <torch/torch.h>

#include <cmath>

namespace reprise::detail {
namespace {

torch::nn::LayerNorm make_norm(std::int64_t size, double epsilon) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({size}).eps(epsilon));
}

}  // namespace

torch::nn::Linear make_linear(std::int64_t in, std::int64_t out, bool has_bias) {
  torch::nn::Linear linear(torch::nn::LinearOptions(in, out).bias(has_bias));
  const torch::NoGradGuard no_grad;
  torch::nn::init::xavier_uniform_(linear->weight);
  if (has_bias) linear->bias.zero_();
  return linear;
}

GatedResidualNetworkImpl::GatedResidualNetworkImpl(const GrnShape& shape, double dropout,
                                                   double epsilon)
    : dropout_(dropout) {
  input_ = register_module("input", make_linear(shape.input, shape.hidden));
  if (shape.has_context)
    context_ = register_module("context", make_linear(shape.hidden, shape.hidden, false));
  hidden_ = register_module("hidden", make_linear(shape.hidden, shape.hidden));
  gate_ = register_module("gate", make_linear(shape.hidden, 2 * shape.output));
  if (shape.input != shape.output)
    skip_ = register_module("skip", make_linear(shape.input, shape.output));
  // Layer norm over one output would make it constant: the selection weights of a single variable
  // have none.
  if (shape.output != 1) norm_ = register_module("norm", make_norm(shape.output, epsilon));
}

torch::Tensor GatedResidualNetworkImpl::forward(const torch::Tensor& input,
                                                const torch::Tensor& context) {
  auto value = input_->forward(input);
  if (context.defined() && context_) value = value + context_->forward(context).unsqueeze(1);
  value = hidden_->forward(torch::elu(value));
  value = torch::glu(gate_->forward(torch::dropout(value, dropout_, is_training())), -1);
  value = value + (skip_ ? skip_->forward(input) : input);
  return norm_ ? norm_->forward(value) : value;
}

StackedGrnImpl::StackedGrnImpl(std::int64_t variables, std::int64_t input_size,
                               std::int64_t hidden_size, double dropout, double epsilon)
    : variables_(variables), dropout_(dropout), epsilon_(epsilon) {
  input_weight_ = make_weight("input_weight", input_size, hidden_size);
  input_bias_ = make_constant("input_bias", hidden_size, 0.0);
  hidden_weight_ = make_weight("hidden_weight", hidden_size, hidden_size);
  hidden_bias_ = make_constant("hidden_bias", hidden_size, 0.0);
  gate_weight_ = make_weight("gate_weight", hidden_size, 2 * hidden_size);
  gate_bias_ = make_constant("gate_bias", 2 * hidden_size, 0.0);
  if (input_size != hidden_size) {
    skip_weight_ = make_weight("skip_weight", input_size, hidden_size);
    skip_bias_ = make_constant("skip_bias", hidden_size, 0.0);
  }
  norm_weight_ = make_constant("norm_weight", hidden_size, 1.0);
  norm_bias_ = make_constant("norm_bias", hidden_size, 0.0);
}

torch::Tensor StackedGrnImpl::make_weight(const char* name, std::int64_t in, std::int64_t out) {
  const double limit =
      std::sqrt(6.0 / static_cast<double>(in + out));  // Glorot and Bengio 2010, eq. 16
  return register_parameter(name, torch::empty({variables_, in, out}).uniform_(-limit, limit));
}

torch::Tensor StackedGrnImpl::make_constant(const char* name, std::int64_t out, double value) {
  return register_parameter(name, torch::full({variables_, out}, value));
}

torch::Tensor StackedGrnImpl::forward(const torch::Tensor& input) {
  const auto affine = [](const torch::Tensor& x, const torch::Tensor& weight,
                         const torch::Tensor& bias) {
    return torch::baddbmm(bias.unsqueeze(1), x, weight);
  };
  const auto by_variable = input.transpose(0, 1);
  auto value = torch::elu(affine(by_variable, input_weight_, input_bias_));
  value = affine(value, hidden_weight_, hidden_bias_);
  value = affine(torch::dropout(value, dropout_, is_training()), gate_weight_, gate_bias_);
  value = torch::glu(value, -1) +
          (skip_weight_.defined() ? affine(by_variable, skip_weight_, skip_bias_) : by_variable);
  value = torch::layer_norm(value, {value.size(-1)}, {}, {}, epsilon_);
  return torch::addcmul(norm_bias_.unsqueeze(1), value, norm_weight_.unsqueeze(1));
}

GateAddNormImpl::GateAddNormImpl(std::int64_t hidden_size, double dropout, double epsilon)
    : dropout_(dropout) {
  gate_ = register_module("gate", make_linear(hidden_size, 2 * hidden_size));
  norm_ = register_module("norm", make_norm(hidden_size, epsilon));
}

torch::Tensor GateAddNormImpl::forward(const torch::Tensor& value, const torch::Tensor& skip) {
  const auto gated = torch::glu(gate_->forward(torch::dropout(value, dropout_, is_training())), -1);
  return norm_->forward(gated + skip);
}

}  // namespace reprise::detail
