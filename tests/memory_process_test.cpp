// SPDX-License-Identifier: Apache-2.0
/// Processes that end with tensors alive, and child processes.
#include "reprise/memory.h"
#include "reprise/memory_budget.h"
#include "reprise/memory_timeline.h"

#include "tests/memory_testing.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <thread>

namespace reprise {
namespace {

using ::testing::ExitedWithCode;
using testing::in_use;
using testing::kMega;
using torch::Tensor;

Tensor written(std::int64_t bytes) {
  return torch::full({bytes}, 1, torch::kUInt8);
}

/// Tensors, a graph, a budget and a timeline that nothing frees before the process ends.
[[noreturn]] void end_with_everything_alive() {
  static const auto tensor = written(kMega);
  static thread_local const auto of_thread = written(kMega);
  static MemoryTimeline timeline;
  static const auto graph = torch::ones({1000}).requires_grad_().sin().exp();
  static const MemoryBudget budget(in_use() + kMega);
  static const MemoryPressureHandler handler([](std::int64_t) { return false; });
  if (!of_thread.defined() || !tensor.defined()) std::_Exit(1);
  std::thread([] {
    static thread_local const auto of_other = written(200'000);
    if (!of_other.defined()) std::_Exit(1);
  }).join();
  std::exit(0);
}

TEST(MemoryProcessDeathTest, MayEndWithEverythingAlive) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(end_with_everything_alive(), ExitedWithCode(0), "");
}

/// Whether a child that begins here can allocate; one that hangs is ended by its alarm.
bool can_child_allocate() {
  const auto child = ::fork();
  if (child == 0) {
    ::alarm(60);
    const auto small = written(100);
    const auto large = written(kMega);
    std::_Exit(large[kMega - 1].item<int>() + small[99].item<int>() == 2 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(MemoryProcess, WorksInAChildProcess) {
  const auto tensor = written(kMega);
  const auto before = in_use();
  EXPECT_TRUE(can_child_allocate());
  EXPECT_EQ(in_use(), before);
}

TEST(MemoryProcess, WorksInAChildProcessWhileOthersAllocate) {
  std::atomic<bool> is_done = false;
  std::thread other([&] {
    while (!is_done) torch::empty({100'000}, torch::kUInt8);
  });
  for (int i = 0; i < 100 && !HasFailure(); ++i) EXPECT_TRUE(can_child_allocate());
  is_done = true;
  other.join();
}

}  // namespace
}  // namespace reprise
