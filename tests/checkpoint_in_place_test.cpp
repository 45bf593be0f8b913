// SPDX-License-Identifier: Apache-2.0
/// Functions that change tensors in place, and results that are inputs or views. The ids are those
/// of faults that people met in other systems.
#include "reprise/checkpoint.h"

#include "tests/checkpoint_testing.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

namespace reprise {
namespace {

using testing::Caller;
using testing::expect_exact;
using ::testing::HasSubstr;
using testing::random_leaf;
using testing::random_tensor;
using torch::Tensor;

// B29
struct InPlaceCase {
  std::string operator_name;
  std::function<void(Tensor)> change;
};

const std::vector<InPlaceCase>& in_place_cases() {
  static const std::vector<InPlaceCase> cases = {
      {"aten::mul_", [](const Tensor& t) { t.mul_(2); }},
      {"aten::relu_", [](Tensor t) { torch::relu_(t); }},
      {"aten::zero_", [](const Tensor& t) { t.zero_(); }},
      {"aten::copy_", [](const Tensor& t) { t.copy_(torch::ones({4, 8})); }},
      {"aten::mul_", [](const Tensor& t) { t.narrow(0, 1, 2).mul_(2); }},
      {"aten::fill_", [](const Tensor& t) { t.view({-1}).select(0, 3).fill_(2); }},
      {"aten::add_", [](const Tensor& t) { t.transpose(0, 1).add_(2); }},
  };
  return cases;
}

TEST(CheckpointInPlace, OnAnInputWithAGradientIsExact) {
  const auto leaf = random_leaf({4, 8});
  for (const auto& [operator_name, change] : in_place_cases()) {
    SCOPED_TRACE(operator_name);
    const auto f = [change = change](const Tensor& t) {
      const auto before = (t + 1).exp();
      change(t);
      return before + t.exp();
    };
    expect_exact(
        [&](const Caller& call) {
          const auto x = leaf * 1;
          return call(f, x) * x;  // x is the changed one
        },
        {{leaf}});
    expect_exact(
        [&](const Caller& call) {
          return call([f, call](const Tensor& t) { return call(f, t).cos() + t; }, leaf * 1).exp();
        },
        {{leaf}});
  }
}

TEST(CheckpointInPlace, OnAnInputLeavesNothingBehindWithoutBackward) {
  const auto leaf = random_leaf({4, 8});
  auto token = std::make_shared<int>(0);
  const std::weak_ptr<int> released = token;
  {
    const auto x = leaf * 1;
    checkpoint([token](const Tensor& t) { return t.mul_(2).exp(); }, x);
    token.reset();
  }
  EXPECT_TRUE(released.expired());
}

TEST(CheckpointInPlace, OnACapturedTensorWithAGradientIsRefusedInForward) {
  const auto leaf = random_leaf({4, 8});
  for (const auto& [operator_name, change] : in_place_cases()) {
    SCOPED_TRACE(operator_name);
    const auto x = leaf * 1;
    const auto before = x.detach().clone();
    const auto version = x._version();
    const auto f = [&, change = change](const Tensor& t) {
      change(x);
      return t * x;
    };
    EXPECT_THAT(testing::checkpoint_error_of([&] { checkpoint(f, leaf); }),
                HasSubstr(operator_name));
    EXPECT_TRUE(testing::is_same_bytes(x, before));
    EXPECT_EQ(x._version(), version);
  }
}

TEST(CheckpointInPlace, ThatIsRefusedIsRefusedWhereTheFunctionCatchesErrors) {
  const auto leaf = random_leaf({4, 8});
  const auto x = leaf * 1;
  const auto f = [&](const Tensor& t) {
    try {
      x.mul_(2);
    } catch (const c10::Error&) {
    }
    return t * x;
  };
  EXPECT_THAT(testing::checkpoint_error_of([&] { checkpoint(f, leaf); }), HasSubstr("aten::mul_"));
}

// A saved tensor that is changed through another one in the same memory: refused as plain does.
TEST(CheckpointInPlace, ThroughAnotherCapturedTensorIsRefused) {
  const auto x = random_leaf({4, 8});
  const auto base = random_tensor({8}, 2);
  const auto view = base.view({2, 4});
  const auto f = [=](const Tensor& t) {
    auto y = t * base;
    view.add_(1);
    return y.exp();
  };
  for (const bool is_plain : {true, false}) {
    EXPECT_THAT(testing::error_of([&] { (is_plain ? f(x) : checkpoint(f, x)).sum().backward(); }),
                HasSubstr("modified by an inplace operation"));
  }
}

// Two tensors in one memory, of which one needs a gradient.
TEST(CheckpointInPlace, OnADetachedWeightIsExactOrRefused) {
  const auto x = random_leaf({4, 8});
  const auto leaf = random_leaf({8}, 2);
  const auto run = [&](const Caller& call) {
    const auto weight = leaf.detach().clone().requires_grad_();
    const auto detached = weight.detach();
    const auto f = [=](const Tensor& t) {
      detached.mul_(0.5);
      auto y = t * weight;
      static_cast<void>(y.cos());
      return y;
    };
    return torch::autograd::grad({call(f, x).sum()}, {weight, x});
  };
  for (const auto& options : testing::all_options()) {
    SCOPED_TRACE(options.name);
    testing::expect_same_bytes(run(Caller(options)), run(Caller()));
  }
}

// A buffer that is given another shape after forward.
TEST(CheckpointInPlace, UsesTheShapeThatABufferHadInForward) {
  const auto x = random_leaf({8, 8});
  expect_exact(
      [&](const Caller& call) {
        const auto buffer = random_tensor({8, 8}, 2);
        const auto y = call(
            [buffer](const Tensor& t) {
              buffer.mul_(2);
              return (t + buffer).exp();
            },
            x);
        buffer.t_();
        return y;
      },
      {{x}});
}

TEST(CheckpointInPlace, OnAConjugateOfACapturedTensorIsExact) {
  const auto x = random_leaf({4, 8});
  expect_exact(
      [&](const Caller& call) {
        const auto z = torch::complex(random_tensor({8}, 2), random_tensor({8}, 3));
        const auto conjugate = z.conj();
        const auto f = [=](const Tensor& t) {
          z.add_(1);
          return torch::view_as_real((t * conjugate).exp());
        };
        return call(f, x);
      },
      {{x}});
}

TEST(CheckpointInPlace, ThatResizesATensorFromOutsideIsRefusedInForward) {
  const auto x = random_leaf({4});
  auto buffer = torch::empty({0});
  const auto f = [&](const Tensor& t) {
    if (buffer.numel() == 0) at::ones_out(buffer, {4});
    return (t * buffer).exp();
  };
  EXPECT_THAT(testing::checkpoint_error_of([&] { checkpoint(f, x); }), HasSubstr("aten::ones"));
}

TEST(CheckpointInPlace, OnTheShapeOfATensorFromOutsideIsRefusedInForward) {
  const auto leaf = random_leaf({4, 8});
  const std::vector<InPlaceCase> cases = {
      {"aten::t_", [](const Tensor& t) { t.t_(); }},
      {"aten::unsqueeze_", [](const Tensor& t) { t.unsqueeze_(0); }},
      {"aten::transpose_", [](const Tensor& t) { t.transpose_(0, 1); }},
  };
  for (const auto& [operator_name, change] : cases) {
    SCOPED_TRACE(operator_name);
    const auto x = leaf * 1;
    const auto f = [change = change](const Tensor& t) {
      change(t);
      return t.exp();
    };
    EXPECT_THAT(testing::checkpoint_error_of([&] { checkpoint(f, x); }), HasSubstr(operator_name));
    EXPECT_EQ(x.dim(), 2);
  }
}

TEST(CheckpointInPlace, IsAsPlainOnTensorsMadeInside) {
  const auto x = random_leaf({4, 8});
  const auto weight = random_leaf({8, 8}, 2);
  const auto f = [&](const Tensor& t) {
    auto y = t.mm(weight).relu_() * 2;
    y.narrow(0, 0, 2).mul_(2).add_(t.narrow(0, 1, 2));
    y.select(1, 3).copy_(t.select(1, 0).exp());
    auto z = torch::zeros_like(y);
    z.index_put_({torch::tensor({0, 2})}, y.narrow(0, 2, 2).sin());
    torch::dropout_(z, 0.5, true);
    z.view({8, 4}).add_(1).tanh_();
    return (z + y).unsqueeze_(0).squeeze_(0).mul_(t);
  };
  expect_exact([&](const Caller& call) { return call(f, x); }, {{x, weight}});
  expect_exact([&](const Caller& call) { return call(f, call(f, x).relu_()).tanh_(); },
               {{x, weight}});
}

TEST(CheckpointInPlace, OnAnInputIsAllowedWhereNothingIsDifferentiated) {
  auto x = random_tensor({4, 8});
  const auto expected = x * 2;
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(torch::equal(checkpoint([](Tensor t) { return t.mul_(2); }, x), expected));
  EXPECT_TRUE(torch::equal(x, expected));
}

// The results of a region are as free as those of a plain call.
TEST(CheckpointOutputs, MayBeInputsViewsAndChangedAfterwards) {
  const auto x = random_leaf({4, 8});
  expect_exact([&](const Caller& call) { return call([](const Tensor& t) { return t; }, x * 2); },
               {{x}});
  expect_exact(
      [&](const Caller& call) {
        return call([](const Tensor& t) { return t.transpose(0, 1); }, x * 2).exp();
      },
      {{x}});
  expect_exact(
      [&](const Caller& call) {
        const auto rows = call([](const Tensor& t) { return t.sin().cos().unbind(0); }, x);
        return rows[0] + rows[3] * rows[1];
      },
      {{x}});
  expect_exact(
      [&](const Caller& call) {
        auto y = call([](const Tensor& t) { return t.sin() * 2; }, x);
        y.narrow(0, 0, 1).mul_(3);
        return y.add_(x);
      },
      {{x}});
}

// Trap 15: memory of a tensor from outside that is used again for one made inside.
TEST(CheckpointInPlace, IsNotConfusedByMemoryThatIsUsedAgain) {
  const auto x = random_leaf({8});
  std::vector<float> numbers = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto f = [&](const Tensor& t) {
    auto y = t.sin();
    for (int i = 0; i < 50; ++i) {
      auto constant = torch::from_blob(numbers.data(), {8});  // no operator makes it
      y = (y + constant).cos();
      constant.reset();
      auto temporary = torch::ones({8});
      temporary.mul_(2);
      y = y * temporary;
    }
    return y;
  };
  expect_exact([&](const Caller& call) { return call(f, x); }, {{x}});
  EXPECT_EQ(numbers, (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}));
}

}  // namespace
}  // namespace reprise
