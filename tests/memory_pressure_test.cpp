// SPDX-License-Identifier: Apache-2.0
/// Handlers that free memory before an allocation is refused.
#include "reprise/checkpoint.h"
#include "reprise/errors.h"
#include "reprise/memory.h"
#include "reprise/memory_budget.h"

#include "tests/checkpoint_testing.h"
#include "tests/memory_testing.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace reprise {
namespace {

using testing::bytes_tensor;
using testing::Caller;
using ::testing::ElementsAre;
using testing::in_use;
using testing::kMega;
using testing::random_leaf;
using testing::Tensors;
using torch::Tensor;

/// 4 MB that may go, under a budget of 5.
class MemoryPressure : public ::testing::Test {
 protected:
  bool free_one() {
    if (cache.empty()) return false;
    cache.pop_back();
    return true;
  }

  std::int64_t budget_left() const { return memory_stats().budget_bytes - in_use(); }

  std::int64_t before = in_use();
  MemoryBudget budget{before + 5 * kMega};
  Tensors cache = [] {
    Tensors tensors;
    for (int i = 0; i < 4; ++i) tensors.push_back(bytes_tensor(kMega));
    return tensors;
  }();
  std::vector<std::int64_t> asked;
};

TEST_F(MemoryPressure, IsTakenAwayByAHandlerThatIsToldTheMissingBytes) {
  const MemoryPressureHandler handler([&](std::int64_t missing) {
    asked.push_back(missing);
    return free_one();
  });
  const auto refusals = memory_stats().out_of_memory_events;
  const auto held = bytes_tensor(2 * kMega);  // 4 + 2 of 5 MB
  EXPECT_THAT(asked, ElementsAre(kMega));
  const auto more = bytes_tensor(2 * kMega + 64);  // 3 + 2 + 2 of 5 MB, and 64 bytes
  EXPECT_THAT(asked, ElementsAre(kMega, 2 * kMega + 64, kMega + 64, 64));
  EXPECT_TRUE(cache.empty());
  EXPECT_EQ(memory_stats().out_of_memory_events, refusals);
  EXPECT_EQ(in_use(), before + 4 * kMega + 64);
}

TEST_F(MemoryPressure, IsRefusedWhenHandlersHaveNoMore) {
  const MemoryPressureHandler handler([&](std::int64_t missing) {
    asked.push_back(missing);
    return free_one();
  });
  EXPECT_THROW(bytes_tensor(6 * kMega), BudgetError);
  EXPECT_THAT(asked, ElementsAre(5 * kMega, 4 * kMega, 3 * kMega, 2 * kMega, kMega));
  EXPECT_EQ(in_use(), before);
  EXPECT_EQ(bytes_tensor(5 * kMega).numel(), 5 * kMega);
}

TEST_F(MemoryPressure, AsksAHandlerThatLiesOnce) {
  int calls = 0;
  const MemoryPressureHandler handler([&](std::int64_t) {
    ++calls;
    return true;
  });
  EXPECT_THROW(bytes_tensor(2 * kMega), BudgetError);
  EXPECT_EQ(calls, 1);
}

TEST_F(MemoryPressure, EndsWithTheHandler) {
  int calls = 0;
  {
    const MemoryPressureHandler handler([&](std::int64_t) {
      ++calls;
      return false;
    });
    EXPECT_THROW(bytes_tensor(2 * kMega), BudgetError);
  }
  EXPECT_THROW(bytes_tensor(2 * kMega), BudgetError);
  EXPECT_EQ(calls, 1);
}

TEST_F(MemoryPressure, LetsTheErrorOfAHandlerOut) {
  std::optional<MemoryPressureHandler> handler(
      std::in_place, [](std::int64_t) -> bool { throw std::runtime_error("a handler"); });
  EXPECT_EQ(testing::error_of([] { bytes_tensor(2 * kMega); }), "a handler");
  // As if nothing had happened: the next one is asked.
  handler.emplace([&](std::int64_t) { return free_one(); });
  EXPECT_EQ(bytes_tensor(2 * kMega).numel(), 2 * kMega);
}

TEST_F(MemoryPressure, CallsNoHandlerForWhatAHandlerAllocates) {
  int calls = 0;
  std::int64_t small = 0;
  const MemoryPressureHandler handler([&](std::int64_t) {
    ++calls;
    small = bytes_tensor(kMega).numel();  // fits
    EXPECT_THROW(bytes_tensor(2 * kMega), BudgetError);
    return free_one();
  });
  EXPECT_EQ(bytes_tensor(2 * kMega).numel(), 2 * kMega);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(small, kMega);
}

TEST_F(MemoryPressure, AsksSeveralHandlers) {
  const MemoryPressureHandler useless([&](std::int64_t) {
    asked.push_back(1);
    return false;
  });
  const MemoryPressureHandler useful([&](std::int64_t) {
    asked.push_back(2);
    return free_one();
  });
  EXPECT_EQ(bytes_tensor(3 * kMega).numel(), 3 * kMega);
  EXPECT_THAT(asked, ElementsAre(1, 2, 1, 2));
}

// Freed enough: the others keep what they have.
TEST_F(MemoryPressure, AsksNoMoreHandlersThanItNeeds) {
  Tensors other = {cache.back()};
  cache.pop_back();
  const MemoryPressureHandler first([&](std::int64_t) { return free_one(); });
  const MemoryPressureHandler second([&](std::int64_t) {
    other.clear();
    return true;
  });
  EXPECT_EQ(bytes_tensor(2 * kMega).numel(), 2 * kMega);
  EXPECT_EQ(other.size(), 1U);
}

TEST_F(MemoryPressure, IsRelievedByAHandlerThatRemovesItself) {
  std::optional<MemoryPressureHandler> handler;
  handler.emplace([&](std::int64_t) {
    handler.reset();  // its own closure lives on in the caller
    return free_one();
  });
  EXPECT_EQ(bytes_tensor(2 * kMega).numel(), 2 * kMega);
  EXPECT_THROW(bytes_tensor(3 * kMega), BudgetError);
}

TEST_F(MemoryPressure, IsRelievedInTheThreadThatAllocates) {
  std::thread::id asked_in;
  const MemoryPressureHandler handler([&](std::int64_t) {
    asked_in = std::this_thread::get_id();
    return free_one();
  });
  std::thread::id worker;
  std::thread([&] {
    worker = std::this_thread::get_id();
    EXPECT_EQ(bytes_tensor(2 * kMega).numel(), 2 * kMega);
  }).join();
  EXPECT_EQ(asked_in, worker);
}

/// Gradient of a chain of operators that run as a region.
Tensor gradient(const Caller& call, const Tensor& x) {
  const auto y = call([](const Tensor& t) { return t.sin().exp().sigmoid().tanh(); }, x);
  return torch::autograd::grad({y.sum()}, {x})[0];
}

// The operators of a handler are not the region's, in its first run nor in its second.
TEST_F(MemoryPressure, IsRelievedByOperatorsInsideARegion) {
  const auto x = random_leaf({50'000});  // 0.2 MB
  cache.clear();
  const auto expected = gradient(Caller(), x);
  for (const auto& options : testing::all_options()) {
    SCOPED_TRACE(options.name);
    for (int room = 1; room <= 8; ++room) {
      cache.clear();
      cache.push_back(bytes_tensor(budget_left() - room * 200'000));
      int calls = 0;
      const MemoryPressureHandler handler([&](std::int64_t) {
        if (!free_one()) return false;
        ++calls;
        torch::ones({10}).add_(torch::rand({10})).sin();
        return true;
      });
      EXPECT_TRUE(testing::is_same_bytes(gradient(Caller(options), x), expected)) << room;
      EXPECT_EQ(calls, room < 3 ? 1 : calls);
    }
  }
}

}  // namespace
}  // namespace reprise
