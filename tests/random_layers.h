// SPDX-License-Identifier: Apache-2.0
/// Layers of every kind, for random stacks of them.
#pragma once

#include "tests/testing.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace reprise::random_stacks {

using torch::Tensor;
using Tensors = std::vector<Tensor>;

constexpr std::int64_t kBatch = 2;
constexpr std::int64_t kSteps = 3;
constexpr std::int64_t kWidth = 8;

/// Maps [B, T, D] to [B, T, D].
struct Layer {
  std::function<Tensor(const Tensor&)> forward;
  std::shared_ptr<torch::nn::Module> module = {};
};

// Layers from LibTorch's modules.

inline Layer make_linear() {
  torch::nn::Linear m(kWidth, kWidth);
  return {[m](const Tensor& x) mutable { return m(x); }, m.ptr()};
}

inline Layer make_conv1d() {
  torch::nn::Conv1d m(torch::nn::Conv1dOptions(kWidth, kWidth, 3).padding(1));
  return {[m](const Tensor& x) mutable { return m(x.transpose(1, 2)).transpose(1, 2); }, m.ptr()};
}

inline Layer make_conv2d() {
  torch::nn::Conv2d m(torch::nn::Conv2dOptions(1, 2, 3).padding(1));
  return {[m](const Tensor& x) mutable { return m(x.unsqueeze(1)).sum(1); }, m.ptr()};
}

inline Layer make_lstm() {
  torch::nn::LSTM m(torch::nn::LSTMOptions(kWidth, kWidth).batch_first(true));
  return {[m](const Tensor& x) mutable { return std::get<0>(m->forward(x)); }, m.ptr()};
}

inline Layer make_gru() {
  torch::nn::GRU m(torch::nn::GRUOptions(kWidth, kWidth).num_layers(2).dropout(0.25));
  return {[m](const Tensor& x) mutable { return std::get<0>(m->forward(x)); }, m.ptr()};
}

inline Layer make_multihead_attention() {
  torch::nn::MultiheadAttention m(torch::nn::MultiheadAttentionOptions(kWidth, 2).dropout(0.25));
  return {[m](const Tensor& x) mutable {
            const auto q = x.transpose(0, 1);
            return std::get<0>(m->forward(q, q, q)).transpose(0, 1);
          },
          m.ptr()};
}

inline Layer make_layer_norm() {
  torch::nn::LayerNorm m(torch::nn::LayerNormOptions({kWidth}));
  return {[m](const Tensor& x) mutable { return m(x); }, m.ptr()};
}

inline Layer make_batch_norm() {
  torch::nn::BatchNorm1d m(kWidth);
  return {[m](const Tensor& x) mutable { return m(x.transpose(1, 2)).transpose(1, 2); }, m.ptr()};
}

inline Layer make_cumulative_batch_norm() {
  torch::nn::BatchNorm1d m(torch::nn::BatchNormOptions(kSteps).momentum(std::nullopt));
  return {[m](const Tensor& x) mutable { return m(x); }, m.ptr()};
}

inline Layer make_group_norm() {
  torch::nn::GroupNorm m(2, kWidth);
  return {[m](const Tensor& x) mutable { return m(x.transpose(1, 2)).transpose(1, 2); }, m.ptr()};
}

inline Layer make_dropout() {
  torch::nn::Dropout m(0.5);
  return {[m](const Tensor& x) mutable { return m(x); }, m.ptr()};
}

inline Layer make_rrelu() {
  torch::nn::RReLU m(torch::nn::RReLUOptions().inplace(true));
  return {[m](const Tensor& x) mutable { return m(x * 2); }, m.ptr()};
}

// Layers with a parameter and a random generator or buffers of their own.

struct OwnImpl : torch::nn::Module {
  OwnImpl()
      : table(register_parameter("table", torch::randn({5, kWidth}))),
        average(register_buffer("average", torch::zeros({kWidth}))),
        count(register_buffer("count", torch::zeros({}, torch::kLong))) {}
  Tensor table;
  Tensor average;
  Tensor count;
};

inline Layer make_own(std::function<Tensor(OwnImpl&, const Tensor&)> forward) {
  const auto own = std::make_shared<OwnImpl>();
  return {[own, forward = std::move(forward)](const Tensor& x) { return forward(*own, x); }, own};
}

inline Layer make_lookup() {
  const auto indices = torch::randint(5, {kBatch, kSteps}, torch::kLong);
  return make_own([indices](OwnImpl& own, const Tensor& x) {
    return (x + torch::embedding(own.table, indices)) * own.table[indices[0][0].item<int64_t>()];
  });
}

inline Layer make_average() {
  return make_own([](OwnImpl& own, const Tensor& x) {
    const auto before = own.average.clone();
    if (own.is_training()) {
      own.average.mul_(0.75).add_(x.detach().mean({0, 1}), 0.25);
      own.count.add_(1);
    }
    return x * (own.average + 1) + before * own.count.item<std::int64_t>();
  });
}

