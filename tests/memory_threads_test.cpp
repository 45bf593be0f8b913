// SPDX-License-Identifier: Apache-2.0
/// The ledger from several threads at once. A program of its own, so that it can run under the
/// thread sanitizer.
#include "reprise/checkpoint.h"
#include "reprise/errors.h"
#include "reprise/memory.h"
#include "reprise/memory_budget.h"
#include "reprise/memory_timeline.h"

#include "tests/checkpoint_testing.h"
#include "tests/memory_testing.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace reprise {
namespace {

using testing::bytes_tensor;
using testing::in_use;
using testing::kMega;
using testing::random_leaf;
using testing::Tensors;
using torch::Tensor;

constexpr int kThreads = 4;
/// Runs `action(number)` in several threads that begin together.
void run_together(const std::function<void(int)>& action) {
  std::atomic<int> waiting = kThreads;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      --waiting;
      while (waiting != 0) std::this_thread::yield();
      action(i);
    });
  }
  for (auto& thread : threads) thread.join();
}

/// Fills a tensor with its size, and says whether that is still there.
Tensor marked(std::int64_t bytes) {
  return bytes_tensor(bytes).fill_(bytes % 251);
}
bool is_intact(const Tensor& tensor) {
  if (!tensor.defined()) return true;
  const auto mark = static_cast<std::uint8_t>(tensor.numel() % 251);
  const auto* const bytes = tensor.const_data_ptr<std::uint8_t>();
  return std::all_of(bytes, bytes + tensor.numel(), [&](std::uint8_t b) { return b == mark; });
}

/// Allocates and frees at random, within the budget or not; tensors change hands.
class Traffic {
 public:
  void run(int number) {
    std::mt19937 random(static_cast<std::uint32_t>(number));
    Tensors own;
    for (int i = 0; i < 400; ++i) {
      const auto size = static_cast<std::int64_t>(random() % (random() % 4 == 0 ? 400'000 : 2'000));
      try {
        own.push_back(marked(size));
        if (random() % 2 == 0) label_memory(own.back(), MemoryCategory::kBatch);
      } catch (const BudgetError&) {
        ++refused;
      }
      if (own.empty()) continue;
      std::swap(own[random() % own.size()], own.back());
      exchange(own.back());
      if (random() % 3 == 0) own.pop_back();
    }
    for (const auto& tensor : own) all_intact = all_intact && is_intact(tensor);
  }

  std::atomic<int> refused = 0;
  std::atomic<bool> all_intact = true;

 private:
  void exchange(Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    std::swap(tensor, shared_);
    all_intact = all_intact && is_intact(tensor);
  }

  std::mutex mutex_;
  Tensor shared_;
};

TEST(MemoryThreads, NeverPassABudgetTogether) {
  const auto before = in_use();
  {
    Traffic traffic;
    reset_peak_memory();
    const MemoryBudget budget(before + 3 * kMega);
    run_together([&](int number) { traffic.run(number); });
    EXPECT_LE(memory_stats().peak_bytes, before + 3 * kMega);
    EXPECT_GT(traffic.refused, 0);
    EXPECT_TRUE(traffic.all_intact);
  }
  EXPECT_EQ(in_use(), before);
}

TEST(MemoryThreads, KeepTheBooksOfATimelineBalanced) {
  MemoryTimeline timeline;
  Traffic traffic;
  std::atomic<bool> is_done = false;
  std::thread reader([&] {
    while (!is_done) {
      const auto stats = memory_stats();
      EXPECT_EQ(stats.current.total(), stats.current_bytes);
      EXPECT_EQ(stats.at_peak.total(), stats.peak_bytes);
      release_cached_memory();
    }
  });
  run_together([&](int number) {
    const LayerScope layer("thread " + std::to_string(number));
    traffic.run(number);
  });
  is_done = true;
  reader.join();
  timeline.stop();
  EXPECT_TRUE(traffic.all_intact);
  auto sums = timeline.at_start().bytes;
  std::map<std::int64_t, std::optional<MemoryCategory>> blocks;
  std::int64_t time_ns = 0;
  for (const auto& event : timeline.events()) {
    if (event.from) sums[static_cast<std::size_t>(*event.from)] -= event.bytes;
    if (event.to) sums[static_cast<std::size_t>(*event.to)] += event.bytes;
    MemoryBreakdown breakdown{.bytes = sums};
    ASSERT_EQ(breakdown.total(), event.total_bytes);
    const auto [block, is_new] = blocks.try_emplace(event.block);
    if (!is_new) {
      ASSERT_EQ(event.from, block->second);
    }
    block->second = event.to;
    ASSERT_GE(event.time_ns, time_ns);
    time_ns = event.time_ns;
  }
  EXPECT_EQ(sums, memory_stats().current.bytes);
}

