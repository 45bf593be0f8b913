// SPDX-License-Identifier: Apache-2.0
/// Copies of a model's weights: the best ones so far, and a running average.
#pragma once

#include "reprise/memory.h"

#include <torch/torch.h>

#include <algorithm>
#include <vector>

namespace reprise::detail {

/// A copy of `parameters` in memory of its own.
inline std::vector<torch::Tensor> copies_of(const std::vector<torch::Tensor>& parameters) {
  const MemoryCategoryScope category(MemoryCategory::kParameters);
  std::vector<torch::Tensor> copies;
  for (const auto& parameter : parameters) copies.push_back(parameter.detach().clone());
  return copies;
}

/// The weights of a module at one moment. Taking them again needs no memory.
class WeightCopy {
 public:
  explicit WeightCopy(const torch::nn::Module& module)
      : parameters_(module.parameters()), weights_(copies_of(parameters_)) {}

  void take() { copy(parameters_, weights_); }
  void restore() { copy(weights_, parameters_); }

 private:
  static void copy(const std::vector<torch::Tensor>& from, std::vector<torch::Tensor>& to) {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < from.size(); ++i) to[i].copy_(from[i]);
  }

  std::vector<torch::Tensor> parameters_;  // the module's
  std::vector<torch::Tensor> weights_;
};

/// Exponential moving average of weights over steps (Polyak and Juditsky 1992, with forgetting).
/// Needs no more memory after it is made.
class AveragedWeights {
 public:
  AveragedWeights(const torch::nn::Module& module, double decay)
      : decay_(decay), parameters_(module.parameters()), average_(copies_of(parameters_)) {}

  void update() {
    const torch::NoGradGuard no_grad;
    ++steps_;
    // A short memory first: the initial weights are forgotten within a few steps.
    const double decay =
        std::min(decay_, static_cast<double>(steps_) / static_cast<double>(steps_ + 10));
    for (std::size_t i = 0; i < average_.size(); ++i)
      average_[i].lerp_(parameters_[i].detach(), 1 - decay);
  }

  /// Exchanges the module's weights with the average.
  void swap() {
    for (std::size_t i = 0; i < average_.size(); ++i) {
      const auto average = average_[i];
      average_[i] = parameters_[i].tensor_data();
      parameters_[i].set_data(average);
    }
  }

 private:
  double decay_;
  std::int64_t steps_ = 0;
  std::vector<torch::Tensor> parameters_;  // the module's
  std::vector<torch::Tensor> average_;
};

}  // namespace reprise::detail
