// SPDX-License-Identifier: Apache-2.0
#include "tft/variable_selection.h"

#include <torch/torch.h>

namespace reprise::detail {
namespace {

/// Sum over variables of weights [R, V] times values [V, R, D].
torch::Tensor weighted_sum(const torch::Tensor& values, const torch::Tensor& weights) {
  return (values * weights.t().unsqueeze(-1)).sum(0);
}

}  // namespace

VariableSelectionImpl::VariableSelectionImpl(const VariableSelectionShape& shape, double dropout,
                                             double epsilon) {
  const GrnShape grn{
      .input = shape.reals * shape.real_width + shape.categoricals * shape.hidden_size,
      .hidden = shape.hidden_size,
      .output = shape.reals + shape.categoricals,
      .has_context = shape.has_context};
  weight_grn_ = register_module("weight_grn", GatedResidualNetwork(grn, dropout, epsilon));
  if (shape.reals > 0) {
    real_grn_ = register_module(
        "real_grn", StackedGrn(shape.reals, shape.real_width, shape.hidden_size, dropout, epsilon));
  }
  if (shape.categoricals > 0) {
    categorical_grn_ = register_module(
        "categorical_grn",
        StackedGrn(shape.categoricals, shape.hidden_size, shape.hidden_size, dropout, epsilon));
  }
}

torch::Tensor VariableSelectionImpl::weights(const EmbeddedVariables& variables,
                                             const torch::Tensor& context) {
  std::vector<torch::Tensor> flat;
  if (variables.real.defined()) flat.push_back(variables.real.flatten(-2));
  if (variables.categorical.defined()) flat.push_back(variables.categorical.flatten(-2));
  return torch::softmax(
      weight_grn_->forward(flat.size() == 1 ? flat[0] : torch::cat(flat, -1), context), -1);
}

Selection VariableSelectionImpl::forward(const EmbeddedVariables& variables,
                                         const torch::Tensor& context) {
  Selection selection;
  selection.weights = weights(variables, context);
  const auto rows = selection.weights.flatten(0, -2);  // [R, V]
  std::int64_t first = 0;
  const auto add = [&](StackedGrn& grn, const torch::Tensor& embedded) {
    if (!embedded.defined()) return;
    const auto count = embedded.size(-2);
    auto sum = weighted_sum(grn->forward(embedded.flatten(0, -3)), rows.narrow(1, first, count));
    selection.value = selection.value.defined() ? selection.value + sum : sum;
    first += count;
  };
  add(real_grn_, variables.real);
  add(categorical_grn_, variables.categorical);
  auto shape = selection.weights.sizes().vec();
  shape.back() = selection.value.size(-1);
  selection.value = selection.value.view(shape);
  return selection;
}

}  // namespace reprise::detail
