// SPDX-License-Identifier: Apache-2.0
/// Settings that a second run must meet as the first one did, and leave alone: autocast, default
/// type, threads. The ids are those of
/// faults that people met in other systems.
#include "reprise/checkpoint.h"

#include "tests/checkpoint_testing.h"

#include <ATen/Parallel.h>
#include <c10/core/DefaultDtype.h>
#include <torch/torch.h>

#include <stdexcept>
#include <tuple>
#include <vector>

namespace reprise {
namespace {

using testing::AutocastScope;
using testing::Caller;
using testing::expect_exact;
using testing::random_leaf;
using testing::Tensors;
using torch::Tensor;

// B31 a: weights that autocast has cast and cached, inside, outside, before and after.
class CheckpointUnderAutocast : public testing::SeededTest {
 protected:
  Tensor inside(const Tensor& t) { return layer_(torch::dropout(layer_(t).relu(), 0.5, true)); }
  testing::Watched watched() const { return {{x_, layer_->weight, layer_->bias}}; }

  torch::nn::Linear layer_{8, 8};
  Tensor x_ = random_leaf({4, 8}, 2);
};

TEST_F(CheckpointUnderAutocast, SharesCachedWeightsWithTheOutside) {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    for (const int uses : {0, 1, 2, 3}) {  // outside before, outside after
      SCOPED_TRACE(uses);
      expect_exact(
          [&](const Caller& call) {
            const AutocastScope autocast(type);
            auto y = (uses & 1) != 0 ? layer_(x_) : x_ * 1;
            y = call([this](const Tensor& t) { return inside(t); }, y);
            y = call([this](const Tensor& t) { return inside(t); }, y);
            if ((uses & 2) != 0) y = layer_(y);
            return y.to(torch::kFloat);
          },
          watched());
    }
  }
}

// B32
TEST_F(CheckpointUnderAutocast, RecomputesUnderThatOfForwardWhereverBackwardRuns) {
  for (const auto& options : testing::all_options()) {
    SCOPED_TRACE(options.name);
    const auto run = [&](const Caller& call) {
      torch::manual_seed(5);
      Tensor y;
      {
        const AutocastScope autocast(at::kBFloat16);
        y = call([this](const Tensor& t) { return inside(t); }, x_);
      }
      const auto loss = y.to(torch::kFloat).pow(2).sum();
      Tensors all;
      const auto backward = [&] {
        testing::append(all, torch::autograd::grad({loss}, watched().leaves, {}, true));
      };
      backward();
      EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
      const AutocastScope other(at::kHalf);
      backward();
      EXPECT_TRUE(at::autocast::is_autocast_enabled(at::kCPU));
      EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), at::kHalf);
      all.push_back(layer_(x_));  // what the cache gives after it
      return all;
    };
    testing::expect_same_bytes(run(Caller(options)), run(Caller()));
  }
}

TEST_F(CheckpointUnderAutocast, FollowsTheScopesOfTheFunction) {
  const auto f = [this](const Tensor& t) {
    auto y = inside(t);
    {
      const AutocastScope autocast(at::kBFloat16);
      y = inside(y.to(torch::kFloat));
      const AutocastScope off(at::kBFloat16, false);
      y = inside(y.to(torch::kFloat));
    }
    return inside(y.to(torch::kFloat)).to(torch::kFloat);
  };
  expect_exact([&](const Caller& call) { return call(f, x_); }, watched());
  expect_exact(
      [&](const Caller& call) {
        const AutocastScope autocast(at::kBFloat16);  // LibTorch's cache ignores the type
        return call(f, call(f, x_));
      },
      watched());
}

TEST_F(CheckpointUnderAutocast, WorksWithoutTheCache) {
  at::autocast::set_autocast_cache_enabled(false);
  expect_exact(
      [&](const Caller& call) {
        const AutocastScope autocast(at::kBFloat16);
        return call([this](const Tensor& t) { return inside(inside(t)); }, x_).to(torch::kFloat);
      },
      watched());
  at::autocast::set_autocast_cache_enabled(true);
}

// The second run is ended between the beginning and the end of autocast.
TEST_F(CheckpointUnderAutocast, ThatTheFunctionNestsByHandIsPutBack) {
  const auto f = [this](const Tensor& t) {
    at::autocast::increment_nesting();
    at::autocast::set_autocast_enabled(at::kCPU, true);
    auto y = layer_(t.sin()).to(torch::kFloat) + 1;
    at::autocast::set_autocast_enabled(at::kCPU, false);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    return y;
  };
  checkpoint(f, x_).sum().backward();
  EXPECT_EQ(at::autocast::increment_nesting(), 1);
  EXPECT_EQ(at::autocast::decrement_nesting(), 0);
}

// B31 b: equal values, of which an operator may choose any.
TEST(CheckpointOfTies, ChoosesTheSameAgain) {
  const auto x = random_leaf({4, 64}, 2);
  expect_exact(
      [&](const Caller& call) {
        return call(
            [](const Tensor& t) {
              const auto tied = t.sign() + 0 * t;
              const auto [values, indices] = tied.topk(5, 1);
              const auto [sorted, order] = tied.sort(1);
              return values.exp() * t.gather(1, indices) * t.gather(1, order.narrow(1, 0, 5)) +
                     std::get<0>(tied.max(1, true));
            },
            x);
      },
      {{x}});
}