// Timelines, budgets and handlers that come and go while others allocate.
TEST(MemoryThreads, MayBeginAndEndScopesAtAnyTime) {
  const auto before = in_use();
  {
    Traffic traffic;
    run_together([&](int number) {
      if (number == 0) return traffic.run(number);
      for (int i = 0; i < 50; ++i) {
        MemoryTimeline timeline;
        const MemoryPressureHandler handler([](std::int64_t) { return false; });
        try {
          const MemoryBudget budget(before + 2 * kMega + number * i * 1000);
          const auto tensor = marked(kMega);
          EXPECT_TRUE(is_intact(tensor));
        } catch (const BudgetError&) {
        }
        timeline.stop();
        EXPECT_EQ(timeline.peak_bytes(), timeline.at_peak().total());
      }
    });
  }
  EXPECT_EQ(in_use(), before);
  EXPECT_EQ(memory_stats().budget_bytes, 0);
}

TEST(MemoryThreads, FreeWhatOthersMadeAndEndWithTensorsAlive) {
  const auto before = in_use();
  Tensors tensors(kThreads);
  run_together([&](int number) {
    static thread_local const auto of_thread = marked(100'000);  // freed as the thread ends
    EXPECT_TRUE(is_intact(of_thread));
    tensors[static_cast<std::size_t>(number)] = marked(100'000);
  });
  EXPECT_EQ(in_use(), before + kThreads * 100'032);
  for (const auto& tensor : tensors) EXPECT_TRUE(is_intact(tensor));
  run_together(
      [&](int number) { tensors[static_cast<std::size_t>(number + 1) % kThreads].reset(); });
  EXPECT_EQ(in_use(), before);
}

/// Gradient of a few operators, as a region.
Tensor gradient_at(const Tensor& x) {
  const auto y = checkpoint([](const Tensor& t) { return t.sin().exp().sigmoid(); }, x);
  return torch::autograd::grad({y.sum()}, {x})[0];
}

TEST(MemoryThreads, AreRefusedEachInItsOwnBackwardPass) {
  const auto x = random_leaf({50'000});  // 200,000 bytes
  const auto expected = gradient_at(x);
  const auto before = in_use();
  std::atomic<int> refused = 0;
  {
    // One pass takes at most 5 tensors: some threads fit and some do not.
    const MemoryBudget budget(before + 7 * 200'000);
    run_together([&](int) {
      for (int i = 0; i < 20; ++i) {
        try {
          const auto actual = gradient_at(x);
          EXPECT_TRUE(testing::is_same_bytes(actual, expected));
        } catch (const BudgetError&) {
          ++refused;
        }
      }
    });
  }
  EXPECT_EQ(in_use(), before);
  EXPECT_TRUE(testing::is_same_bytes(gradient_at(x), expected));
}

TEST(MemoryThreads, ThrowInABackwardPassOfAnotherThread) {
  const auto x = random_leaf({500'000});
  const auto before = in_use();
  auto loss = x.sin().sin().sum();
  std::thread([&] {
    const MemoryBudget budget(in_use() + kMega);
    EXPECT_THROW(loss.backward(), BudgetError);
    EXPECT_THROW(loss.backward(), std::exception);  // what it saved may be gone
  }).join();
  loss.reset();
  EXPECT_FALSE(x.grad().defined());
  EXPECT_EQ(in_use(), before);
}

TEST(MemoryThreads, ThrowOutOfAParallelLoop) {
  const auto before = in_use();
  const int threads = at::get_num_threads();
  at::set_num_threads(kThreads);
  {
    const MemoryBudget budget(before + kMega);
    std::atomic<int> refused = 0;
    const auto loop = [&] {
      at::parallel_for(0, 16, 1, [&](std::int64_t begin, std::int64_t end) {
        for (auto i = begin; i < end; ++i) {
          try {
            bytes_tensor(2 * kMega);
          } catch (const BudgetError&) {
            ++refused;
            throw;
          }
        }
      });
    };
    EXPECT_THROW(loop(), BudgetError);
    EXPECT_GE(refused, 1);
  }
  at::set_num_threads(threads);
  EXPECT_EQ(in_use(), before);
}

// Whoever frees, the memory is there.
TEST(MemoryThreads, AskHandlersAtTheSameTime) {
  const auto before = in_use();
  std::mutex mutex;
  Tensors cache;
  for (int i = 0; i < 40; ++i) cache.push_back(bytes_tensor(100'000));
  const MemoryPressureHandler handler([&](std::int64_t) {
    const std::lock_guard lock(mutex);
    if (cache.empty()) return false;
    cache.pop_back();
    return true;
  });
  const MemoryBudget budget(in_use());  // 40 blocks: 10 for each thread
  run_together([&](int) {
    Tensors own;
    for (int i = 0; i < 10; ++i) own.push_back(marked(100'000));
    for (const auto& tensor : own) EXPECT_TRUE(is_intact(tensor));
  });
  EXPECT_EQ(in_use(), before + static_cast<std::int64_t>(cache.size()) * 100'032);
}

}  // namespace
}  // namespace reprise
