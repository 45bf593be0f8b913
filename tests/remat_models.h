// SPDX-License-Identifier: Apache-2.0
/// Models whose training steps are run within budgets, in tests and in sweeps.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace reprise::testing {

/// A model with what a step of it changes.
struct TrainingStep {
  std::function<at::Tensor()> loss;
  std::vector<at::Tensor> leaves;        ///< gradients of these are compared
  std::vector<at::Tensor> buffers = {};  ///< put back before each step
};

template <typename Module>
TrainingStep step_of(Module module, const at::Tensor& input) {
  return {.loss = [module, input]() mutable { return module->forward(input).square().mean(); },
          .leaves = module->parameters(),
          .buffers = module->buffers()};
}

inline torch::nn::Sequential mlp(int layers, std::int64_t width) {
  torch::nn::Sequential model;
  for (int i = 0; i < layers; ++i) {
    model->push_back(torch::nn::Linear(width, width));
    model->push_back(torch::nn::GELU());
    model->push_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
  }
  return model;
}

/// Equal layers, of which autograd saves one value each.
inline torch::nn::Sequential chain(int layers, std::int64_t width) {
  torch::nn::Sequential model;
  for (int i = 0; i < layers; ++i) {
    model->push_back(torch::nn::Linear(width, width));
    model->push_back(torch::nn::Tanh());
  }
  return model;
}

struct ResidualBlock : torch::nn::Module {
  explicit ResidualBlock(std::int64_t channels) {
    for (int i = 0; i < 2; ++i) {
      convolutions.push_back(register_module(
          "conv" + std::to_string(i),
          torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, channels, 3).padding(1))));
      norms.push_back(
          register_module("norm" + std::to_string(i), torch::nn::BatchNorm2d(channels)));
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    auto y = norms[0](convolutions[0](x)).relu_();
    y = norms[1](convolutions[1](y));
    y += x;
    return y.relu_();
  }
  std::vector<torch::nn::Conv2d> convolutions;
  std::vector<torch::nn::BatchNorm2d> norms;
};

/// A small ResNet: batch norms with running statistics, in-place activations.
inline torch::nn::Sequential residual_network(int blocks, std::int64_t channels) {
  torch::nn::Sequential model;
  for (int i = 0; i < blocks; ++i) model->push_back(std::make_shared<ResidualBlock>(channels));
  return model;
}

/// Two layers with dropout between them.
inline TrainingStep lstm_step(std::int64_t width, std::int64_t batch, std::int64_t steps) {
  auto lstm = torch::nn::LSTM(
      torch::nn::LSTMOptions(width, width).num_layers(2).batch_first(true).dropout(0.2));
  const auto input = torch::randn({batch, steps, width});
  return {.loss = [=]() mutable { return std::get<0>(lstm->forward(input)).square().mean(); },
          .leaves = lstm->parameters()};
}

inline TrainingStep transformer_step(int layers, std::int64_t width, std::int64_t steps,
                                     std::int64_t batch) {
  auto model = torch::nn::TransformerEncoder(torch::nn::TransformerEncoderOptions(
      torch::nn::TransformerEncoderLayerOptions(width, 4).dim_feedforward(2 * width).dropout(0.1),
      layers));
  const auto input = torch::randn({steps, batch, width});
  return {.loss = [=]() mutable { return model(input).square().mean(); },
          .leaves = model->parameters()};
}

struct UNetImpl : torch::nn::Module {
  UNetImpl() {
    for (int i = 0; i < kLevels; ++i) {
      down.push_back(register_module("down" + std::to_string(i), convolution(i == 0 ? 4 : 8, 8)));
      up.push_back(register_module("up" + std::to_string(i), convolution(16, 8)));
    }
  }
  static torch::nn::Conv2d convolution(int from, int to) {
    return torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 3).padding(1));
  }
  at::Tensor forward(at::Tensor x) {
    std::vector<at::Tensor> skips;
    for (auto& layer : down) {
      skips.push_back(torch::silu(layer(x)));
      x = torch::avg_pool2d(skips.back(), 2);
    }
    for (int i = kLevels - 1; i >= 0; --i) {
      x = torch::upsample_nearest2d(x, skips[i].sizes().slice(2));
      x = torch::silu(up[i](torch::cat({x, skips[i]}, 1)));
    }
    return x;
  }
  static constexpr int kLevels = 3;
  std::vector<torch::nn::Conv2d> down;
  std::vector<torch::nn::Conv2d> up;
};
TORCH_MODULE(UNet);

}  // namespace reprise::testing
