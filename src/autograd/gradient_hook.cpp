// SPDX-License-Identifier: Apache-2.0
#include "autograd/gradient_hook.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

namespace reprise::detail {
namespace {

class ChainedHook : public torch::autograd::PostAccumulateGradHook {
 public:
  ChainedHook(std::unique_ptr<PostAccumulateGradHook> first, GradientHook hook)
      : first_(std::move(first)), hook_(hook) {}

  void operator()(const torch::autograd::Variable& parameter) override {
    if (first_) (*first_)(parameter);
    hook_(parameter);
  }

  bool has(GradientHook hook) const {
    const auto* first = dynamic_cast<const ChainedHook*>(first_.get());
    return hook_ == hook || (first != nullptr && first->has(hook));
  }

 private:
  std::unique_ptr<PostAccumulateGradHook> first_;
  GradientHook hook_;
};

}  // namespace

void add_gradient_hook(const at::Tensor& parameter, GradientHook hook) {
  auto& hooks = torch::autograd::impl::post_acc_grad_hooks(parameter);
  const auto* there = dynamic_cast<const ChainedHook*>(hooks.get());
  if (there != nullptr && there->has(hook)) return;
  auto chained = std::make_unique<ChainedHook>(std::move(hooks), hook);
  torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::move(chained));
}

}  // namespace reprise::detail
