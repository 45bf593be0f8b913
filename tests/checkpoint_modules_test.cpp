// SPDX-License-Identifier: Apache-2.0
#include "reprise/checkpoint_modules.h"

#include "reprise/errors.h"
#include "tests/checkpoint_testing.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "tests/allocation_recorder.h"

namespace reprise {
namespace {

using testing::AllocationRecorder;
using testing::clones_of;
using testing::expect_same_bytes;
using ::testing::HasSubstr;
using testing::random_leaf;
using testing::random_tensor;
using testing::Tensors;
using torch::Tensor;

/// Output, gradients, buffers and the next random numbers of one pass. `forward` takes an input.
template <typename Module, typename Forward>
Tensors pass_of(Module& module, const Tensor& input, Forward forward) {
  torch::manual_seed(7);
  const auto x = input.detach().clone().requires_grad_();
  const auto y = forward(module, x);
  auto leaves = module->parameters();
  leaves.push_back(x);
  auto result = torch::autograd::grad({y.pow(2).sum()}, leaves, {}, std::nullopt, false, true);
  result.push_back(y.detach());
  testing::append(result, clones_of(module->buffers()));
  testing::append(result, testing::next_random_numbers());
  return result;
}

/// `Holder` and its checkpointed form, made from the same seed, do the same.
template <typename Holder, typename Options, typename Forward>
void expect_same_module(const Options& options, const Tensor& input, Forward forward) {
  torch::manual_seed(2);
  Holder plain(options);
  torch::manual_seed(2);
  Checkpointed<Holder> checkpointed(options);
  for (const auto& checkpoint_options : testing::all_options()) {
    SCOPED_TRACE(checkpoint_options.name);
    checkpointed->checkpoint_options = checkpoint_options;
    for (const bool is_training : {true, false}) {
      plain->train(is_training);
      checkpointed->train(is_training);
      expect_same_bytes(pass_of(checkpointed, input, forward), pass_of(plain, input, forward));
    }
  }
}

TEST(Checkpointed, CanBePutIntoASequential) {
  torch::manual_seed(3);
  torch::nn::Sequential model(Checkpointed<torch::nn::Linear>(8, 8), torch::nn::Tanh(),
                              Checkpointed<torch::nn::LayerNorm>(std::vector<std::int64_t>{8}));
  const auto x = torch::randn({3, 8});
  const auto y = model->forward(x);
  y.pow(2).sum().backward();
  EXPECT_EQ(model->parameters().size(), 4U);
  for (const auto& parameter : model->parameters()) EXPECT_TRUE(parameter.grad().defined());
}

TEST(CheckpointedModule, GivesThePassesOfItsModule) {
  const auto call = [](auto& module, const Tensor& x) {
    return module->forward(x);
  };
  const auto input = random_tensor({4, 3, 8});
  using Encoder = torch::nn::TransformerEncoderLayerOptions;
  expect_same_module<torch::nn::Linear>(torch::nn::LinearOptions(8, 4).bias(false), input, call);
  expect_same_module<torch::nn::Dropout>(torch::nn::DropoutOptions(0.5), input, call);
  expect_same_module<torch::nn::BatchNorm1d>(torch::nn::BatchNormOptions(3), input, call);
  expect_same_module<torch::nn::Conv1d>(torch::nn::Conv1dOptions(3, 2, 3), input, call);
  // The other arguments have defaults.
  expect_same_module<torch::nn::TransformerEncoderLayer>(Encoder(8, 2).dim_feedforward(8), input,
                                                         call);
}

TEST(CheckpointedModule, TakesAndReturnsWhatItsModuleDoes) {
  const auto input = random_tensor({4, 3, 8});
  expect_same_module<torch::nn::LSTM>(torch::nn::LSTMOptions(8, 8).num_layers(2).dropout(0.5),
                                      input, [](auto& lstm, const Tensor& x) {
                                        using State = std::optional<std::tuple<Tensor, Tensor>>;
                                        const auto [y, state] = lstm->forward(x);
                                        const auto [z, last] = lstm->forward(y, State(state));
                                        return z.sum() + std::get<0>(last) * std::get<1>(last);
                                      });
  expect_same_module<torch::nn::MultiheadAttention>(
      torch::nn::MultiheadAttentionOptions(8, 2).dropout(0.5), input,
      [](auto& attention, const Tensor& x) {
        const auto mask = torch::zeros({3, 4}, torch::kBool);
        const auto [y, weights] = attention->forward(x, x.sin(), x.cos(), mask, true, Tensor());
        return y.sum() + weights;
      });
}

TEST(CheckpointedModule, HasTheNamesAndTheFilesOfItsModule) {
  struct Parent : torch::nn::Module {
    Parent()
        : layer(register_module("layer", Checkpointed<torch::nn::Linear>(8, 4))),
          norm(register_module("norm", Checkpointed<torch::nn::BatchNorm1d>(4))) {}
    Checkpointed<torch::nn::Linear> layer;
    Checkpointed<torch::nn::BatchNorm1d> norm;
  };
  struct PlainParent : torch::nn::Module {
    PlainParent()
        : layer(register_module("layer", torch::nn::Linear(8, 4))),
          norm(register_module("norm", torch::nn::BatchNorm1d(4))) {}
    torch::nn::Linear layer;
    torch::nn::BatchNorm1d norm;
  };
  torch::manual_seed(3);
  const auto parent = std::make_shared<Parent>();
  const auto plain = std::make_shared<PlainParent>();
  EXPECT_EQ(parent->named_parameters().keys(), plain->named_parameters().keys());
  EXPECT_EQ(parent->named_buffers().keys(), plain->named_buffers().keys());
  std::stringstream file;
  torch::save(plain, file);
  std::shared_ptr<Parent> loaded = parent;
  torch::load(loaded, file);
  expect_same_bytes(parent->parameters(), plain->parameters());
  parent->eval();
  EXPECT_FALSE(parent->layer->is_training());
  parent->to(torch::kDouble);
  EXPECT_EQ(parent->layer->forward(torch::ones({2, 8}, torch::kDouble)).scalar_type(),
            torch::kDouble);
}

TEST(CheckpointedModule, SharesTheParametersOfTheModuleThatItIsMadeFrom) {
  torch::nn::Linear plain(8, 4);
  const Checkpointed<torch::nn::Linear> checkpointed(
      std::make_shared<CheckpointedImpl<torch::nn::LinearImpl>>(*plain));
  EXPECT_TRUE(checkpointed->weight.is_same(plain->weight));
  EXPECT_TRUE(checkpointed->parameters()[1].is_same(plain->bias));
}

TEST(CheckpointedModule, IsClonedWithItsOptions) {
  torch::manual_seed(4);
  Checkpointed<torch::nn::Linear> layer(8, 4);
  layer->checkpoint_options = {.name = "cloned layer", .verification = Verification::kValues};
  const auto copy =
      std::dynamic_pointer_cast<CheckpointedImpl<torch::nn::LinearImpl>>(layer->clone());
  ASSERT_TRUE(copy);
  EXPECT_EQ(copy->checkpoint_options.name, "cloned layer");
  EXPECT_EQ(copy->checkpoint_options.verification, Verification::kValues);
  expect_same_bytes(copy->parameters(), layer->parameters());
  {
    const torch::NoGradGuard no_grad;
    copy->weight.add_(1);
  }
  EXPECT_FALSE(torch::equal(copy->weight, layer->weight));
  // It is a region: a change of the bias, which autograd does not save, is noticed.
  const auto y = copy->forward(random_leaf({2, 8})).sum();
  {
    const torch::NoGradGuard no_grad;
    copy->bias.add_(1);
  }
  EXPECT_THAT(testing::checkpoint_error_of([&] { y.backward(); }), HasSubstr("cloned layer"));
}

struct TwoLayersImpl : torch::nn::Cloneable<TwoLayersImpl> {
  TwoLayersImpl() { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(8, 8));
    second = register_module("second", torch::nn::Linear(8, 8));
  }
  Tensor forward(const Tensor& x) {
    const auto hidden = first->forward(x).sin();
    if (!in_recompute()) watch->add(hidden);
    return second->forward(hidden.exp()).tanh();
  }

