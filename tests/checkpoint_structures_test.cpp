// SPDX-License-Identifier: Apache-2.0
/// What a region's function may be, take and return. The ids are those of faults that people met in
/// other systems.
#include "reprise/checkpoint.h"

#include "tests/checkpoint_testing.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace reprise {
namespace {

using ::testing::AllOf;
using testing::Caller;
using testing::expect_exact;
using ::testing::HasSubstr;
using testing::random_leaf;
using testing::random_tensor;
using testing::Tensors;
using torch::Tensor;

enum class Mode { kSum, kProduct };

struct State {
  Tensor hidden;
  std::optional<Tensor> cell;
};

/// Tensors in every type that the library looks into, and values that hold none.
struct Batch {
  Tensor x;
  std::optional<Tensor> mask;
  std::vector<Tensor> list;
  std::array<Tensor, 2> pair;
  std::map<std::string, State> states;
  std::unordered_map<std::int64_t, std::tuple<Tensor, double>> table;
  std::vector<std::vector<std::optional<Tensor>>> nested;
  Mode mode = Mode::kSum;
};

}  // namespace

template <>
struct TensorFields<State> {
  static auto fields(State& state) { return std::tie(state.hidden, state.cell); }
};

template <>
struct TensorFields<Batch> {
  static auto fields(Batch& batch) {
    return std::tie(batch.x, batch.mask, batch.list, batch.pair, batch.states, batch.table,
                    batch.nested);
  }
};

