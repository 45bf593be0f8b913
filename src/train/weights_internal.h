// SPDX-License-Identifier: Apache-2.0
/// Copies of a model's weights: the best ones so far, and a running average.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <vector>

namespace reprise::detail {

/// The weights of a module at one moment.
class WeightCopy {
 public:
  explicit WeightCopy(const torch::nn::Module& module) {
    for (const auto& parameter : module.parameters())
      weights_.push_back(parameter.detach().clone());
  }

  void restore(torch::nn::Module& module) const {
    const torch::NoGradGuard no_grad;
    auto parameters = module.parameters();
    for (std::size_t i = 0; i < weights_.size(); ++i) parameters[i].copy_(weights_[i]);
  }

 private:
  std::vector<torch::Tensor> weights_;
};

/// Exponential moving average of weights over steps (Polyak and Juditsky 1992, with forgetting).
class AveragedWeights {
 public:
  AveragedWeights(const torch::nn::Module& module, double decay) : decay_(decay) {
    for (const auto& parameter : module.parameters())
      average_.push_back(parameter.detach().clone());
  }

  void update(const torch::nn::Module& module) {
    const torch::NoGradGuard no_grad;
    ++steps_;
    // A short memory first: the initial weights are forgotten within a few steps.
    const double decay =
        std::min(decay_, static_cast<double>(steps_) / static_cast<double>(steps_ + 10));
    const auto parameters = module.parameters();
    for (std::size_t i = 0; i < average_.size(); ++i)
      average_[i].lerp_(parameters[i].detach(), 1 - decay);
  }

  /// Exchanges the module's weights with the average.
  void swap(torch::nn::Module& module) {
    const torch::NoGradGuard no_grad;
    auto parameters = module.parameters();
    for (std::size_t i = 0; i < average_.size(); ++i) {
      auto kept = average_[i].clone();
      average_[i].copy_(parameters[i]);
      parameters[i].copy_(kept);
    }
  }

 private:
  double decay_;
  std::int64_t steps_ = 0;
  std::vector<torch::Tensor> average_;
};

}  // namespace reprise::detail
