// SPDX-License-Identifier: Apache-2.0
/// Tensors that were changed in place since forward. The ids are those of faults that people met in
/// other systems.
#include "reprise/checkpoint.h"

#include "tests/checkpoint_testing.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace reprise {
namespace {

using ::testing::AllOf;
using testing::Caller;
using testing::checkpoint_error_of;
using testing::expect_exact;
using ::testing::HasSubstr;
using testing::random_leaf;
using testing::random_tensor;
using testing::Tensors;
using torch::Tensor;

constexpr auto kModified = "modified by an inplace operation";

struct Settings {
  Tensor scale = random_tensor({8}, 11);
  std::optional<Tensor> mask = random_tensor({8}, 12).gt(0);
};

/// A function that reads tensors in every way in which one can hold them.
struct Reader {
  torch::nn::Linear layer{8, 8};
  torch::nn::BatchNorm1d norm{8};
  Settings settings;
  std::map<std::string, std::vector<Tensor>> tables = {{"first", {random_tensor({5, 8}, 13)}}};
  Tensor indices = torch::tensor({0, 2, 4, 2});
  Tensor shift = random_tensor({8}, 14);  // only added: autograd never saves it
  Tensor unread = random_tensor({8}, 15);

  Reader() { norm->eval(); }

  Tensor operator()(const Tensor& t) {
    auto y = norm(layer(t)) + shift;
    y = torch::where(*settings.mask, y * settings.scale, y);
    y = y + tables.at("first")[0].index_select(0, indices);
    return y.sin().exp();  // saves: everything above is computed again
  }
};

struct Change {
  std::string name;
  std::function<void(Reader&)> apply;
};

void PrintTo(const Change& change, std::ostream* out) {
  *out << change.name;
}

std::vector<Change> changes() {
  return {
      {"Weight", [](Reader& r) { r.layer->weight.add_(1); }},
      {"RowOfAWeight", [](Reader& r) { r.layer->weight.narrow(0, 0, 1).zero_(); }},
      {"Bias", [](Reader& r) { r.layer->bias.add_(1); }},
      {"BiasThroughDetach", [](Reader& r) { r.layer->bias.detach().add_(1); }},
      {"Foreach", [](Reader& r) { at::_foreach_mul_({r.layer->bias}, 2); }},
      {"OptimizerStep",
       [](Reader& r) {
         const auto& bias = r.layer->bias;
         bias.mutable_grad() = torch::ones_like(bias);
         torch::optim::Adam(Tensors{bias}, 0.5).step();
       }},
      {"Structure", [](Reader& r) { r.settings.scale.copy_(r.unread); }},
      {"StructureOut", [](Reader& r) { at::add_out(r.settings.scale, r.unread, r.unread); }},
      {"Optional", [](Reader& r) { r.settings.mask->logical_not_(); }},
      {"Map", [](Reader& r) { r.tables.at("first")[0].index_put_({r.indices}, r.unread); }},
      {"Indices", [](Reader& r) { r.indices.fill_(1); }},
      {"OnlyAdded", [](Reader& r) { r.shift.select(0, 3).fill_(2); }},
  };
}

class CheckpointAfterAChange : public ::testing::TestWithParam<Change> {};

// B5, B6, B7
TEST_P(CheckpointAfterAChange, OfACapturedTensorIsRefusedInBackward) {
  torch::manual_seed(1);
  const auto reader = std::make_shared<Reader>();
  const auto x = random_leaf({4, 8});
  for (auto options : testing::options_without_policy()) {
    options.name = "encoder";
    const auto y = checkpoint(options, [reader](const Tensor& t) { return (*reader)(t); }, x);
    const auto nested = checkpoint(
        options,
        [&](const Tensor& t) {
          return checkpoint([reader](const Tensor& u) { return (*reader)(u); }, t.sin()).cos();
        },
        x);
    {
      const torch::NoGradGuard no_grad;
      GetParam().apply(*reader);
    }
    EXPECT_THAT(checkpoint_error_of([&] { y.sum().backward(); }),
                AllOf(HasSubstr("encoder"), HasSubstr(kModified), HasSubstr("aten::")));
    EXPECT_THAT(checkpoint_error_of([&] { nested.sum().backward(); }), HasSubstr(kModified));
  }
}

INSTANTIATE_TEST_SUITE_P(Places, CheckpointAfterAChange, ::testing::ValuesIn(changes()),
                         ::testing::PrintToStringParamName());

// Statistics that a normalisation may update are kept as they were, so a change does no harm.
TEST(CheckpointAfterAChangeOf, StatisticsIsExact) {
  const auto reader = std::make_shared<Reader>();
  const auto x = random_leaf({4, 8});
  const auto expected = torch::autograd::grad({(*reader)(x).sum()}, {x})[0];
  const auto y = checkpoint([reader](const Tensor& t) { return (*reader)(t); }, x);
  {
    const torch::NoGradGuard no_grad;
    reader->norm->running_mean.mul_(2);
  }
  EXPECT_TRUE(testing::is_same_bytes(torch::autograd::grad({y.sum()}, {x})[0], expected));
}

// Tensors in one memory may count their changes apart.
TEST(CheckpointAfterAChangeOf, MemoryThatIsCountedTwiceIsRefused) {
  const auto x = random_leaf({4, 8});
  const auto weight = random_leaf({8, 8}, 2);
  const auto y = checkpoint(
      [weight](const Tensor& t) { return (t.mm(weight) / weight.data().norm()).exp(); }, x);
  const auto flat = random_tensor({16}, 3);
  auto a = torch::empty({8}).requires_grad_();
  auto b = torch::empty({8}).requires_grad_();
  a.set_data(flat.narrow(0, 0, 8));
  b.set_data(flat.narrow(0, 8, 8));
  const auto z = checkpoint([a, b](const Tensor& t) { return (t * a + b).exp(); }, x);
  {
    const torch::NoGradGuard no_grad;
    weight.add_(1);
    b.add_(1);
  }
  EXPECT_THAT(checkpoint_error_of([&] { y.sum().backward(); }), HasSubstr(kModified));
  EXPECT_THAT(checkpoint_error_of([&] { z.sum().backward(); }), HasSubstr(kModified));
}

TEST(CheckpointAfterAChangeOf, TheMemoryOfATensorIsRefused) {
  const auto x = random_leaf({4, 8});
  for (const auto& options : testing::all_options()) {
    SCOPED_TRACE(options.name);
    const auto weight = random_leaf({8}, 2);
    const auto y = checkpoint(options, [weight](const Tensor& t) { return (t * weight).exp(); }, x);
    weight.mutable_grad() = Tensor();
    const_cast<Tensor&>(weight).set_data(random_tensor({8}, 3));
    EXPECT_THAT(checkpoint_error_of([&] { y.sum().backward(); }),
                HasSubstr("was given other memory after forward"));
  }
}

// An error in either run ends the region, whatever the function makes of it.
TEST(CheckpointAfterAChangeOf, ACapturedTensorIsRefusedWhereTheFunctionCatchesErrors) {
  const auto x = random_leaf({4, 8});
  const auto shift = random_tensor({8}, 3);
  const auto f = [shift](const Tensor& t) {
    Tensor y;
    try {
      y = (t + shift).exp();
    } catch (const c10::Error&) {
      y = (t * 1).sin();
    }
    return y.cos();
  };
  const auto y = checkpoint(f, x);
  shift.mul_(3);
  for (int attempt = 0; attempt < 2; ++attempt)
    EXPECT_THAT(checkpoint_error_of([&] { y.sum().backward({}, true); }), HasSubstr(kModified));
}

TEST(CheckpointAfterAChangeOf, AnInputNamesIt) {
  const auto leaf = random_leaf({6, 8});
  const auto function = [](const Tensor& a, const Tensor& b, const Tensor& c) {
    return (a.sin() + b.cos() * c).exp();
  };
  const std::vector<std::function<void(Tensors&)>> changes = {
      [](Tensors& in) { in[1].detach().add_(1); },
      [](Tensors& in) { in[1].detach().narrow(0, 0, 1).zero_(); },
      [&](Tensors&) { leaf.detach().fill_(3); },  // the base of an input that is a view
      [](Tensors& in) { in[2].bitwise_not_(); },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    Tensors inputs = {leaf.narrow(0, 0, 4), leaf.narrow(0, 1, 4) * 1,
                      random_tensor({4, 8}, 3).gt(0)};
    const auto y = checkpoint(function, inputs[0], inputs[1], inputs[2]);
    changes[i](inputs);
    EXPECT_THAT(checkpoint_error_of([&] { y.sum().backward(); }),
                AllOf(HasSubstr(kModified), HasSubstr("input")));
  }
}

TEST(CheckpointAfterAChangeOf, ABufferByALaterRegionIsRefused) {
  const auto buffer = torch::ones({8});
  const auto x = random_leaf({4, 8});
  const auto y = checkpoint([&](const Tensor& t) { return (t + buffer).exp(); }, x);
  const auto z = checkpoint(
      [&](const Tensor& t) {
        buffer.mul_(2);
        return (t + buffer).exp();
      },
      x);
  EXPECT_THAT(checkpoint_error_of([&] { y.sum().backward(); }), HasSubstr(kModified));
  z.sum().backward();
  EXPECT_TRUE(testing::is_same_bytes(buffer, torch::full({8}, 2.F)));
}

TEST(CheckpointAfterAChangeOf, WhatItDoesNotReadIsExact) {
  torch::manual_seed(1);
  Reader reader;
  const auto x = random_leaf({4, 8});
  expect_exact(
      [&](const Caller& call) {
        const torch::NoGradGuard no_grad;
        reader.layer->weight.add_(0);  // before forward
        const torch::AutoGradMode with_gradients(true);
        const auto y = call([&](const Tensor& t) { return reader(t); }, x);
        reader.unread.add_(1);
        reader.layer->weight.mutable_grad() = torch::ones({8, 8});
        return y * 2;
      },
      {{x, reader.layer->weight, reader.layer->bias}}, testing::options_without_policy());
}

TEST(CheckpointAfterAChangeOf, ATensorThatAutogradSavedInsideIsRefusedAsPlain) {
  const std::vector<std::function<Tensor(const Tensor&)>> functions = {
      [](const Tensor& t) { return t.exp().add_(1).mul(t); },
      [](const Tensor& t) {
        auto y = t.sin();
        auto z = y.cos();
        y.narrow(0, 0, 1).zero_();
        return z.exp();
      },
      [](const Tensor& t) {
        auto y = t.sigmoid();
        y.view({-1}).mul_(2);
        return y.exp();
      },
  };
  for (const auto& function : functions) {
    for (const auto& options : testing::all_options()) {
      SCOPED_TRACE(options.name);
      const auto x = random_leaf({4, 8});
      EXPECT_THAT(testing::error_of([&] { function(x).sum().backward(); }), HasSubstr(kModified));
      const auto y = checkpoint(options, function, x);
      EXPECT_THAT(testing::error_of([&] { y.sum().backward(); }), HasSubstr(kModified));
    }
  }
}

}  // namespace
}  // namespace reprise
