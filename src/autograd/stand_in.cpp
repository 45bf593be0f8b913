// SPDX-License-Identifier: Apache-2.0
#include "autograd/stand_in.h"

#include "reprise/checkpoint_error.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <utility>

namespace reprise::detail {
namespace {

class NotDifferentiable : public torch::autograd::Node {
 public:
  NotDifferentiable(torch::autograd::edge_list&& edges, std::string message)
      : Node(std::move(edges)), message_(std::move(message)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& /*gradients*/) override {
    throw CheckpointError({__func__, __FILE__, __LINE__}, message_);
  }

 private:
  std::string message_;
};

}  // namespace

at::Tensor stand_in(const at::Tensor& value, const std::vector<at::Tensor>& arguments,
                    std::string message) {
  auto result = value.detach();
  torch::autograd::set_history(
      result, c10::make_intrusive<NotDifferentiable>(torch::autograd::collect_next_edges(arguments),
                                                     std::move(message)));
  return result;
}

}  // namespace reprise::detail