inline Layer make_normalised_weight() {
  return make_own([](OwnImpl& own, const Tensor& x) {
    {
      const torch::NoGradGuard no_grad;
      own.table.div_(own.table.norm() + 0.5);
    }
    return x.matmul((own.table * 2).t()).matmul(own.table * 1.5);
  });
}

inline Layer make_noise() {
  return make_own([](OwnImpl& own, const Tensor& x) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(own.count.item<std::int64_t>());
    own.count.add_(1);
    return x * torch::rand_like(x) + torch::empty({kWidth}).normal_(0, 1, generator) * own.table[0];
  });
}

// Functions.

inline Layer make_attention() {
  return {[](const Tensor& x) {
    const auto heads = x.reshape({kBatch, kSteps, 2, kWidth / 2}).transpose(1, 2);
    return torch::scaled_dot_product_attention(heads, heads.sin(), heads, {}, 0, true)
        .transpose(1, 2)
        .reshape({kBatch, kSteps, kWidth});
  }};
}

inline Layer make_attention_with_dropout() {
  return {[](const Tensor& x) {
    const auto q = x.unsqueeze(1);
    return torch::scaled_dot_product_attention(q, q, q, {}, 0.25).squeeze(1);
  }};
}

inline Layer make_relu_in_place() {
  return {[](const Tensor& x) { return (x * 1.5).relu_(); }};
}

inline Layer make_tanh_in_place() {
  return {[](const Tensor& x) { return x.mul(0.5).tanh_().add(1).sigmoid_(); }};
}

inline Layer make_shapes() {
  return {[](const Tensor& x) {
    const auto y = x.reshape({kBatch * kSteps, kWidth}).t().contiguous().view({kWidth, -1}).sin();
    return y.permute({1, 0}).reshape({kBatch, kSteps, kWidth}) * x.flip(1).select(0, 0);
  }};
}

inline Layer make_parts() {
  return {[](const Tensor& x) {
    const auto parts = x.split(2, /*dim=*/2);
    return torch::cat({parts[1].exp().sigmoid(), x.narrow(2, 0, 4).cos(), parts[3]}, 2);
  }};
}

inline Layer make_parts_in_place() {
  return {[](const Tensor& x) {
    auto y = x * 1;
    y.narrow(1, 0, 2).mul_(2).add_(x.narrow(1, 1, 2));
    y.select(2, 0).copy_(x.select(2, 1).exp().sigmoid());
    y.index_put_({torch::tensor({1})}, torch::ones({1}), /*accumulate=*/true);
    return y.sin();
  }};
}

inline Layer make_activation() {
  return {[](const Tensor& x) { return torch::softmax(torch::gelu(x), -1) * torch::silu(x); }};
}

inline Layer make_product() {
  return {[](const Tensor& x) { return torch::bmm(x, x.transpose(1, 2)).tanh().matmul(x); }};
}

struct SquareOfSine : torch::autograd::Function<SquareOfSine> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x) {
    const auto sine = x.sin();
    context->save_for_backward({x, sine});
    return sine * sine;
  }
  static Tensors backward(torch::autograd::AutogradContext* context, Tensors gradients) {
    const auto saved = context->get_saved_variables();
    return {gradients[0] * 2 * saved[1] * saved[0].cos()};
  }
};

inline Layer make_user_function() {
  return {[](const Tensor& x) { return SquareOfSine::apply(x.exp().sigmoid()) + x; }};
}

struct Kind {
  const char* name;
  Layer (*make)();
};

inline constexpr std::array<Kind, 26> kKinds = {{
    {"linear", make_linear},
    {"tanh_", make_tanh_in_place},
    {"relu_", make_relu_in_place},
    {"dropout", make_dropout},
    {"activation", make_activation},
    {"shapes", make_shapes},
    {"parts", make_parts},
    {"parts_", make_parts_in_place},
    {"product", make_product},
    {"user_function", make_user_function},
    {"layer_norm", make_layer_norm},
    {"group_norm", make_group_norm},
    {"batch_norm", make_batch_norm},
    {"cumulative_batch_norm", make_cumulative_batch_norm},
    {"average", make_average},
    {"lookup", make_lookup},
    {"normalised_weight", make_normalised_weight},
    {"noise", make_noise},
    {"rrelu_", make_rrelu},
    {"attention", make_attention},
    {"attention_with_dropout", make_attention_with_dropout},
    {"multihead_attention", make_multihead_attention},
    {"conv1d", make_conv1d},
    {"conv2d", make_conv2d},
    {"lstm", make_lstm},
    {"gru", make_gru},
}};

}  // namespace reprise::random_stacks
