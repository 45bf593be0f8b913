// SPDX-License-Identifier: Apache-2.0
/// Buffers that a region's function changes: running statistics, counters, caches. The ids are
/// those of faults that people met in other systems.
#include "reprise/checkpoint.h"

#include "tests/checkpoint_testing.h"

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace reprise {
namespace {

using testing::Caller;
using testing::clones_of;
using testing::expect_exact;
using testing::random_leaf;
using testing::random_tensor;
using testing::Tensors;
using torch::Tensor;

struct Buffers {
  Tensor mean = torch::zeros({8});
  Tensor variance = torch::ones({8});
  Tensor cache = random_tensor({4, 8}, 21);
  Tensor counter = torch::zeros({}, torch::kLong);
  Tensor table = random_leaf({5, 8}, 22);  // a parameter

  Tensors all() const { return {mean, variance, cache, counter, table}; }
};

struct Update {
  std::string name;
  std::function<Tensor(const Tensor&, Buffers&)> function;
};

void PrintTo(const Update& update, std::ostream* out) {
  *out << update.name;
}

std::vector<Update> announced_updates() {
  const auto mean_of = [](const Tensor& t) {
    return t.detach().mean(0);
  };
  return {
      {"Counter",
       [](const Tensor& t, Buffers& b) {
         b.counter.add_(1);
         return (t * b.counter.item<std::int64_t>()).exp();
       }},
      {"ReadThenUpdate",
       [=](const Tensor& t, Buffers& b) {
         auto y = (t * b.mean.clone()).exp();
         b.mean.lerp_(mean_of(t), 0.1);
         return y.sin();
       }},
      {"UpdateThenRead",
       [=](const Tensor& t, Buffers& b) {
         b.mean.mul_(0.9).add_(mean_of(t), 0.1);
         return (t * b.mean.clone()).exp();
       }},
      {"UpdateReadUpdate",
       [=](const Tensor& t, Buffers& b) {
         b.mean.add_(1);
         auto y = (t + b.mean).exp();
         b.mean.mul_(2);
         return (y + b.mean).sin();
       }},
      {"View",
       [](const Tensor& t, Buffers& b) {
         auto y = (t + b.cache).exp();
         b.cache.narrow(0, 1, 2).mul_(2);
         b.cache.select(0, 0).copy_(t.detach()[1]);
         return (y + b.cache.transpose(0, 1).contiguous().t()).sin();
       }},
      {"Indexed",
       [](const Tensor& t, Buffers& b) {
         b.cache.index_put_({b.counter.view({1})}, t.detach().mean(0, true));
         b.cache.index_add_(0, torch::tensor({3}), t.detach().mean(0, true));
         return (t + b.cache).exp();
       }},
      {"OutVariant",
       [=](const Tensor& t, Buffers& b) {
         at::add_out(b.mean, b.mean, mean_of(t));
         return (t + b.mean).exp();
       }},
      {"Foreach",
       [](const Tensor& t, Buffers& b) {
         at::_foreach_add_({b.mean, b.variance}, 0.5);
         return (t * b.variance.clone() + b.mean).exp();
       }},
      {"ThroughDetach",
       [=](const Tensor& t, Buffers& b) {
         b.mean.detach().add_(mean_of(t));
         return (t + b.mean).exp();
       }},
      {"ThroughData",
       [=](const Tensor& t, Buffers& b) {
         b.mean.data().add_(mean_of(t));
         return (t + b.mean).exp();
       }},
      {"FilledWithRandomNumbers",
       [](const Tensor& t, Buffers& b) {
         b.cache.normal_();
         return (t + b.cache).exp() * torch::rand({8});
       }},
      {"SwappedByCopies",
       [](const Tensor& t, Buffers& b) {
         const auto old = b.mean.clone();
         b.mean.copy_(b.variance);
         b.variance.copy_(old);
         return (t + b.mean).exp() + b.variance;
       }},
  };
}

std::vector<Update> silent_updates() {
  return {
      {"BatchNorm",
       [](const Tensor& t, Buffers& b) {
         return torch::batch_norm(t, {}, {}, b.mean, b.variance, true, 0.1, 1e-5, false);
       }},
      {"NativeBatchNorm",
       [](const Tensor& t, Buffers& b) {
         return std::get<0>(at::native_batch_norm(t, {}, {}, b.mean, b.variance, true, 0.1, 1e-5));
       }},
      {"BatchNormUpdateStatistics",
       [](const Tensor& t, Buffers& b) {
         at::batch_norm_update_stats(t.detach(), b.mean, b.variance, 0.1);
         return (t + b.mean).exp() + b.variance;
       }},
      {"InstanceNorm",
       [](const Tensor& t, Buffers& b) {
         const auto image = t.view({2, 8, 2});
         return torch::instance_norm(image, {}, {}, b.mean, b.variance, true, 0.1, 1e-5, false)
             .view({4, 8});
       }},
      {"EmbeddingWithMaximumNorm",
       [](const Tensor& t, Buffers& b) {
         const auto options = torch::nn::functional::EmbeddingFuncOptions().max_norm(0.5);
         const auto indices = torch::tensor({0, 3, 3, 1});
         return (t + torch::nn::functional::embedding(indices, b.table, options)).exp();
       }},
      {"ParameterWithoutGradientMode",
       [](const Tensor& t, Buffers& b) {
         {
           const torch::NoGradGuard no_grad;
           b.table.div_(b.table.norm() + 0.1);
         }
         return (t * (b.table * 1).narrow(0, 0, 4)).exp();
       }},
      {"Observer",
       [](const Tensor& t, Buffers& b) {
         const auto on = torch::ones({1}, torch::kLong);
         auto low = b.mean.narrow(0, 0, 1);
         auto high = b.mean.narrow(0, 1, 1);
         auto scale = b.variance.narrow(0, 0, 1);
         auto zero_point = torch::zeros({1}, torch::kInt);
         return at::fused_moving_avg_obs_fake_quant(t, on, on, low, high, scale, zero_point, 0.1, 0,
                                                    255, 0);
       }},
  };
}

std::vector<Update> updates() {
  auto all = announced_updates();
  for (auto& update : silent_updates()) all.push_back(std::move(update));
  return all;
}

class CheckpointOfBuffers : public ::testing::TestWithParam<Update> {};

// B15, trap 5: once, and the second run meets what the first one met.
TEST_P(CheckpointOfBuffers, ChangesCapturedOnesOnce) {
  const auto& update = GetParam().function;
  const auto x = random_leaf({4, 8}, 2);
  Buffers buffers;
  const auto f = [&](const Tensor& t) {
    return update(t.sin(), buffers).tanh();
  };
  const testing::Watched watched = {{x, buffers.table}, buffers.all()};
  expect_exact([&](const Caller& call) { return call(f, x); }, watched);
  expect_exact(
      [&](const Caller& call) {  // all of them forward before the first goes backward
        const auto nested = [&](const Tensor& t) {
          return call(f, t + 1);
        };
        return call(f, call(nested, call(f, x))) + call(f, x);
      },
      watched);
}

TEST_P(CheckpointOfBuffers, ChangesInputsOnce) {
  const auto& update = GetParam().function;
  const auto x = random_leaf({4, 8}, 2);
  const Buffers buffers;
  const auto f = [&](const Tensor& t, const Tensors& state) {
    Buffers inside{state[0], state[1], state[2], state[3], buffers.table};
    return update(t.sin(), inside).tanh();
  };
  const Tensors state = {buffers.mean, buffers.variance, buffers.cache, buffers.counter};
  expect_exact([&](const Caller& call) { return call(f, call(f, x, state), state); },
               {{x, buffers.table}, buffers.all()});
}

TEST_P(CheckpointOfBuffers, ChangesThemInForwardAndNotInBackward) {
  const auto& update = GetParam().function;
  for (const auto& options : testing::all_options()) {
    SCOPED_TRACE(options.name);
    Buffers plain;
    Buffers checkpointed;
    const auto x = random_leaf({4, 8}, 2);
    torch::manual_seed(9);
    update(x, plain);
    torch::manual_seed(9);
    const auto y = checkpoint(options, [&](const Tensor& t) { return update(t, checkpointed); }, x);
    testing::expect_same_bytes(checkpointed.all(), plain.all());  // B16
    const auto after_forward = clones_of(checkpointed.all());
    y.sum().backward({}, true);
    y.sum().backward();
    testing::expect_same_bytes(checkpointed.all(), after_forward);
  }
}

INSTANTIATE_TEST_SUITE_P(Updates, CheckpointOfBuffers, ::testing::ValuesIn(updates()),
                         ::testing::PrintToStringParamName());

/// Parameters and buffers after three steps of training.
template <typename Norm, typename... Arguments>
Tensors after_three_steps(const Caller& call, at::IntArrayRef sizes, Arguments... arguments) {
  torch::manual_seed(4);
  Norm norm(arguments...);
  torch::optim::SGD optimizer(norm->parameters(), 0.1);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const auto x = random_tensor(sizes, step);
    const auto y =
        call([norm](const Tensor& t) mutable { return norm->forward(t.sin()).exp(); }, x);
    optimizer.zero_grad();
    y.sum().backward();
    optimizer.step();
  }
  auto result = norm->parameters();
  testing::append(result, norm->buffers());
  return result;
}

TEST(CheckpointOfBatchNorm, TrainsAsPlain) {
  const auto cumulative = torch::nn::BatchNormOptions(3).momentum(std::nullopt);
  const auto tracking = torch::nn::InstanceNormOptions(3).affine(true).track_running_stats(true);
  for (const auto& options : testing::all_options()) {
    SCOPED_TRACE(options.name);
    const Caller plain;
    const Caller call(options);
    using testing::expect_same_bytes;
    expect_same_bytes(after_three_steps<torch::nn::BatchNorm1d>(call, {4, 3}, 3),
                      after_three_steps<torch::nn::BatchNorm1d>(plain, {4, 3}, 3));
    expect_same_bytes(after_three_steps<torch::nn::BatchNorm1d>(call, {4, 3}, cumulative),
                      after_three_steps<torch::nn::BatchNorm1d>(plain, {4, 3}, cumulative));
    expect_same_bytes(after_three_steps<torch::nn::BatchNorm2d>(call, {4, 3, 2, 2}, 3),
                      after_three_steps<torch::nn::BatchNorm2d>(plain, {4, 3, 2, 2}, 3));
    expect_same_bytes(after_three_steps<torch::nn::BatchNorm3d>(call, {4, 3, 2, 2, 2}, 3),
                      after_three_steps<torch::nn::BatchNorm3d>(plain, {4, 3, 2, 2, 2}, 3));
    expect_same_bytes(after_three_steps<torch::nn::InstanceNorm1d>(call, {4, 3, 2}, tracking),
                      after_three_steps<torch::nn::InstanceNorm1d>(plain, {4, 3, 2}, tracking));
  }
}

TEST(CheckpointOfABuffer, LeavesWhatOthersWroteToItSince) {
  const auto x = random_leaf({4, 8}, 2);
  expect_exact(
      [&](const Caller& call) {
        const auto buffer = torch::ones({8});
        const auto y = call(
            [buffer](const Tensor& t) {
              buffer.mul_(2);
              return (t + buffer).exp();
            },
            x);
        buffer.fill_(5);
        (y * 1).sum().backward({}, true, false, {x});
        x.mutable_grad().reset();
        return y * buffer;
      },
      {{x}});
}

// A buffer that turns into part of the graph.
TEST(CheckpointOfACapturedTensor, ThatTheFunctionMakesDifferentiableIsExact) {
  const auto x = random_leaf({4, 8}, 2);
  expect_exact(
      [&](const Caller& call) {
        const auto sum = torch::zeros({4, 8});
        const auto y = call(
            [sum](const Tensor& t) {
              sum.add_(t.exp());
              return t.sin();
            },
            x);
        return y * sum;
      },
      {{x}}, testing::options_without_policy());
}

}  // namespace
}  // namespace reprise
