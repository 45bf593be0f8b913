// SPDX-License-Identifier: Apache-2.0
#include "tft/attention.h"

#include "tft/gated_residual_network.h"

#include <torch/torch.h>

#include <cmath>
#include <limits>

namespace reprise::detail {

InterpretableAttentionImpl::InterpretableAttentionImpl(std::int64_t hidden_size, std::int64_t heads)
    : heads_(heads) {
  const auto head_size = hidden_size / heads;
  query_ = register_module("query", make_linear(hidden_size, heads * head_size, false));
  key_ = register_module("key", make_linear(hidden_size, heads * head_size, false));
  value_ = register_module("value", make_linear(hidden_size, head_size, false));
  output_ = register_module("output", make_linear(head_size, hidden_size, false));
}

Attended InterpretableAttentionImpl::forward(const torch::Tensor& steps, std::int64_t horizon) {
  const auto length = steps.size(1);
  const auto by_head = [&](const torch::Tensor& x) {
    return x.unflatten(-1, {heads_, -1}).transpose(1, 2);
  };
  const auto query =
      by_head(query_->forward(steps.narrow(1, length - horizon, horizon)));  // [B, A, H, d]
  const auto key = by_head(key_->forward(steps));                            // [B, A, N, d]
  const auto scale = 1.0 / std::sqrt(static_cast<double>(query.size(-1)));
  const auto is_future = torch::ones({horizon, length}, steps.options().dtype(torch::kBool))
                             .triu(length - horizon + 1);
  const auto scores = torch::matmul(query * scale, key.transpose(-2, -1))
                          .masked_fill(is_future, -std::numeric_limits<double>::infinity());
  Attended attended;
  attended.attention = torch::softmax(scores, -1);
  // The heads share V, so the mean over heads may be taken first: one product with V instead of A.
  attended.value =
      output_->forward(torch::matmul(attended.attention.mean(1), value_->forward(steps)));
  return attended;
}

}  // namespace reprise::detail
