// SPDX-License-Identifier: Apache-2.0
#include "autograd/gradient_hook.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

namespace reprise::detail {
namespace {

class GradientHook : public torch::autograd::PostAccumulateGradHook {
 public:
  GradientHook(std::unique_ptr<PostAccumulateGradHook> first,
               std::function<void(const at::Tensor&)> hook)
      : first_(std::move(first)), hook_(std::move(hook)) {}

  void operator()(const torch::autograd::Variable& parameter) override {
    if (first_) (*first_)(parameter);
    hook_(parameter);
  }

 private:
  std::unique_ptr<PostAccumulateGradHook> first_;
  std::function<void(const at::Tensor&)> hook_;
};

}  // namespace

void add_gradient_hook(const at::Tensor& parameter, std::function<void(const at::Tensor&)> hook) {
  auto& hooks = torch::autograd::impl::post_acc_grad_hooks(parameter);
  auto chained = std::make_unique<GradientHook>(std::move(hooks), std::move(hook));
  torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::move(chained));
}

}  // namespace reprise::detail
