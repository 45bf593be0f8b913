// SPDX-License-Identifier: Apache-2.0
/// Models trained within budgets: gradients, buffers and random numbers are byte for byte those of
/// plain steps.
#include "tests/remat_testing.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

namespace reprise {
namespace {

using testing::random_leaf;
using testing::random_tensor;
using testing::Tensors;
using testing::TrainingStep;
using torch::Tensor;

template <typename Module>
TrainingStep step_of(Module module, const Tensor& input) {
  return {.loss = [module, input]() mutable { return module->forward(input).square().mean(); },
          .leaves = module->parameters(),
          .buffers = module->buffers()};
}

torch::nn::Sequential mlp(int layers, std::int64_t width) {
  torch::nn::Sequential model;
  for (int i = 0; i < layers; ++i) {
    model->push_back(torch::nn::Linear(width, width));
    model->push_back(torch::nn::GELU());
    model->push_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
  }
  return model;
}

class RematTest : public testing::SeededTest {};

TEST_F(RematTest, TrainsAStackOfLinearLayersInAFractionOfItsMemory) {
  const auto step = step_of(mlp(16, 64), random_tensor({256, 64}));
  EXPECT_LE(testing::expect_exact_within_budgets(step, 4), 0.35);
}

TEST_F(RematTest, KeepsDropoutMasksAndTheRandomStream) {
  torch::nn::Sequential model;
  for (int i = 0; i < 8; ++i) {
    model->push_back(torch::nn::Linear(64, 64));
    model->push_back(torch::nn::Dropout(0.3));
    model->push_back(torch::nn::ReLU(torch::nn::ReLUOptions(/*inplace=*/true)));
  }
  const auto step = step_of(model, random_tensor({256, 64}));
  EXPECT_LE(testing::expect_exact_within_budgets(step, 4), 0.5);
}

struct Block : torch::nn::Module {
  explicit Block(std::int64_t channels) {
    for (int i = 0; i < 2; ++i) {
      convolutions.push_back(register_module(
          "conv" + std::to_string(i),
          torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, channels, 3).padding(1))));
      norms.push_back(
          register_module("norm" + std::to_string(i), torch::nn::BatchNorm2d(channels)));
    }
  }
  Tensor forward(const Tensor& x) {
    auto y = norms[0](convolutions[0](x)).relu_();
    y = norms[1](convolutions[1](y));
    y += x;
    return y.relu_();
  }
  std::vector<torch::nn::Conv2d> convolutions;
  std::vector<torch::nn::BatchNorm2d> norms;
};

TEST_F(RematTest, UpdatesTheRunningStatisticsOfAResidualNetworkOnce) {
  torch::nn::Sequential model;
  for (int i = 0; i < 4; ++i) model->push_back(std::make_shared<Block>(8));
  const auto step = step_of(model, random_tensor({8, 8, 12, 12}));
  EXPECT_LE(testing::expect_exact_within_budgets(step, 4), 0.6);
}

TEST_F(RematTest, RunsRecurrentLayersAgain) {
  auto lstm =
      torch::nn::LSTM(torch::nn::LSTMOptions(32, 32).num_layers(2).batch_first(true).dropout(0.2));
  const auto input = random_tensor({16, 20, 32});
  const TrainingStep step{
      .loss = [=]() mutable { return std::get<0>(lstm->forward(input)).square().mean(); },
      .leaves = lstm->parameters()};
  testing::expect_exact_within_budgets(step, 4);
}

TEST_F(RematTest, TrainsATransformer) {
  auto model = torch::nn::TransformerEncoder(torch::nn::TransformerEncoderOptions(
      torch::nn::TransformerEncoderLayerOptions(32, 4).dim_feedforward(64).dropout(0.1), 4));
  const auto input = random_tensor({12, 8, 32});
  const TrainingStep step{.loss = [=]() mutable { return model(input).square().mean(); },
                          .leaves = model->parameters()};
  EXPECT_LE(testing::expect_exact_within_budgets(step, 4), 0.6);
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
  Tensor forward(Tensor x) {
    std::vector<Tensor> skips;
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

TEST_F(RematTest, TrainsANetworkWithLongSkips) {
  const auto step = step_of(UNet(), random_tensor({4, 4, 32, 32}));
  EXPECT_LE(testing::expect_exact_within_budgets(step, 3), 0.8);
}

TEST_F(RematTest, ReturnsWhatTheFunctionReturns) {
  Rematerializer rematerializer;
  EXPECT_EQ(rematerializer.forward([] { return std::string("text"); }), "text");
  EXPECT_EQ(rematerializer.stats().steps, 1);
}

}  // namespace
}  // namespace reprise
