// SPDX-License-Identifier: Apache-2.0
/// Input embedding: a real variable x becomes x w + b, a category its row of a table.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/embedding.h>

#include <cstdint>
#include <vector>

namespace reprise::detail {

/// Embedded variables of some rows; a tensor is undefined where there is no variable of its kind.
struct EmbeddedVariables {
  torch::Tensor real;         ///< [..., V, W]
  torch::Tensor categorical;  ///< [..., V, D]
};

/// The tables of one role's variables.
class EmbeddingImpl : public torch::nn::Module {
 public:
  /// `reals` variables of `real_width` W, and one table of `hidden_size` D columns per cardinality.
  EmbeddingImpl(std::int64_t reals, std::int64_t real_width,
                const std::vector<std::int64_t>& cardinalities, std::int64_t hidden_size);

  /// `codes` [..., V] int64 gives [..., V, D]; undefined without categorical variables.
  torch::Tensor embed_categories(const torch::Tensor& codes);

  const torch::Tensor& real_weight() const { return real_weight_; }  ///< [V, W]
  const torch::Tensor& real_bias() const { return real_bias_; }      ///< [V, W]

 private:
  torch::Tensor real_weight_;
  torch::Tensor real_bias_;
  std::vector<torch::nn::Embedding> tables_;
};
TORCH_MODULE(Embedding);

/// Values of one role's variables over the same rows.
struct RoleValues {
  Embedding embedding{nullptr};
  torch::Tensor real;         ///< [..., V]
  torch::Tensor categorical;  ///< [..., V] int64
};

/// Embeds the variables of several roles side by side, in order. The reals are concatenated before
/// they are embedded: the wide result is written once.
EmbeddedVariables embed(const std::vector<RoleValues>& roles);

}  // namespace reprise::detail