namespace {

/// Every tensor of `batch`, as a test sees them.
Tensors tensors_of(const Batch& batch) {
  return {batch.x,
          *batch.mask,
          batch.list[0],
          batch.list[1],
          batch.pair[0],
          batch.pair[1],
          batch.states.at("a").hidden,
          *batch.states.at("b").cell,
          std::get<0>(batch.table.at(7)),
          *batch.nested[1][0]};
}

/// Tensors that are not leaves, so that they can be changed.
Batch make_batch(const Tensors& leaves) {
  const auto part = [&](std::size_t i) {
    return leaves[i] * 1;
  };
  Batch batch;
  batch.x = part(0);
  batch.mask = part(1).detach().gt(0);
  batch.list = {part(2), part(3), Tensor()};
  batch.pair = {part(4), part(5).detach()};
  batch.states = {{"a", {part(6), std::nullopt}}, {"b", {Tensor(), part(7)}}};
  batch.table = {{7, {part(8), 0.5}}};
  batch.nested = {{std::nullopt}, {part(9), std::nullopt}};
  batch.mode = Mode::kProduct;
  return batch;
}

Tensors make_leaves() {
  Tensors leaves;
  for (std::uint64_t i = 0; i < 10; ++i) leaves.push_back(random_leaf({2, 3}, i));
  return leaves;
}

Tensor read_all(const Batch& batch) {
  EXPECT_FALSE(batch.list[2].defined());
  EXPECT_FALSE(batch.states.at("a").cell.has_value());
  EXPECT_FALSE(batch.nested[0][0].has_value());
  EXPECT_EQ(std::get<1>(batch.table.at(7)), 0.5);
  auto y = torch::ones({2, 3});
  for (const auto& tensor : tensors_of(batch)) y = y.cos() * (tensor.to(torch::kFloat) + 2).sin();
  return batch.mode == Mode::kProduct ? y.exp() : y;
}

// B4, B5, B41
TEST(CheckpointInputs, AreFoundInNestedStructures) {
  const auto leaves = make_leaves();
  expect_exact([&](const Caller& call) { return call(read_all, make_batch(leaves)); }, {leaves});
  expect_exact(
      [&](const Caller& call) {
        return call([](const std::pair<Batch, int>& in) { return read_all(in.first) * in.second; },
                    std::make_pair(make_batch(leaves), 3));
      },
      {leaves});
}

TEST(CheckpointInputs, AreCheckedWhereverTheyLie) {
  const auto leaves = make_leaves();
  for (std::size_t i = 0; i < 10; ++i) {
    SCOPED_TRACE(i);
    const auto batch = make_batch(leaves);
    const auto y = checkpoint({.name = "batch reader"}, read_all, batch);
    tensors_of(batch)[i].detach().zero_();
    EXPECT_THAT(testing::checkpoint_error_of([&] { y.sum().backward(); }),
                AllOf(HasSubstr("batch reader"), HasSubstr("input"),
                      HasSubstr("modified by an inplace operation")));
  }
}

// B41
TEST(CheckpointInputs, MayBeUndefinedIntegersAndPlainValues) {
  const auto x = random_leaf({2, 3});
  const auto f = [](const Tensor& t, const Tensor& indices, const Tensor& undefined,
                    const std::optional<Tensor>& none, double factor, std::int64_t dimension,
                    const std::string& name, Mode mode, const std::vector<std::int64_t>& sizes,
                    const std::vector<bool>& flags, const c10::Scalar& scalar, at::Device device,
                    std::nullopt_t) {
    EXPECT_FALSE(undefined.defined());
    EXPECT_FALSE(none.has_value());
    EXPECT_EQ(name, "rows");
    EXPECT_TRUE(mode == Mode::kSum && flags[1]);
    return t.to(device)
        .index_select(dimension, indices)
        .view(sizes)
        .exp()
        .mul(factor)
        .sin()
        .mul(scalar);
  };
  expect_exact(
      [&](const Caller& call) {
        return call(f, x, torch::tensor({1, 0, 1}), Tensor(), std::optional<Tensor>(), 1.5,
                    std::int64_t{0}, std::string("rows"), Mode::kSum, std::vector<std::int64_t>{9},
                    std::vector<bool>{false, true}, c10::Scalar(3), at::Device(at::kCPU),
                    std::nullopt);
      },
      {{x}});
}

TEST(CheckpointInputs, MayBeAbsentUnusedAndTheSameTwice) {
  const auto x = random_leaf({2, 3});
  expect_exact(
      [&](const Caller& call) {
        return call([x] { return torch::dropout(x.exp(), 0.5, true).sin(); });
      },
      {{x}});
  const auto unused = random_leaf({2, 3}, 2);
  expect_exact(
      [&](const Caller& call) {
        return call(
            [](const Tensor& a, const Tensor&, const Tensor& b) { return a.exp() * b.sin(); }, x,
            unused, x);
      },
      {{x, unused}});
}

// The function gets copies of structures: what it does to them is not there in the second run.
TEST(CheckpointInputs, AreTheSameInTheSecondRunWhenTheFunctionChangesTheStructure) {
  const auto x = random_leaf({2, 3});
  const auto f = [](Tensors& list, std::map<int, Tensor>& map, int& count) {
    list[0] = list[0].exp();
    list.push_back(list[0].sin());
    map.erase(1);
    map[2] = list.back().cos();
    return list.back() * map.at(2) * (++count);
  };
  expect_exact(
      [&](const Caller& call) { return call(f, Tensors{x}, std::map<int, Tensor>{{1, x}}, 4); },
      {{x}});
}

struct Outputs {
  explicit Outputs(Tensor first_tensor) : first(std::move(first_tensor)) {}  // no default
  Tensor first;
  std::vector<std::optional<Tensor>> rest;
  std::unique_ptr<Tensor> owned;  // may not be copied
  std::string name;
};

// B4
TEST(CheckpointResults, MayBeOfAnyType) {
  const auto x = random_leaf({2, 3});
  const auto f = [](const Tensor& t) {
    Outputs outputs(t.exp());
    outputs.rest = {std::nullopt, t.detach().sin(), t.sin(), Tensor()};
    outputs.owned = std::make_unique<Tensor>(t.cos());
    outputs.name = "three";
    return outputs;
  };
  expect_exact(
      [&](const Caller& call) {
        const auto outputs = call(f, x);
        EXPECT_TRUE(outputs.first.requires_grad());
        EXPECT_FALSE(outputs.rest[0].has_value());
        EXPECT_FALSE(outputs.rest[1]->requires_grad());
        EXPECT_TRUE(outputs.rest[2]->requires_grad());
        EXPECT_FALSE(outputs.rest[3]->defined());
        EXPECT_TRUE(outputs.owned->requires_grad());
        EXPECT_EQ(outputs.name, "three");
        return outputs.first * *outputs.rest[1] + *outputs.rest[2] * *outputs.owned;
      },
      {{x}});
  EXPECT_EQ(checkpoint([](const Tensor& t) { return t.exp().numel(); }, x), 6);
  const auto maps =
      checkpoint([](const Tensor& t) { return std::map<std::string, Tensor>{{"y", t.exp()}}; }, x);
  EXPECT_TRUE(maps.at("y").requires_grad());
}

TEST(CheckpointResults, MayBeNothing) {
  const auto x = random_leaf({2, 3});
  for (const auto& options : testing::all_options()) {
    SCOPED_TRACE(options.name);
    Tensor result;
    int runs = 0;
    checkpoint(
        options,
        [&](const Tensor& t) {
          ++runs;
          auto y = t.exp().sin();
          if (!in_recompute()) result = y;
        },
        x);
    const auto gradient = torch::autograd::grad({result.sum()}, {x})[0];
    EXPECT_TRUE(testing::is_same_bytes(gradient, x.exp().cos() * x.exp()));
    EXPECT_EQ(runs, 2);
  }
}

TEST(CheckpointResults, OfAFunctionWithoutOperatorsArePassedThrough) {
  const auto x = random_leaf({2, 3});
  EXPECT_EQ(checkpoint([](int a, const std::string& b) { return b + std::to_string(a); }, 3,
                       std::string("x")),
            "x3");
  EXPECT_TRUE(checkpoint([](const Tensor& t) { return t; }, x).is_same(x));
}

Tensor free_function(const Tensor& t) {
  return torch::dropout(t.exp(), 0.5, true).sin();
}

struct Functor {
  double factor;
  Tensor operator()(const Tensor& t) { return (t * factor).exp(); }
  Tensor method(const Tensor& t) const { return (t * factor).sin().exp(); }
};

TEST(CheckpointFunctions, MayBeAnythingThatCanBeCalled) {
  const auto x = random_leaf({2, 3});
  const auto check = [&](const auto& function) {
    expect_exact([&](const Caller& call) { return call(function, x); }, {{x}});
  };
  check(free_function);
  check(&free_function);
  check(std::function<Tensor(const Tensor&)>(free_function));
  check(Functor{1.5});
  check([functor = Functor{0.5}](const Tensor& t) { return functor.method(t); });
  check([](const auto& t) { return t.exp().sin(); });
  check([](Tensor t) { return t.exp().sin(); });
  check([](Tensor& t) { return t.exp().sin(); });
  check(std::bind_front(&Functor::method, Functor{2.5}));
}

TEST(CheckpointFunctions, MayCaptureWhatCanOnlyBeMoved) {
  const auto x = random_leaf({2, 3});
  auto factor = std::make_unique<Tensor>(random_tensor({3}, 2));
  const auto expected = torch::autograd::grad({(x * *factor).exp().sin().sum()}, {x})[0];
  const auto y = checkpoint(
      [factor = std::move(factor)](const Tensor& t) { return (t * *factor).exp().sin(); }, x);
  EXPECT_TRUE(testing::is_same_bytes(torch::autograd::grad({y.sum()}, {x})[0], expected));
}

TEST(CheckpointFunctions, MayBeModules) {
  torch::manual_seed(1);
  const auto x = random_leaf({4, 2, 8});
  const auto check = [&](const auto& module) {
    const auto run = [&](const Caller& call) {
      return call(module, x);
    };
    auto leaves = module->parameters();
    leaves.push_back(x);
    expect_exact(run, {leaves, module->buffers()});
  };
  check(torch::nn::Linear(8, 4));
  check(torch::nn::BatchNorm1d(2));
  check(torch::nn::Dropout(0.5));
  check(torch::nn::RReLU(torch::nn::RReLUOptions().inplace(false)));
  check(torch::nn::Conv1d(2, 3, 3));
  check(torch::nn::PReLU());
  check(torch::nn::GLU());
}

// Structures in and out: recurrent layers.
TEST(CheckpointFunctions, MayBeRecurrentLayersWithTheirStates) {
  torch::manual_seed(1);
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(8, 4).num_layers(2).bidirectional(true).dropout(0.3));
  const auto x = random_leaf({4, 2, 8});
  const auto h = random_leaf({4, 2, 4}, 2);
  const auto c = random_leaf({4, 2, 4}, 3);
  using Memory = std::optional<std::tuple<Tensor, Tensor>>;
  const auto f = [lstm](const Tensor& t, const Memory& state) mutable {
    return lstm->forward(t, state);
  };
  auto leaves = lstm->parameters();
  testing::append(leaves, {x, h, c});
  expect_exact(
      [&](const Caller& call) {
        const auto [y, state] = call(f, x, Memory(std::make_tuple(h, c)));
        const auto [z, last] = call(f, torch::cat({y, y * y}, 2).narrow(2, 0, 8), Memory(state));
        const auto [w, unused] = call(f, torch::cat({z, z}, 2).narrow(2, 4, 8), Memory());
        return w.sum() + std::get<0>(last).exp() * std::get<1>(last);
      },
      {leaves});
}

}  // namespace
}  // namespace reprise
