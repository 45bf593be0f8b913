// SPDX-License-Identifier: Apache-2.0
/// Prints the peak memory of one training step of 16 layers without and with checkpointing, and
/// "gradients bitwise equal: yes". The second peak is well below half of the first.
#include <reprise/checkpoint.h>
#include <reprise/memory.h>
#include <torch/torch.h>

#include <cstdio>
#include <vector>

namespace nn = torch::nn;

struct Step {
  std::int64_t peak_bytes;
  std::vector<torch::Tensor> gradients;
};

static torch::Tensor forward_plain(const std::vector<nn::Sequential>& layers, torch::Tensor x) {
  for (auto layer : layers) {
    x = layer->forward(x);
  }
  return x;
}

static torch::Tensor forward_checkpointed(const std::vector<nn::Sequential>& layers,
                                          torch::Tensor x) {
  for (auto layer : layers) {
    x = reprise::checkpoint([layer](const at::Tensor& v) mutable { return layer->forward(v); }, x);
  }
  return x;
}

/// One forward and backward pass.
template <class Forward>
static Step run(Forward forward, const std::vector<nn::Sequential>& layers,
                const torch::Tensor& input) {
  for (auto layer : layers) {
    layer->zero_grad();
  }
  reprise::reset_peak_memory();
  const auto bytes_before = reprise::memory_stats().current_bytes;
  forward(layers, input).square().mean().backward();
  Step step{reprise::memory_stats().peak_bytes - bytes_before, {}};
  for (auto layer : layers) {
    for (const auto& parameter : layer->parameters()) {
      step.gradients.push_back(parameter.grad().clone());
    }
  }
  return step;
}

int main() {
  torch::manual_seed(1);
  std::vector<nn::Sequential> layers;
  for (int i = 0; i < 16; ++i) {
    layers.emplace_back(nn::Linear(256, 1024), nn::GELU(), nn::Linear(1024, 256), nn::Tanh());
  }
  const auto input = torch::randn({1024, 256});
  const Step plain = run(forward_plain, layers, input);
  const Step checkpointed = run(forward_checkpointed, layers, input);

  bool is_equal = true;
  for (std::size_t i = 0; i < plain.gradients.size(); ++i) {
    is_equal = is_equal && torch::equal(plain.gradients[i], checkpointed.gradients[i]);
  }
  std::printf("peak without checkpointing: %.1f MB\n", static_cast<double>(plain.peak_bytes) / 1e6);
  std::printf("peak with checkpointing:    %.1f MB\n",
              static_cast<double>(checkpointed.peak_bytes) / 1e6);
  std::printf("gradients bitwise equal: %s\n", is_equal ? "yes" : "no");
  return is_equal && 2 * checkpointed.peak_bytes < plain.peak_bytes ? 0 : 1;
}