/// Global and thread-local settings, as a function finds them.
struct Environment {
  at::ScalarType default_type = c10::get_default_dtype_as_scalartype();
  int threads = at::get_num_threads();
  bool has_gradients = torch::GradMode::is_enabled();
  bool has_autocast = at::autocast::is_autocast_enabled(at::kCPU);
  at::ScalarType autocast_type = at::autocast::get_autocast_dtype(at::kCPU);
  bool has_autocast_cache = at::autocast::is_autocast_cache_enabled();

  bool operator==(const Environment&) const = default;
};

/// Other settings than the usual ones.
class OtherEnvironment {
 public:
  OtherEnvironment() {
    c10::set_default_dtype(caffe2::TypeMeta::Make<double>());
    at::set_num_threads(3);
  }
  ~OtherEnvironment() {
    c10::set_default_dtype(caffe2::TypeMeta::Make<float>());
    at::set_num_threads(threads_);
  }
  OtherEnvironment(const OtherEnvironment&) = delete;
  OtherEnvironment& operator=(const OtherEnvironment&) = delete;

 private:
  int threads_ = at::get_num_threads();
  AutocastScope autocast_{at::kHalf};
};

TEST(CheckpointEnvironment, IsThatOfForwardAndIsPutBack) {
  const auto x = random_leaf({4, 8}, 2);
  const Environment usual;
  std::vector<Environment> seen;
  bool fails = false;
  const auto f = [&](const Tensor& t) {
    seen.emplace_back();
    auto y = t.exp() * torch::ones({8});  // of the default type
    if (in_recompute() && fails) throw std::runtime_error("out of luck");
    return y.sin().exp();
  };
  Tensor other_first;
  {
    const OtherEnvironment other;
    other_first = checkpoint(f, x).sum();
    EXPECT_EQ(other_first.scalar_type(), torch::kDouble);
  }
  const auto usual_first = checkpoint(f, x).sum();
  ASSERT_NE(seen[0], seen[1]);
  // What a recomputation casts is no concern of later passes.
  for (auto& environment : seen) environment.has_autocast_cache = false;
  for (const bool failing : {true, false}) {
    fails = failing;
    const auto expect_backward = [&](const Tensor& y) {
      EXPECT_EQ(testing::error_of([&] { y.backward({}, true); }) != "", failing);
    };
    expect_backward(other_first);
    EXPECT_EQ(Environment(), usual);
    EXPECT_EQ(seen.back(), seen[0]);
    const OtherEnvironment other;
    const Environment before;
    expect_backward(usual_first);
    EXPECT_EQ(Environment(), before);
    EXPECT_EQ(seen.back(), seen[1]);
  }
}

TEST(CheckpointEnvironment, IsPutBackWhereTheFunctionChangesIt) {
  const auto x = random_leaf({4, 8}, 2);
  const Environment usual;
  const auto f = [](const Tensor& t) {
    auto y = t.exp();
    const OtherEnvironment other;
    const torch::NoGradGuard no_grad;
    const auto noise = torch::randn({8});
    const torch::AutoGradMode with_gradients(true);
    return (y * noise).sin();  // the second run stops here
  };
  expect_exact(
      [&](const Caller& call) {
        const auto y = call(f, x);
        EXPECT_EQ(y.scalar_type(), torch::kDouble);
        return y;
      },
      {{x}});
  EXPECT_EQ(Environment(), usual);
  EXPECT_FALSE(in_recompute());
}

TEST(CheckpointEnvironment, IncludesBuffersAndGeneratorsAfterAnError) {
  const auto x = random_leaf({4, 8}, 2);
  const auto buffer = torch::zeros({8});
  auto generator = at::make_generator<at::CPUGeneratorImpl>(4);
  bool fails = true;
  const auto f = [&](const Tensor& t) {
    buffer.add_(torch::rand({8}, generator));
    auto y = torch::dropout(t.exp() + buffer, 0.5, true).sin();
    if (in_recompute() && fails) throw std::runtime_error("out of luck");
    return y.exp();
  };
  torch::manual_seed(8);
  const auto expected = torch::autograd::grad({f(x).sum()}, {x})[0];
  buffer.zero_();
  generator.set_current_seed(4);
  torch::manual_seed(8);
  const auto y = checkpoint(f, x).sum();
  const auto state = [&] {
    return Tensors{buffer.clone(), generator.get_state(),
                   at::detail::getDefaultCPUGenerator().get_state()};
  };
  const auto before = state();
  EXPECT_NE(testing::error_of([&] { torch::autograd::grad({y}, {x}, {}, true); }), "");
  testing::expect_same_bytes(state(), before);
  fails = false;
  EXPECT_TRUE(testing::is_same_bytes(torch::autograd::grad({y}, {x})[0], expected));
  testing::expect_same_bytes(state(), before);
}

}  // namespace
}  // namespace reprise
