// SPDX-License-Identifier: Apache-2.0
/// The smallest complete example of activation checkpointing: a stack of linear layers with its
/// gradients by hand.
///
/// A layer is `pre = input @ weight.T + bias`; ReLU between layers, none after the last. Autograd
/// records nothing here. Every function throws c10::ValueError naming the layer and both shapes
/// when shapes do not fit together. Letters: R rows, I inputs and O outputs of a layer, L layers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace reprise::linear_stack {

struct Layer {
  at::Tensor weight;  ///< [O, I]
  at::Tensor bias;    ///< [O]
};

struct LinearGradients {
  at::Tensor grad_input;   ///< [R, I]
  at::Tensor grad_weight;  ///< [O, I]
  at::Tensor grad_bias;    ///< [O]
};

struct ForwardResult {
  at::Tensor final_output;
  std::vector<at::Tensor>
      activations;  ///< L + 1: the input, then each layer's output after its activation
  std::vector<at::Tensor> pre_activations;  ///< L: each layer's output before its activation
};

struct StackGradients {
  at::Tensor grad_input;
  std::vector<at::Tensor> grad_weights;  ///< L, first layer first
  std::vector<at::Tensor> grad_biases;
};

/// Gradients of one linear layer from `grad_output` [R, O], `input` [R, I] and `weight` [O, I].
LinearGradients linear_backward(const at::Tensor& grad_output, const at::Tensor& input,
                                const at::Tensor& weight);

/// Runs `x` [R, I] through all layers and returns every intermediate value.
ForwardResult forward_full(const at::Tensor& x, const std::vector<Layer>& layers);

/// Gradients from the intermediate values that `forward_full` returned.
StackGradients backward_full(const at::Tensor& grad_output, const std::vector<Layer>& layers,
                             const std::vector<at::Tensor>& activations,
                             const std::vector<at::Tensor>& pre_activations);

/// Runs `x` through all layers and keeps nothing but the result.
at::Tensor forward_checkpointed(const at::Tensor& x, const std::vector<Layer>& layers);

/// Recomputes the intermediate values from `x`; bitwise equal to `backward_full`.
StackGradients backward_checkpointed(const at::Tensor& grad_output, const at::Tensor& x,
                                     const std::vector<Layer>& layers);

/// Activations held between forward and backward: `num_layers + 1`, or 1 with checkpointing.
std::int64_t count_stored_activations(std::int64_t num_layers, bool use_checkpointing);

}  // namespace reprise::linear_stack
