// SPDX-License-Identifier: Apache-2.0
/// Second runs that do something else than the first. The ids are those of faults that people met
/// in other systems.
#include "reprise/checkpoint.h"

#include "tests/checkpoint_testing.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace reprise {
namespace {

using ::testing::AllOf;
using testing::Caller;
using testing::checkpoint_error_of;
using testing::expect_exact;
using ::testing::HasSubstr;
using testing::random_leaf;
using torch::Tensor;

// B8, trap 2: the kinds of hidden state that change only values.
struct HiddenState {
  std::string name;
  std::function<Tensor(const Tensor&)> function;  // copied for each region
};

void PrintTo(const HiddenState& state, std::ostream* out) {
  *out << state.name;
}

std::vector<HiddenState> hidden_states() {
  return {
      {"Counter",
       [runs = 0](const Tensor& t) mutable { return (t * (++runs == 2 ? 3 : 1)).exp(); }},
      {"OneElement",
       [runs = 0](const Tensor& t) mutable {
         auto y = t * 1;
         if (++runs == 2) y.data_ptr<float>()[17] *= -1;  // as a hand-written kernel would
         return y.sin();
       }},
      {"SignOfZero",
       [runs = 0](const Tensor& t) mutable {
         return ((t * 0).abs() * (++runs == 2 ? -1 : 1)).sin();
       }},
      {"RandomNumbersOfTheStandardLibrary",
       [engine = std::mt19937(1)](const Tensor& t) mutable {
         auto noise = torch::empty({8});
         for (int i = 0; i < 8; ++i)
           noise.data_ptr<float>()[i] = static_cast<float>(engine() % 1000);
         return (t + noise).sin();
       }},
      {"ReplacedMember",
       [member = torch::ones({8})](const Tensor& t) mutable {
         member = member + 1;
         return t * member;
       }},
      {"Order",
       [runs = 0](const Tensor& t) mutable {
         auto parts = t.split(2);
         if (++runs == 2) std::swap(parts[0], parts[1]);
         return torch::cat({parts[0].exp(), parts[1].exp()});
       }},
  };
}

class CheckpointOfHiddenState : public ::testing::TestWithParam<HiddenState> {};

TEST_P(CheckpointOfHiddenState, IsFoundByComparingValues) {
  const auto x = random_leaf({4, 8});
  for (const bool early_stop : {true, false}) {
    const CheckpointOptions options = {
        .name = "decoder", .verification = Verification::kValues, .early_stop = early_stop};
    const auto y = checkpoint(options, GetParam().function, x);
    EXPECT_THAT(checkpoint_error_of([&] { y.sum().backward(); }),
                AllOf(HasSubstr("decoder"), HasSubstr("other values")));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, CheckpointOfHiddenState, ::testing::ValuesIn(hidden_states()),
                         ::testing::PrintToStringParamName());

TEST(CheckpointVerification, OfValuesAcceptsWhateverIsComputedAgain) {
  const CheckpointOptions options = {.verification = Verification::kValues};
  const auto x = random_leaf({4, 8});
  const auto sparse = torch::eye(4).to_sparse();
  const auto f = [&](const Tensor& t) {
    auto y = torch::mm(sparse, t).t().exp().t();                                // not contiguous
    y = y + (t * std::numeric_limits<double>::quiet_NaN()).sin().nan_to_num();  // NaN
    y = y * t.gt(0) * torch::arange(8);                                         // bool, int64
    y = y + t.to(torch::kBFloat16).exp().to(torch::kDouble).sin().to(torch::kFloat);
    y = y + t.narrow(0, 0, 0).exp().sum() + torch::view_as_real(torch::complex(t, t).exp()).sum(-1);
    return y.expand({3, 4, 8}).sin().mean().exp();  // one element read many times, no dimension
  };
  expect_exact([&](const Caller& call) { return call(f, x); }, {{x}}, {options});
}

// Another type, another shape, another number of tensors.
TEST(CheckpointVerification, OfMetadataFindsOtherTypesShapesAndCounts) {
  using Second = std::function<Tensor(const Tensor&)>;
  const auto x = random_leaf({4, 8});
  const std::vector<Second> second_runs = {
      [](const Tensor& t) { return t.to(torch::kDouble).exp(); },
      [](const Tensor& t) { return t.narrow(0, 0, 1).exp(); },
      [](const Tensor& t) { return t.t().exp(); },
      [](const Tensor& t) { return t + 1; },
      [](const Tensor& t) { return t.view({2, 16}).exp(); },
  };
  for (std::size_t i = 0; i < second_runs.size(); ++i) {
    SCOPED_TRACE(i);
    for (const auto verification : {Verification::kMetadata, Verification::kValues}) {
      const CheckpointOptions options = {.name = "block 7", .verification = verification};
      const auto y = checkpoint(
          options, [&](const Tensor& t) { return in_recompute() ? second_runs[i](t) : t.exp(); },
          x);
      EXPECT_THAT(checkpoint_error_of([&] { y.sum().backward(); }), HasSubstr("block 7"));
    }
  }
  const auto saves_more = checkpoint(
      {.early_stop = false},
      [](const Tensor& t) { return in_recompute() ? t.exp().sin() : t.exp(); }, x);
  EXPECT_NE(checkpoint_error_of([&] { saves_more.sum().backward(); }), "");
}

// B49: state that the first call makes.
TEST(CheckpointOfACache, IsExactOrRefused) {
  struct MaskBuilder {
    Tensor mask;
    Tensor operator()(const Tensor& t) {
      if (!mask.defined()) mask = torch::ones({8, 8}).tril();
      return t.mm(mask).sin();
    }
  };
  const auto x = random_leaf({4, 8});
  for (const auto& options : testing::all_options()) {
    SCOPED_TRACE(options.name);
    const auto builder = std::make_shared<MaskBuilder>();
    const auto call_it = [builder](const Tensor& t) {
      return (*builder)(t);
    };
    const auto y = checkpoint(options, call_it, x);
    try {
      const auto gradient = torch::autograd::grad({y.sum()}, {x})[0];
      const auto expected = torch::autograd::grad({call_it(x).sum()}, {x})[0];
      EXPECT_TRUE(testing::is_same_bytes(gradient, expected));
    } catch (const CheckpointError& error) {
      EXPECT_STRNE(error.what(), "");
    }
  }
}

TEST(CheckpointOfACache, ThatGrewIsRefused) {
  struct KeyCache {
    Tensor keys = torch::zeros({0, 8});
    Tensor operator()(const Tensor& t) {
      keys = torch::cat({keys, t.detach()});
      return torch::softmax(t.mm(keys.t()), -1).mm(keys).sin();
    }
  };
  const auto x = random_leaf({4, 8});
  const auto cache = std::make_shared<KeyCache>();
  const auto y = checkpoint([cache](const Tensor& t) { return (*cache)(t); }, x);
  EXPECT_NE(checkpoint_error_of([&] { y.sum().backward(); }), "");
}

// What a function of the user's saves is compared too, outside every operator.
TEST(CheckpointOfHiddenState, IsFoundInWhatAUsersFunctionSaves) {
  struct Scale : torch::autograd::Function<Scale> {
    static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& t, double by) {
      context->save_for_backward({torch::full({8}, by)});
      return t * by;
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list gradients) {
      return {gradients[0] * context->get_saved_variables()[0], Tensor()};
    }
  };
  const auto x = random_leaf({4, 8});
  const auto y = checkpoint(
      {.verification = Verification::kValues},
      [](const Tensor& t) { return Scale::apply(t, in_recompute() ? 3 : 2); }, x);
  EXPECT_THAT(checkpoint_error_of([&] { y.sum().backward(); }), HasSubstr("other values"));
}

// Destructors that run operators while the second run's own error unwinds it.
TEST(CheckpointOfAFailingFunction, UnwindsThroughDestructorsThatRunOperators) {
  struct Cleanup {
    Tensor value;
    ~Cleanup() { (value.detach().requires_grad_().exp().sin().cos() * 2).tanh(); }
  };
  int runs = 0;
  const auto x = random_leaf({4, 8});
  const auto y = checkpoint(
      [&](const Tensor& t) {
        const Cleanup cleanup{t};
        if (++runs == 2) throw std::runtime_error("out of luck");
        return t.exp().sin();
      },
      x);
  EXPECT_THAT(testing::error_of([&] { y.sum().backward({}, true); }), HasSubstr("out of luck"));
  y.sum().backward();
  EXPECT_TRUE(x.grad().defined());
}

// Trap 10
TEST(CheckpointWhoseStopIsSwallowed, IsRefused) {
  const std::vector<std::function<Tensor(const Tensor&)>> functions = {
      [](const Tensor& t) {
        try {
          return t.exp().sin() + 1;
        } catch (...) {
          return t;
        }
      },
      [](const Tensor& t) {
        try {
          return t.exp().sin() + 1;
        } catch (const std::exception&) {
          return t + 1;
        }
      },
      [](const Tensor& t) {
        for (int attempt = 0; attempt < 3; ++attempt) {
          try {
            return t.exp().sin() + 1;
          } catch (...) {
          }
        }
        return t;
      },
  };
  const auto x = random_leaf({4, 8});
  for (std::size_t i = 0; i < functions.size(); ++i) {
    SCOPED_TRACE(i);
    const auto y = checkpoint({.name = "robust"}, functions[i], x);
    for (int attempt = 0; attempt < 2; ++attempt) {
      EXPECT_THAT(checkpoint_error_of([&] { y.sum().backward({}, true); }),
                  AllOf(HasSubstr("robust"), HasSubstr("swallowed")));
    }
    expect_exact([&](const Caller& call) { return call(functions[i], x); }, {{x}},
                 {{.early_stop = false}});
  }
}

TEST(CheckpointWhoseStopIsSwallowed, IsNotWhereTheFunctionPassesItOn) {
  const auto x = random_leaf({4, 8});
  const auto f = [](const Tensor& t) {
    try {
      return t.exp().sin();
    } catch (const std::runtime_error&) {
      return t;
    } catch (...) {
      throw;
    }
  };
  expect_exact([&](const Caller& call) { return call(f, x); }, {{x}});
}

TEST(CheckpointName, BeginsTheMessage) {
  const auto x = random_leaf({4, 8});
  const auto y = checkpoint(
      {.name = "decoder layer 3"},
      [](const Tensor& t) { return in_recompute() ? t.narrow(0, 0, 1).exp() : t.exp(); }, x);
  try {
    y.sum().backward();
    FAIL() << "nothing was thrown";
  } catch (const CheckpointError& error) {
    const auto message = error.msg();
    EXPECT_LT(message.find("decoder layer 3"), 20U) << message;
  }
}

}  // namespace
}  // namespace reprise