  torch::nn::Linear first = nullptr;
  torch::nn::Linear second = nullptr;
  std::shared_ptr<testing::StorageWatch> watch = std::make_shared<testing::StorageWatch>();
};
TORCH_MODULE(TwoLayers);

TEST(CheckpointedModule, OfTheUsersKeepsNoActivationsAndIsCloned) {
  torch::manual_seed(5);
  Checkpointed<TwoLayers> model;
  const auto clone = std::dynamic_pointer_cast<CheckpointedImpl<TwoLayersImpl>>(model->clone());
  ASSERT_TRUE(clone);
  for (const auto& module : {model.ptr(), clone}) {
    const auto y = module->forward(random_leaf({4, 8}));
    EXPECT_EQ(module->watch->count_alive(), 0U);
    y.sum().backward();
    for (const auto& parameter : module->parameters()) EXPECT_TRUE(parameter.grad().defined());
  }
  EXPECT_EQ(model->watch->count(), 2U);
}

TEST(CheckpointedModule, MayBeDroppedBeforeBackward) {
  const auto x = random_leaf({4, 8});
  const auto gradient = [&](auto make) {
    torch::manual_seed(6);
    auto y = [&] {
      auto module = make();
      return std::get<0>(module->forward(x.unsqueeze(0)));
    }();
    return torch::autograd::grad({y.exp().sum()}, {x})[0];
  };
  const torch::nn::GRUOptions options(8, 8);
  EXPECT_TRUE(
      testing::is_same_bytes(gradient([&] { return Checkpointed<torch::nn::GRU>(options); }),
                             gradient([&] { return torch::nn::GRU(options); })));
}

/// Keeps its result for backward, and counts its runs.
struct CountedImpl : torch::nn::Module {
  explicit CountedImpl(double dropout = 0) : p(dropout) {}
  Tensor forward(const Tensor& x) {
    ++runs;
    return torch::dropout(x, p, is_training()).tanh();
  }
  double p;
  int runs = 0;
};
TORCH_MODULE(Counted);

torch::nn::Sequential counted_modules(std::int64_t count, double dropout) {
  torch::nn::Sequential modules;
  for (std::int64_t i = 0; i < count; ++i) modules->push_back(Counted(dropout));
  return modules;
}

TEST(CheckpointSequential, IsExactForEveryNumberOfSegments) {
  torch::manual_seed(8);
  torch::nn::Sequential modules(
      torch::nn::Linear(8, 16), torch::nn::BatchNorm1d(16), torch::nn::ReLU(true),
      torch::nn::Dropout(0.5), torch::nn::Linear(16, 8),
      torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})), torch::nn::GELU());
  const auto input = random_tensor({4, 8}, 9);
  const testing::Snapshot before(modules->buffers());
  const auto plain = [](auto& sequential, const Tensor& x) {
    return sequential->forward(x);
  };
  const auto expected = pass_of(modules, input, plain);
  for (const auto& options : testing::all_options()) {
    SCOPED_TRACE(options.name);
    for (std::int64_t segments = 1; segments <= 7; ++segments) {
      SCOPED_TRACE(segments);
      before.restore();
      const auto in_segments = [&](auto& sequential, const Tensor& x) {
        return checkpoint_sequential(sequential, segments, x, options);
      };
      expect_same_bytes(pass_of(modules, input, in_segments), expected);
    }
  }
}

