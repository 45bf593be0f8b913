// SPDX-License-Identifier: Apache-2.0
/// Adam whose memory is all there from the start.
#pragma once

#include <torch/types.h>

#include <vector>

namespace reprise::detail {

/// Adam (Kingma and Ba 2015) with decoupled weight decay (Loshchilov and Hutter 2019): LibTorch's
/// fused kernel. Its state is made at once and a step allocates nothing, so that a step cannot run
/// out of memory with half of the parameters changed.
class Adam {
 public:
  Adam(std::vector<torch::Tensor> parameters, double weight_decay);

  /// Frees the gradients.
  void clear_gradients();
  /// Scales the gradients so that their 2-norm together is at most `most` (above 0).
  void clip_gradients(double most);
  /// Changes every parameter that has a gradient, by steps of size `lr`.
  void step(double lr);

 private:
  std::vector<torch::Tensor> parameters_;
  std::vector<torch::Tensor> averages_;  // of gradients
  std::vector<torch::Tensor> squares_;   // of gradients, averaged
  std::vector<torch::Tensor> steps_;     // one number each
  torch::Tensor one_;
  double weight_decay_;
};

}  // namespace reprise::detail
