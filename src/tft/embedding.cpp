// SPDX-License-Identifier: Apache-2.0
#include "tft/embedding.h"

#include <torch/torch.h>

#include <cmath>
#include <string>

namespace reprise::detail {
namespace {

torch::Tensor join(const std::vector<torch::Tensor>& tensors, std::int64_t dim) {
  if (tensors.empty()) return {};
  return tensors.size() == 1 ? tensors[0] : torch::cat(tensors, dim);
}

}  // namespace

EmbeddingImpl::EmbeddingImpl(std::int64_t reals, std::int64_t real_width,
                             const std::vector<std::int64_t>& cardinalities,
                             std::int64_t hidden_size) {
  if (reals > 0) {
    const double limit = std::sqrt(6.0 / static_cast<double>(1 + real_width));  // Glorot, one input
    real_weight_ = register_parameter("real_weight",
                                      torch::empty({reals, real_width}).uniform_(-limit, limit));
    real_bias_ = register_parameter("real_bias", torch::zeros({reals, real_width}));
  }
  auto tables = std::make_shared<torch::nn::ModuleListImpl>();
  for (auto cardinality : cardinalities) {
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(cardinality, hidden_size));
    const torch::NoGradGuard no_grad;
    torch::nn::init::uniform_(table->weight, -0.05,
                              0.05);  // as the original implementation's framework does
    tables->push_back(table);
    tables_.push_back(table);
  }
  register_module("categorical", tables);
}

torch::Tensor EmbeddingImpl::embed_categories(const torch::Tensor& codes) {
  std::vector<torch::Tensor> columns;
  for (std::size_t v = 0; v < tables_.size(); ++v) {
    columns.push_back(tables_[v]->forward(codes.select(-1, static_cast<std::int64_t>(v))));
  }
  return columns.empty() ? torch::Tensor() : torch::stack(columns, -2);
}

EmbeddedVariables embed(const std::vector<RoleValues>& roles) {
  std::vector<torch::Tensor> values, weights, biases, categorical;
  for (auto role : roles) {
    if (role.embedding->real_weight().defined()) {
      values.push_back(role.real);
      weights.push_back(role.embedding->real_weight());
      biases.push_back(role.embedding->real_bias());
    }
    auto embedded = role.embedding->embed_categories(role.categorical);
    if (embedded.defined()) categorical.push_back(std::move(embedded));
  }
  EmbeddedVariables result;
  if (!values.empty()) {
    result.real = torch::addcmul(join(biases, 0), join(values, -1).unsqueeze(-1), join(weights, 0));
  }
  result.categorical = join(categorical, -2);
  return result;
}

}  // namespace reprise::detail