// B38: the last segment is the first to be needed.
TEST(CheckpointSequential, RunsAllButTheLastSegmentTwice) {
  for (const std::int64_t count : {1, 2, 5, 10}) {
    for (std::int64_t segments = 1; segments <= count; ++segments) {
      SCOPED_TRACE(count * 100 + segments);
      const auto modules = counted_modules(count, 0.1);
      checkpoint_sequential(modules, segments, random_leaf({4, 8})).sum().backward();
      std::int64_t once = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        const auto runs = modules->at<CountedImpl>(static_cast<std::size_t>(i)).runs;
        EXPECT_TRUE(runs == 2 || runs == 1) << runs;
        EXPECT_TRUE(once == 0 || runs == 1) << "after a module of the last segment";
        once += runs == 1 ? 1 : 0;
      }
      // As equal a number of modules as possible.
      EXPECT_GE(once, count / segments);
      EXPECT_LE(once, (count + segments - 1) / segments);
    }
  }
}

TEST(CheckpointSequential, PeaksNearTwiceTheRootOfTheNumberOfModules) {
  constexpr std::int64_t kElements = 16 * 1024;
  const auto peak = [&](std::int64_t segments) {
    const auto modules = counted_modules(36, 0);
    const auto x = random_leaf({kElements});
    const AllocationRecorder recorder;
    checkpoint_sequential(modules, segments, x).sum().backward();
    return recorder.peak_bytes() / (kElements * 4);  // in activations
  };
  EXPECT_GE(peak(1), 36);
  EXPECT_LE(peak(6), 6 + 6 + 5);  // segments, the inside of one, gradients
  EXPECT_LT(peak(2), 36);
}

TEST(CheckpointSequential, RefusesSegmentsThatDoNotExist) {
  const auto x = random_leaf({4, 8});
  const auto five = counted_modules(5, 0);
  for (const std::int64_t segments : {-1, 0, 6, 100}) {
    EXPECT_THROW(checkpoint_sequential(five, segments, x), OptionError) << segments;
    EXPECT_THAT(testing::error_of([&] { checkpoint_sequential(five, segments, x); }),
                HasSubstr(std::to_string(segments)));
  }
  EXPECT_THROW(checkpoint_sequential(torch::nn::Sequential(), 1, x), OptionError);
  EXPECT_EQ(five->at<CountedImpl>(0).runs, 0);
}

TEST(CheckpointSequential, UsesTheOptions) {
  struct ChangesImpl : torch::nn::Module {
    Tensor forward(const Tensor& x) { return (x * ++runs).sin(); }
    int runs = 0;
  };
  torch::nn::Sequential modules(std::make_shared<ChangesImpl>(), Counted());
  const CheckpointOptions options = {.name = "trunk", .verification = Verification::kValues};
  const auto y = checkpoint_sequential(modules, 2, random_leaf({4, 8}), options).sum();
  EXPECT_THAT(testing::checkpoint_error_of([&] { y.backward(); }), HasSubstr("trunk"));
}

TEST(CheckpointSequential, RunsPlainlyWithoutGradients) {
  const torch::NoGradGuard no_grad;
  const auto modules = counted_modules(3, 0);
  const auto x = random_tensor({4, 8});
  EXPECT_TRUE(testing::is_same_bytes(checkpoint_sequential(modules, 2, x), x.tanh().tanh().tanh()));
}

}  // namespace
}  // namespace reprise
