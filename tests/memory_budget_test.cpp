// SPDX-License-Identifier: Apache-2.0
/// Budgets are hard, and what they refuse can be tried again.
#include "reprise/memory_budget.h"
#include "reprise/errors.h"
#include "reprise/memory.h"
#include "reprise/memory_timeline.h"

#include "tests/checkpoint_testing.h"
#include "tests/memory_testing.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <limits>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace reprise {
namespace {

using ::testing::AllOf;
using testing::bytes_tensor;
using ::testing::HasSubstr;
using testing::in_use;
using testing::kMega;
using testing::random_leaf;
using testing::Tensors;
using torch::Tensor;

/// The error that `action` is refused with.
template <typename Action>
BudgetError budget_error_of(Action action) {
  try {
    action();
  } catch (const BudgetError& error) {
    return error;
  }
  ADD_FAILURE() << "not refused";
  return {0, 0, ""};
}

TEST(MemoryBudget, AllowsItsBytesAndNotOneMore) {
  const auto before = in_use();
  const MemoryBudget budget(before + 1'000'064);
  EXPECT_EQ(memory_stats().budget_bytes, before + 1'000'064);
  const auto full = bytes_tensor(1'000'064);
  EXPECT_EQ(in_use(), before + 1'000'064);
  const auto error = budget_error_of([] { bytes_tensor(1); });
  EXPECT_EQ(error.needed_bytes(), before + 1'000'064 + 64);
  EXPECT_EQ(error.allowed_bytes(), before + 1'000'064);
  EXPECT_EQ(bytes_tensor(0).numel(), 0);  // takes nothing
}

TEST(MemoryBudget, SaysWhatWasAskedForAndWhatToDo) {
  const MemoryBudget budget(in_use() + 12 * kMega);
  const auto held = bytes_tensor(8 * kMega);
  EXPECT_THAT(
      budget_error_of([] { bytes_tensor(8 * kMega); }).what(),
      AllOf(HasSubstr("asks for 8.0 MB"), HasSubstr("budget is 12."), HasSubstr("smaller batch")));
}

TEST(MemoryBudget, CountsWhatItRefuses) {
  const auto before = memory_stats().out_of_memory_events;
  const auto allocations = memory_stats().allocations;
  const MemoryBudget budget(in_use() + kMega);
  budget_error_of([] { bytes_tensor(2 * kMega); });
  budget_error_of([] { bytes_tensor(3 * kMega); });
  EXPECT_EQ(memory_stats().out_of_memory_events, before + 2);
  EXPECT_EQ(memory_stats().allocations, allocations);
}

TEST(MemoryBudget, EndsWithItsScope) {
  const auto before = in_use();
  {
    const MemoryBudget budget(before + kMega);
    budget_error_of([] { bytes_tensor(2 * kMega); });
  }
  EXPECT_EQ(memory_stats().budget_bytes, 0);
  EXPECT_EQ(bytes_tensor(2 * kMega).numel(), 2 * kMega);
}

TEST(MemoryBudget, OfSeveralIsTheSmallest) {
  const auto before = in_use();
  std::optional<MemoryBudget> first(std::in_place, before + 2 * kMega);
  std::optional<MemoryBudget> second(std::in_place, before + kMega);
  std::optional<MemoryBudget> third(std::in_place, before + 3 * kMega);
  std::optional<MemoryBudget> same(std::in_place, before + kMega);
  EXPECT_EQ(budget_error_of([] { bytes_tensor(2 * kMega); }).allowed_bytes(), before + kMega);
  second.reset();  // not in the order of their beginning
  EXPECT_EQ(memory_stats().budget_bytes, before + kMega);
  same.reset();
  EXPECT_EQ(memory_stats().budget_bytes, before + 2 * kMega);
  first.reset();
  EXPECT_EQ(memory_stats().budget_bytes, before + 3 * kMega);
  third.reset();
  EXPECT_EQ(memory_stats().budget_bytes, 0);
}

TEST(MemoryBudget, RefusesToBeginBelowWhatIsInUse) {
  const auto held = bytes_tensor(5 * kMega);
  const auto before = in_use();
  const auto error = budget_error_of([&] { const MemoryBudget budget(before - 1); });
  EXPECT_EQ(error.needed_bytes(), before);
  EXPECT_EQ(error.allowed_bytes(), before - 1);
  EXPECT_EQ(memory_stats().budget_bytes, 0);
  const MemoryBudget exact(before);
  budget_error_of([] { bytes_tensor(1); });
}

TEST(MemoryBudget, IsPositive) {
  for (const std::int64_t bytes :
       {std::int64_t{0}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()}) {
    try {
      const MemoryBudget budget(bytes);
      ADD_FAILURE() << bytes;
    } catch (const OptionError& error) {
      EXPECT_EQ(error.field(), "memory_budget");
      EXPECT_THAT(error.what(), HasSubstr(std::to_string(bytes)));
    }
  }
  const MemoryBudget most(std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(bytes_tensor(100).numel(), 100);
}

TEST(MemoryBudget, RefusesWhatNoSystemHas) {
  const auto before = in_use();
  const MemoryBudget budget(before + kMega);
  for (const int power : {47, 61, 62}) {
    const auto error = budget_error_of([&] { bytes_tensor((std::int64_t{1} << power) - 1); });
    EXPECT_THAT(error.what(), HasSubstr("the budget is 1.0"));
    EXPECT_GT(error.needed_bytes(), std::int64_t{1} << (power - 1));
  }
  budget_error_of([] { bytes_tensor(std::numeric_limits<std::int64_t>::max()); });
  EXPECT_THAT(testing::error_of([] { torch::empty({std::int64_t{1} << 62}); }),
              HasSubstr("overflow"));
  EXPECT_EQ(in_use(), before);
}

// Blocks of one byte more than whole pages waste most of a page each.
TEST(MemoryBudget, HoldsForFreePagesToo) {
  for (const std::int64_t size : {65'537, 65'600, 69'632, 100'000, 3'000'001}) {
    SCOPED_TRACE(size);
    const auto rounded = (size + 63) / 64 * 64;
    const auto before = in_use();
    const MemoryBudget budget(before + 20 * rounded);
    Tensors tensors;
    for (int i = 0; i < 20; ++i) tensors.push_back(bytes_tensor(size));
    while (!tensors.empty()) {
      tensors.pop_back();
      const auto stats = memory_stats();
      EXPECT_LE(stats.current_bytes + stats.cached_bytes, stats.budget_bytes);
    }
  }
}

TEST(MemoryBudget, GivesUpFreePagesBeforeItRefuses) {
  if (testing::kIsSanitized) GTEST_SKIP() << "no pages are kept";
  const auto before = in_use();
  bytes_tensor(50 * kMega).fill_(1);
  ASSERT_GE(memory_stats().cached_bytes, 50 * kMega);
  const MemoryBudget budget(before + 20 * kMega);
  EXPECT_LE(memory_stats().cached_bytes, 20 * kMega);
  Tensors tensors;
  for (int i = 0; i < 199; ++i) tensors.push_back(bytes_tensor(100'000));  // 19,906,368 bytes
  EXPECT_LE(memory_stats().cached_bytes, 20 * kMega - 19'906'368);
  budget_error_of([] { bytes_tensor(100'000); });
}

// Sizes at random: nothing is refused that would fit, nothing allowed that would not.
RC_GTEST_PROP(MemoryBudgetProperty, IsHardOnRandomPrograms, ()) {
  const auto before = in_use();
  const auto allowed = before + *rc::gen::inRange<std::int64_t>(1, 4 * kMega);
  reset_peak_memory();
  const MemoryBudget budget(allowed);
  Tensors tensors;
  for (int steps = *rc::gen::inRange(0, 80); steps > 0; --steps) {
    const auto size = *rc::gen::inRange<std::int64_t>(1, kMega);
    if (!tensors.empty() && *rc::gen::inRange(0, 3) == 0) {
      std::swap(tensors[static_cast<std::size_t>(size) % tensors.size()], tensors.back());
      tensors.pop_back();
      continue;
    }
    const auto needed = in_use() + (size + 63) / 64 * 64;
    try {
      tensors.push_back(bytes_tensor(size));
      RC_ASSERT(needed <= allowed);
      RC_ASSERT(in_use() == needed);
    } catch (const BudgetError& error) {
      RC_ASSERT(needed > allowed);
      RC_ASSERT(error.needed_bytes() == needed);
    }
    const auto stats = memory_stats();
    RC_ASSERT(stats.peak_bytes <= allowed);
    RC_ASSERT(stats.current_bytes + stats.cached_bytes <= allowed);
  }
}

TEST(MemoryBudget, RefusesAResizeThatKeepsTheTensor) {
  auto tensor = torch::arange(1000);
  const MemoryBudget budget(in_use() + kMega);
  budget_error_of([&] { tensor.resize_({kMega}); });
  const auto same = tensor.narrow(0, 0, 1000);
  EXPECT_EQ(same[999].item<std::int64_t>(), 999);
}

TEST(MemoryBudget, LeavesAnErrorThatUnwindsAlone) {
  struct AllocatesInItsDestructor {
    ~AllocatesInItsDestructor() {
      budget_error_of([] { bytes_tensor(2 * kMega); });
      EXPECT_EQ(bytes_tensor(100).numel(), 100);
    }
  };
  const MemoryBudget budget(in_use() + kMega);
  const auto fails = [] {
    const AllocatesInItsDestructor guard;
    throw std::runtime_error("another error");
  };
  EXPECT_EQ(testing::error_of(fails), "another error");
}

TEST(MemoryBudget, IsToldToATimeline) {
  MemoryTimeline timeline;
  {
    const MemoryBudget budget(in_use() + kMega);
    budget_error_of([] { bytes_tensor(2 * kMega); });
  }
  timeline.stop();
  EXPECT_EQ(timeline.out_of_memory_events(), 1);
  EXPECT_TRUE(timeline.events().empty());
  EXPECT_EQ(timeline.peak_event(), std::nullopt);
}

// What a failed backward pass left in the queue of LibTorch's engine.
TEST(MemoryBudget, LeavesNothingBehindInABackwardPass) {
  const auto x = random_leaf({100'000});
  const auto before = in_use();
  {
    MemoryTimeline timeline;  // has our engine
    const auto a = x.sin();
    const auto b = x.cos();
    const auto loss = (a * b).sum();
    const MemoryBudget budget(in_use() + kMega);
    budget_error_of([&] { loss.backward(); });
  }
  x.mutable_grad() = Tensor();
  EXPECT_EQ(in_use(), before);
}

}  // namespace
}  // namespace reprise
