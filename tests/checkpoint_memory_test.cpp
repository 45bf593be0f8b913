// SPDX-License-Identifier: Apache-2.0
/// What regions keep, and when they let go of it: measured, not computed. The ids are those of
/// faults that people met in other systems.
#include "reprise/checkpoint.h"

#include "tests/checkpoint_testing.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/allocation_recorder.h"

namespace reprise {
namespace {

using testing::AllocationRecorder;
using testing::Caller;
using ::testing::HasSubstr;
using testing::random_leaf;
using testing::random_tensor;
using testing::StorageWatch;
using testing::Tensors;
using torch::Tensor;

constexpr std::int64_t kElements = 16 * 1024;
constexpr std::int64_t kBytes = kElements * 4;  // of one activation

/// Four operators, each of which saves one activation.
Tensor block(const Tensor& t) {
  return t.sigmoid().tanh().exp().sigmoid();
}

using Forward = std::function<Tensor(const Caller&, const Tensor&)>;

/// Peak of a forward and a backward pass, the gradient included.
std::int64_t peak_bytes_of(const Forward& forward, const Caller& call) {
  const auto x = random_leaf({kElements});
  const AllocationRecorder recorder;
  forward(call, x).sum().backward();
  return recorder.peak_bytes();
}

// B25
TEST(CheckpointMemory, OfEightBlocksPeaksBelowHalfOfPlain) {
  const Forward forward = [](const Caller& call, const Tensor& x) {
    auto y = x;
    for (int i = 0; i < 8; ++i) y = call(block, y);
    return y;
  };
  const auto plain = peak_bytes_of(forward, Caller());
  EXPECT_GE(plain, 8 * 4 * kBytes);  // blocks * activations
  for (const auto& options : testing::options_without_policy())
    EXPECT_LT(peak_bytes_of(forward, Caller(options)), plain / 2) << options.name;
}

// B38: the whole model as one region cannot save anything, and must not cost much.
TEST(CheckpointMemory, OfOneRegionPeaksLittleAbovePlain) {
  const Forward forward = [](const Caller& call, const Tensor& x) {
    return call([](const Tensor& t) { return block(block(block(block(t)))); }, x);
  };
  const auto plain = peak_bytes_of(forward, Caller());
  // The result of forward is still there.
  EXPECT_LE(peak_bytes_of(forward, Caller(CheckpointOptions{})), plain + 2 * kBytes);
}

TEST(CheckpointMemory, HoldsTheInputsAndNothingElseBetweenForwardAndBackward) {
  for (const auto& options : testing::options_without_policy()) {
    SCOPED_TRACE(options.name);
    const auto x = random_leaf({kElements});
    const AllocationRecorder recorder;
    const auto y = checkpoint(options, block, x);
    EXPECT_EQ(recorder.live_bytes(), kBytes);  // the result
    const auto dropped =
        checkpoint(options, [](const Tensor& t) { return torch::dropout(t.exp(), 0.5, true); }, x);
    EXPECT_LE(recorder.live_bytes(), 2 * kBytes + 8 * 1024);  // and the generator's state
  }
}

TEST(CheckpointMemory, HoldsTheEarlierValuesOfBuffersOnly) {
  const auto x = random_leaf({16, 1024});
  torch::nn::BatchNorm1d norm(1024);
  const AllocationRecorder recorder;
  const auto y = checkpoint([&](const Tensor& t) { return norm(t.exp()); }, x);
  // The result; mean, variance and a counter from before.
  EXPECT_LE(recorder.live_bytes(), kBytes + 2 * 1024 * 4 + 1024);
}

// B5: an outer region keeps none of the inputs of the regions in it, in whatever they lie.
struct Pair {
  Tensor a;
  std::optional<Tensor> b;
};

}  // namespace

template <>
struct TensorFields<Pair> {
  static auto fields(Pair& pair) { return std::tie(pair.a, pair.b); }
};

namespace {

TEST(CheckpointMemory, OfNestedRegionsIsThatOfTheOuterOne) {
  StorageWatch inside;
  const auto outer = [&](const Tensor& t) {
    const Pair pair{t.exp(), t.sin()};
    const auto list = Tensors{t.cos()};
    auto y = checkpoint([](const Pair& p) { return (p.a * *p.b).tanh(); }, pair);
    auto z = checkpoint([](const Tensors& in) { return in[0].exp().sin(); }, list);
    if (!in_recompute()) {
      for (const auto& tensor : {pair.a, *pair.b, list[0], y, z}) inside.add(tensor);
    }
    return y.sigmoid() * z;
  };
  const auto x = random_leaf({8});
  const auto y = checkpoint(outer, x);
  EXPECT_EQ(inside.count(), 5U);
  EXPECT_EQ(inside.count_alive(), 0U);
  y.sum().backward();
}

// B25, B26: what was computed again is gone as soon as it has been used.
TEST(CheckpointMemory, OfARecomputationIsFreedWithTheGraphStillThere) {
  StorageWatch recomputed;
  const auto f = [&](const Tensor& t) {
    auto y = t;
    for (int i = 0; i < 4; ++i) {
      y = y.sigmoid();
      if (in_recompute()) recomputed.add(y);
    }
    return y;
  };
  for (const auto& options : testing::options_without_policy()) {
    SCOPED_TRACE(options.name);
    recomputed = StorageWatch();
    const auto x = random_leaf({8});
    const auto y = checkpoint(options, f, x).sum();
    y.backward({}, /*retain_graph=*/true);
    EXPECT_GE(recomputed.count(), 3U);  // the run is stopped in the last operator
    EXPECT_EQ(recomputed.count_alive(), 0U);
    const auto gradient = torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true);
    EXPECT_TRUE(gradient[0].requires_grad());
  }
}

TEST(CheckpointMemory, OfABackwardPassInsideIsFreedAfterForward) {
  StorageWatch made;
  const auto x = random_leaf({8});
  const auto y = checkpoint(
      [&](const Tensor& t) {
        auto z = t;
        for (int i = 0; i < 4; ++i) {
          z = z.sigmoid();
          made.add(z);
        }
        return z * torch::autograd::grad({z.sum()}, {t}, {}, true)[0].detach().sum();
      },
      x);
  EXPECT_EQ(made.count_alive(), 0U);
  y.sum().backward();
}

// An input to which no gradient flows keeps nothing of what made it.
TEST(CheckpointMemory, OfAnInputIsNotThatOfItsHistory) {
  const auto weight = random_leaf({8});
  Tensor y = random_leaf({8});
  for (int i = 0; i < 20000; ++i)
    y = checkpoint([weight](const Tensor& t) { return (weight * t.detach()).sin(); }, y);
  y.sum().backward();
  EXPECT_TRUE(weight.grad().defined());
  y = Tensor();  // destroys a chain
}

// B26: every end of a region's life.
struct Life {
  std::string name;
  std::function<void(Tensor&)> end;  // of the result
};

std::vector<Life> lives() {
  return {
      {"Backward", [](Tensor& y) { y.sum().backward(); }},
      {"Dropped", [](Tensor& y) { y.reset(); }},
      {"BackwardWithRetainedGraph",
       [](Tensor& y) {
         y.sum().backward({}, true);
         y.reset();
       }},
      {"DoubleBackward",
       [](Tensor& y) {
         const auto x = random_leaf({8}, 2);
         y = (y * x).sum();
         auto first = torch::autograd::grad({y}, {x}, {}, true, true)[0];
         first.sum().backward();
         y.reset();
       }},
      {"BackwardThatFails",
       [](Tensor& y) {
         y.register_hook([](const Tensor&) { throw std::runtime_error("a hook"); });
         EXPECT_THAT(testing::error_of([&] { y.sum().backward(); }), HasSubstr("a hook"));
         y.reset();
       }},
      {"BackwardOfADetachedResult", [](Tensor& y) { y = y.detach(); }},
  };
}

/// The result of a region in a region, with a buffer and random numbers, that holds `token`.
Tensor region_that_holds(const std::shared_ptr<Tensor>& token, const CheckpointOptions& options) {
  const auto buffer = torch::zeros({8});
  const auto f = [token, buffer](const Tensor& t) {
    buffer.add_(1);
    const auto inner = [token](const Tensor& u) {
      return (u * *token).exp();
    };
    return torch::dropout(checkpoint(inner, t.sin()).sigmoid(), 0.5, true) + buffer;
  };
  return checkpoint(options, f, random_leaf({8}));
}

TEST(CheckpointMemory, IsFreedAtEveryEndOfARegion) {
  for (const auto& [name, end] : lives()) {
    for (const auto& options : testing::all_options()) {
      SCOPED_TRACE(name + ", " + options.name);
      auto token = std::make_shared<Tensor>(random_tensor({8}, 5));
      const std::weak_ptr<Tensor> function_lives = token;
      auto y = region_that_holds(token, options);
      token.reset();
      EXPECT_FALSE(function_lives.expired());
      end(y);
      EXPECT_TRUE(function_lives.expired());
    }
  }
}

TEST(CheckpointMemory, IsFreedAfterARecomputationThatFailed) {
  auto token = std::make_shared<int>(0);
  const std::weak_ptr<int> function_lives = token;
  StorageWatch inside;
  {
    auto y = checkpoint(
        [&inside, token = std::move(token)](const Tensor& t) {
          auto z = t.exp().sin();
          inside.add(z);
          if (in_recompute()) throw std::runtime_error("out of luck");
          return z.tanh();
        },
        random_leaf({8}));
    EXPECT_THAT(testing::error_of([&] { y.sum().backward({}, true); }), HasSubstr("out of luck"));
    EXPECT_EQ(inside.count(), 2U);
    EXPECT_EQ(inside.count_alive(), 0U);
    EXPECT_FALSE(function_lives.expired());
  }
  EXPECT_TRUE(function_lives.expired());
}

// B26: a function that holds its own result, as a module that caches its output.
TEST(CheckpointMemory, IsFreedAfterBackwardWhenTheFunctionHoldsItsResult) {
  auto cache = std::make_shared<Tensor>();
  const std::weak_ptr<Tensor> cache_lives = cache;
  const auto x = random_leaf({8});
  {
    auto y = checkpoint(
        [cache](const Tensor& t) {
          *cache = t.exp().sin();
          return *cache;
        },
        x);
    cache.reset();
    y.sum().backward();
  }
  EXPECT_TRUE(cache_lives.expired());
}

// B27
TEST(CheckpointMemory, ReturnsToWhereItWas) {
  for (const bool runs_backward : {false, true}) {
    for (const auto& options : testing::all_options()) {
      SCOPED_TRACE(options.name);
      torch::nn::BatchNorm1d norm(8);
      const auto x = random_leaf({4, 8});
      x.mutable_grad() = torch::zeros({4, 8});
      for (const auto& parameter : norm->parameters())
        parameter.mutable_grad() = torch::zeros_like(parameter);
      const AllocationRecorder recorder;
      for (int i = 0; i < 3; ++i) {
        const auto y = checkpoint(
            options, [&](const Tensor& t) { return norm(torch::dropout(t.exp(), 0.5, true)); }, x);
        if (runs_backward) y.sum().backward();
      }
      EXPECT_EQ(recorder.live_bytes(), 0);
      EXPECT_GT(recorder.peak_bytes(), 0);
    }
  }
}

}  // namespace
}  // namespace reprise
