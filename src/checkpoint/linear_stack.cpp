// SPDX-License-Identifier: Apache-2.0
#include "reprise/linear_stack.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace reprise::linear_stack {
namespace {

/// Checks once, so that a wrong size is named by its layer and not by the matrix product it breaks.
void check(const char* function, const at::Tensor& x, const std::vector<Layer>& layers) {
  TORCH_CHECK_VALUE(!layers.empty(), function, ": expected at least one layer, got none");
  TORCH_CHECK_VALUE(x.dim() == 2, function, ": expected x [R, I], got ", x.sizes());
  std::int64_t width = x.size(1);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto& [weight, bias] = layers[i];
    TORCH_CHECK_VALUE(weight.dim() == 2 && weight.size(1) == width, function,
                      ": expected the weight of layer ", i, " to be [O, ", width, "], got ",
                      weight.sizes());
    TORCH_CHECK_VALUE(bias.dim() == 1 && bias.size(0) == weight.size(0), function,
                      ": expected the bias of layer ", i, " to be [", weight.size(0), "], got ",
                      bias.sizes());
    width = weight.size(0);
  }
}

at::Tensor pre_activation(const at::Tensor& input, const Layer& layer) {
  return at::addmm(layer.bias, input, layer.weight.t());
}

}  // namespace

LinearGradients linear_backward(const at::Tensor& grad_output, const at::Tensor& input,
                                const at::Tensor& weight) {
  TORCH_CHECK_VALUE(
      grad_output.dim() == 2 && input.dim() == 2 && weight.dim() == 2 &&
          grad_output.size(0) == input.size(0) && grad_output.size(1) == weight.size(0) &&
          input.size(1) == weight.size(1),
      "linear_backward: expected grad_output [R, O], input [R, I], weight [O, I], got ",
      grad_output.sizes(), ", ", input.sizes(), ", ", weight.sizes());
  const at::NoGradGuard no_grad;
  return {grad_output.mm(weight), grad_output.t().mm(input), grad_output.sum(0)};
}

ForwardResult forward_full(const at::Tensor& x, const std::vector<Layer>& layers) {
  check("forward_full", x, layers);
  const at::NoGradGuard no_grad;
  ForwardResult result;
  result.activations.push_back(x);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    result.pre_activations.push_back(pre_activation(result.activations.back(), layers[i]));
    const bool is_last = i + 1 == layers.size();
    result.activations.push_back(is_last ? result.pre_activations.back()
                                         : result.pre_activations.back().relu());
  }
  result.final_output = result.activations.back();
  return result;
}

StackGradients backward_full(const at::Tensor& grad_output, const std::vector<Layer>& layers,
                             const std::vector<at::Tensor>& activations,
                             const std::vector<at::Tensor>& pre_activations) {
  TORCH_CHECK_VALUE(
      activations.size() == layers.size() + 1 && pre_activations.size() == layers.size(),
      "backward_full: expected ", layers.size() + 1, " activations and ", layers.size(),
      " pre-activations, got ", activations.size(), " and ", pre_activations.size());
  check("backward_full", activations.front(), layers);
  TORCH_CHECK_VALUE(grad_output.sizes() == activations.back().sizes(),
                    "backward_full: expected grad_output ", activations.back().sizes(), ", got ",
                    grad_output.sizes());
  const at::NoGradGuard no_grad;
  StackGradients result;
  result.grad_weights.resize(layers.size());
  result.grad_biases.resize(layers.size());
  at::Tensor grad = grad_output;
  for (std::size_t i = layers.size(); i-- > 0;) {
    const bool is_last = i + 1 == layers.size();
    if (!is_last) grad = at::threshold_backward(grad, pre_activations[i], 0);
    auto layer = linear_backward(grad, activations[i], layers[i].weight);
    result.grad_weights[i] = std::move(layer.grad_weight);
    result.grad_biases[i] = std::move(layer.grad_bias);
    grad = std::move(layer.grad_input);
  }
  result.grad_input = std::move(grad);
  return result;
}

at::Tensor forward_checkpointed(const at::Tensor& x, const std::vector<Layer>& layers) {
  check("forward_checkpointed", x, layers);
  const at::NoGradGuard no_grad;
  at::Tensor value = x;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    value = pre_activation(value, layers[i]);
    if (i + 1 < layers.size()) value = value.relu();
  }
  return value;
}

StackGradients backward_checkpointed(const at::Tensor& grad_output, const at::Tensor& x,
                                     const std::vector<Layer>& layers) {
  const auto full = forward_full(x, layers);
  return backward_full(grad_output, layers, full.activations, full.pre_activations);
}

std::int64_t count_stored_activations(std::int64_t num_layers, bool use_checkpointing) {
  TORCH_CHECK_VALUE(num_layers >= 0, "count_stored_activations: num_layers is ", num_layers,
                    ", must not be negative");
  return use_checkpointing ? 1 : num_layers + 1;
}

}  // namespace reprise::linear_stack
