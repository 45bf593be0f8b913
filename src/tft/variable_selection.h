// SPDX-License-Identifier: Apache-2.0
/// Variable selection network (Lim et al. 2021, eq. 6 to 8).
#pragma once

#include "tft/embedding.h"
#include "tft/gated_residual_network.h"

namespace reprise::detail {

struct VariableSelectionShape {
  std::int64_t reals;
  std::int64_t categoricals;
  std::int64_t real_width;   ///< W
  std::int64_t hidden_size;  ///< D
  bool has_context;
};

struct Selection {
  torch::Tensor value;    ///< [..., D]
  torch::Tensor weights;  ///< [..., V], each sums to 1; reals, then categoricals
};

class VariableSelectionImpl : public torch::nn::Module {
 public:
  VariableSelectionImpl(const VariableSelectionShape& shape, double dropout, double epsilon);

  /// Variables over any rows [..., V, W or D], with `context` [B, D] (may be undefined) where the
  /// rows are [B, T].
  Selection forward(const EmbeddedVariables& variables, const torch::Tensor& context = {});

 private:
  torch::Tensor weights(const EmbeddedVariables& variables, const torch::Tensor& context);

  GatedResidualNetwork weight_grn_{nullptr};
  StackedGrn real_grn_{nullptr};
  StackedGrn categorical_grn_{nullptr};
};
TORCH_MODULE(VariableSelection);

}  // namespace reprise::detail
