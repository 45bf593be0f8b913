// SPDX-License-Identifier: Apache-2.0
/// Tensors of unusual kinds: the ledger counts their memory, or knows that they have none.
#include "reprise/errors.h"
#include "reprise/memory.h"
#include "reprise/memory_budget.h"
#include "reprise/memory_timeline.h"

#include "tests/checkpoint_testing.h"

#include <ATen/Config.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace reprise {
namespace {

using ::testing::HasSubstr;
using testing::random_leaf;
using testing::random_tensor;
using testing::Tensors;
using torch::Tensor;

class MemoryKinds : public testing::SeededTest {
 protected:
  std::int64_t bytes() const { return memory_stats().current_bytes - before_.current_bytes; }
  std::int64_t of(MemoryCategory category) const {
    return memory_stats().current[category] - before_.current[category];
  }

 private:
  MemoryStats before_ = memory_stats();
};

void label_as_everything(const Tensor& tensor) {
  for (std::size_t i = 0; i < kMemoryCategories; ++i)
    label_memory(tensor, static_cast<MemoryCategory>(i));
  label_parameters(std::vector<Tensor>{tensor});
}

TEST_F(MemoryKinds, UndefinedHasNone) {
  label_memory(Tensor(), MemoryCategory::kBatch);
  EXPECT_EQ(bytes(), 0);
}

TEST_F(MemoryKinds, MetaHasNone) {
  const auto tensor = torch::empty({1000, 1000}, torch::device(torch::kMeta));
  label_as_everything(tensor);
  EXPECT_EQ(bytes(), 0);
  const auto x = torch::empty({1000}, torch::device(torch::kMeta)).requires_grad_();
  MemoryTimeline timeline;
  x.sin().exp().sum().backward();
  timeline.stop();
  EXPECT_EQ(timeline.events().size(), 0U);
}

TEST_F(MemoryKinds, EmptyHasNone) {
  const auto tensor = torch::empty({0, 5});
  label_as_everything(tensor);
  const auto x = torch::zeros({0}).requires_grad_();
  const MemoryTimeline timeline;
  x.exp().sum().backward();
  EXPECT_EQ(of(MemoryCategory::kSavedActivations), 0);
}

TEST_F(MemoryKinds, SparseIsItsIndicesAndValues) {
  const auto indices = torch::tensor({{0, 1, 2}, {3, 4, 5}});  // 48 bytes
  const auto values = torch::rand({3});
  {
    const auto sparse = torch::sparse_coo_tensor(indices, values, {10, 10}).coalesce();
    label_as_everything(sparse);
    EXPECT_GE(bytes(), 128);
    EXPECT_EQ(of(MemoryCategory::kParameters), 0);  // it has no memory of its own
  }
  EXPECT_EQ(bytes(), 128);
}

TEST_F(MemoryKinds, SparseGradientsAreFreed) {
  {
    const auto table = random_leaf({100, 8});
    label_parameters(Tensors{table});
    MemoryTimeline timeline;
    const auto y = torch::embedding(table, torch::tensor({1, 2, 3}), -1, false, /*sparse=*/true);
    y.square().sum().backward();
    EXPECT_TRUE(table.grad().is_sparse());
    timeline.stop();
  }
  EXPECT_EQ(bytes(), 0);
}

TEST_F(MemoryKinds, QuantizedIsOneBytePerElement) {
  const auto tensor = torch::rand({1000});
  const auto quantized = torch::quantize_per_tensor(tensor, 0.1, 0, torch::kQUInt8);
  label_as_everything(quantized);
  EXPECT_EQ(bytes(), 4032 + 1024);
  EXPECT_EQ(of(MemoryCategory::kParameters), 1024);
  EXPECT_EQ(quantized.dequantize().numel(), 1000);
}

TEST_F(MemoryKinds, CopyOnWriteCountsWhenItIsWritten) {
  const auto original = torch::ones({1000});
  auto lazy = at::_lazy_clone(original);
  EXPECT_EQ(bytes(), 4032);
  label_memory(lazy, MemoryCategory::kBatch);
  EXPECT_EQ(of(MemoryCategory::kBatch), 4032);
  EXPECT_EQ(lazy.sum().item<float>(), 1000);
  EXPECT_EQ(bytes(), 4032);  // still one
  lazy.add_(1);
  EXPECT_EQ(bytes(), 2 * 4032);
  EXPECT_EQ(original.sum().item<float>(), 1000);
  lazy.reset();
  EXPECT_EQ(bytes(), 4032);
}

TEST_F(MemoryKinds, CopyOnWriteMayBeSaved) {
  const auto x = random_leaf({1000});
  const auto expected = torch::autograd::grad({(at::_lazy_clone(x) * x).sum()}, {x})[0];
  {
    MemoryTimeline timeline;
    const auto actual = torch::autograd::grad({(at::_lazy_clone(x) * x).sum()}, {x})[0];
    EXPECT_TRUE(testing::is_same_bytes(actual, expected));
    timeline.stop();
  }
  EXPECT_EQ(of(MemoryCategory::kSavedActivations), 0);
}

TEST_F(MemoryKinds, InferenceCountsAsAll) {
  const c10::InferenceMode inference;
  MemoryTimeline timeline;
  const auto tensor = torch::ones({1000});
  const auto y = tensor.sin();
  label_memory(y, MemoryCategory::kBatch);
  EXPECT_EQ(bytes(), 2 * 4032);
  EXPECT_EQ(of(MemoryCategory::kBatch), 4032);
  timeline.stop();
  EXPECT_EQ(timeline.events().size(), 3U);
}

TEST_F(MemoryKinds, InferenceTensorsAreRefusedByAutogradAsEver) {
  const auto inference = [] {
    const c10::InferenceMode mode;
    return torch::ones({10});
  }();
  const auto x = random_leaf({10});
  const MemoryTimeline timeline;
  EXPECT_THAT(testing::error_of([&] { x* inference; }),
              HasSubstr("Inference tensors cannot be saved"));
}

TEST_F(MemoryKinds, ConjugateAndComplexShareTheirMemory) {
  const auto tensor = torch::ones({100}, torch::kComplexFloat);
  const auto conjugate = tensor.conj();
  const auto real = torch::view_as_real(tensor);
  label_memory(real, MemoryCategory::kBatch);
  EXPECT_EQ(bytes(), 832);
  EXPECT_EQ(of(MemoryCategory::kBatch), 832);
  EXPECT_EQ(conjugate.resolve_conj().numel(), 100);
}

TEST_F(MemoryKinds, NestedIsCounted) {
  {
    const auto nested = at::_nested_tensor_from_tensor_list({torch::ones({10}), torch::ones({20})});
    label_memory(nested, MemoryCategory::kBatch);
    EXPECT_GE(bytes(), 128);
  }
  EXPECT_EQ(bytes(), 0);
}

// oneDNN takes its memory from the allocator and frees it through the deleter that is current then.
TEST_F(MemoryKinds, OneDnnIsCounted) {
  if (!at::globalContext().hasMKLDNN()) GTEST_SKIP() << "LibTorch without oneDNN";
  const auto tensor = torch::rand({1, 8, 100, 100});
  const auto of_tensor = bytes();
  {
    const auto dense = tensor.to_mkldnn();
    EXPECT_GE(bytes() - of_tensor, static_cast<std::int64_t>(tensor.nbytes()));
    label_as_everything(dense);
    EXPECT_TRUE(torch::equal(dense.to_dense(), tensor));
    const auto sum = dense + dense;
    EXPECT_TRUE(torch::equal(sum.to_dense(), tensor * 2));
  }
  EXPECT_EQ(bytes(), of_tensor);
}

TEST_F(MemoryKinds, OneDnnConvolutionsAreCountedAndRefused) {
  const auto x = random_tensor({8, 16, 64, 64});
  const auto weight = random_leaf({32, 16, 3, 3}, 2);
  const auto run = [&] {
    return torch::autograd::grad({torch::conv2d(x, weight).square().sum()}, {weight})[0];
  };
  const auto expected = run();
  const auto before = bytes();
  for (const std::int64_t room : {1'000, 100'000, 4'000'000, 8'000'000, 12'000'000, 16'000'000}) {
    const MemoryBudget budget(memory_stats().current_bytes + room);
    try {
      EXPECT_TRUE(testing::is_same_bytes(run(), expected));
      EXPECT_GE(room, 4'000'000);  // the result has 8 * 32 * 62 * 62 * 4 bytes: 3.9 MB
    } catch (const BudgetError&) {
      EXPECT_LE(room, 16'000'000);
    }
    EXPECT_EQ(bytes(), before);
  }
  EXPECT_TRUE(testing::is_same_bytes(run(), expected));
}

/// Takes memory of its own in forward and in backward.
struct Hungry : torch::autograd::Function<Hungry> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x) {
    context->saved_data["bytes"] = x.numel() * 4;
    return x.clone();
  }
  static Tensors backward(torch::autograd::AutogradContext* context, Tensors gradients) {
    const auto buffer = torch::ones({context->saved_data["bytes"].toInt() * 3}, torch::kUInt8);
    return {gradients[0] * buffer[0]};
  }
};

TEST_F(MemoryKinds, FunctionsOfUsersAreRefusedInBackward) {
  const auto x = random_leaf({100'000});
  const auto before = bytes();
  {
    const auto loss = Hungry::apply(x).sum();
    const MemoryBudget budget(memory_stats().current_bytes + 1'100'000);
    EXPECT_THROW(loss.backward(), BudgetError);
  }
  EXPECT_EQ(bytes(), before);
  Hungry::apply(x).sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), torch::ones({100'000})));
}

TEST_F(MemoryKinds, ReadFromAStreamIsCounted) {
  std::stringstream stream;
  torch::save(torch::ones({1000}), stream);
  {
    Tensor tensor;
    torch::load(tensor, stream);
    EXPECT_EQ(bytes(), 4032);
  }
  EXPECT_EQ(bytes(), 0);
}

}  // namespace
}  // namespace reprise
