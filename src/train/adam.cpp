// SPDX-License-Identifier: Apache-2.0
#include "reprise/memory.h"
#include "train/adam_internal.h"

#include <ATen/ops/_fused_adamw.h>
#include <torch/torch.h>

#include <utility>

namespace reprise::detail {
namespace {

constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr double kEpsilon = 1e-8;

}  // namespace

Adam::Adam(std::vector<torch::Tensor> parameters, double weight_decay)
    : parameters_(std::move(parameters)), weight_decay_(weight_decay) {
  const MemoryCategoryScope category(MemoryCategory::kOptimizerState);
  for (const auto& parameter : parameters_) {
    averages_.push_back(torch::zeros_like(parameter));
    squares_.push_back(torch::zeros_like(parameter));
    steps_.push_back(torch::zeros({}, parameter.options().dtype(torch::kFloat)));
  }
  if (!steps_.empty()) one_ = torch::ones_like(steps_[0]);
}

void Adam::clear_gradients() {
  for (auto& parameter : parameters_) parameter.mutable_grad().reset();
}

void Adam::clip_gradients(double most) {
  torch::nn::utils::clip_grad_norm_(parameters_, most);
}

void Adam::step(double lr) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> parameters;
  std::vector<torch::Tensor> gradients;
  std::vector<torch::Tensor> averages;
  std::vector<torch::Tensor> squares;
  std::vector<torch::Tensor> steps;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].grad().defined()) continue;
    parameters.push_back(parameters_[i]);
    gradients.push_back(parameters_[i].grad());
    averages.push_back(averages_[i]);
    squares.push_back(squares_[i]);
    steps.push_back(steps_[i]);
  }
  for (auto& step : steps) step.add_(one_);  // a number would become a tensor first
  at::_fused_adamw_(parameters, gradients, averages, squares, {}, steps, lr, kBeta1, kBeta2,
                    weight_decay_, kEpsilon, /*amsgrad=*/false, /*maximize=*/false);
}

}  // namespace reprise::detail
