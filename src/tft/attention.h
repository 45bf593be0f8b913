// SPDX-License-Identifier: Apache-2.0
/// Interpretable multi-head attention (Lim et al. 2021, eq. 13 to 16): the heads share their
/// values.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>

namespace reprise::detail {

struct Attended {
  torch::Tensor value;      ///< [B, H, D]
  torch::Tensor attention;  ///< [B, A, H, N]
};

class InterpretableAttentionImpl : public torch::nn::Module {
 public:
  InterpretableAttentionImpl(std::int64_t hidden_size, std::int64_t heads);

  /// The last `horizon` H of the N steps of `steps` [B, N, D] look at themselves and at what came
  /// before them.
  Attended forward(const torch::Tensor& steps, std::int64_t horizon);

 private:
  std::int64_t heads_;
  torch::nn::Linear query_{nullptr};
  torch::nn::Linear key_{nullptr};
  torch::nn::Linear value_{nullptr};
  torch::nn::Linear output_{nullptr};
};
TORCH_MODULE(InterpretableAttention);

}  // namespace reprise::detail
