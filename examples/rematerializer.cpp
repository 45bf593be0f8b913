// SPDX-License-Identifier: Apache-2.0
// Trains a stack of layers in a third of the memory that its activations take, with the same
// gradients. The first step finds its way by itself, the others follow a plan.
#include "reprise/rematerializer.h"
#include "reprise/memory.h"

#include <torch/torch.h>

#include <cstdio>
#include <vector>

namespace {

torch::nn::Sequential make_model(int layers, int width) {
  torch::nn::Sequential model;
  for (int i = 0; i < layers; ++i) {
    model->push_back(torch::nn::Linear(width, width));
    model->push_back(torch::nn::GELU());
    model->push_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
  }
  return model;
}

std::vector<torch::Tensor> gradients_of(torch::nn::Sequential& model) {
  std::vector<torch::Tensor> gradients;
  for (const auto& parameter : model->parameters()) gradients.push_back(parameter.grad().clone());
  model->zero_grad();
  return gradients;
}

}  // namespace

int main() {
  torch::manual_seed(1);
  auto model = make_model(12, 256);
  const auto x = torch::randn({1024, 256});
  const auto loss_of = [&] {
    return model->forward(x).square().mean();
  };

  const auto start = reprise::memory_stats().current_bytes;
  reprise::reset_peak_memory();
  loss_of().backward();
  const auto plain_bytes = reprise::memory_stats().peak_bytes - start;
  const auto expected = gradients_of(model);

  const auto before = reprise::memory_stats().current_bytes;
  const auto budget = before + plain_bytes / 3;
  std::printf("a plain step takes %.1f MB, here it gets %.1f MB\n", 1e-6 * double(plain_bytes),
              1e-6 * double(budget - before));
  std::vector<torch::Tensor> gradients;
  {
    reprise::Rematerializer rematerializer({.budget_bytes = budget});
    for (int step = 0; step < 3; ++step) {
      rematerializer.forward(loss_of).backward();
      if (step < 2) model->zero_grad();
    }
    const auto stats = rematerializer.stats();
    std::printf(
        "last step: foretold peak %lld bytes, measured %lld; %.2f ms of operators run again\n",
        static_cast<long long>(stats.predicted_peak_bytes),
        static_cast<long long>(stats.measured_peak_bytes), stats.predicted_replay_ms);
    if (!stats.is_planned || stats.measured_peak_bytes > budget) return 1;
  }
  gradients = gradients_of(model);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!torch::equal(gradients[i], expected[i])) return 1;
  }
  std::printf("all %zu gradients are equal\n", gradients.size());
  return 0;
}
