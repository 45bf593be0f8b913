// SPDX-License-Identifier: Apache-2.0
/// The ledger and the operating system: resident memory, its limits, child processes, the end of
/// one.
#include "reprise/errors.h"
#include "reprise/memory.h"
#include "reprise/memory_budget.h"

#include "tests/memory_testing.h"
#include "tests/testing.h"

#include <gmock/gmock.h>
#include <malloc.h>
#include <sys/mman.h>
#include <torch/torch.h>

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace reprise {
namespace {

using ::testing::ExitedWithCode;
using testing::in_use;
using testing::kMega;
using testing::limit_address_space;
using testing::statm;
using torch::Tensor;
using Tensors = std::vector<Tensor>;

/// Written to, so that all of it is resident.
Tensor written(std::int64_t bytes) {
  return torch::full({bytes}, 1, torch::kUInt8);
}

std::int64_t resident() {
  return statm(1);
}

/// Of whatever size, large ones more rarely.
std::int64_t random_size(std::mt19937& random) {
  const std::int64_t most = std::int64_t{1} << (10 + random() % 15);  // 1 KiB to 16 MiB
  return most + static_cast<std::int64_t>(random()) % most;
}

TEST(MemorySystem, HasResidentWhatTheLedgerCounts) {
  release_cached_memory();
  ::malloc_trim(0);
  std::mt19937 random(1);
  const auto resident_before = resident();
  const auto before = in_use();
  Tensors tensors;
  while (in_use() - before < 400 * kMega) tensors.push_back(written(random_size(random)));
  const auto counted = in_use() - before;
  EXPECT_NEAR(static_cast<double>(resident() - resident_before), static_cast<double>(counted),
              0.05 * static_cast<double>(counted));
}

TEST(MemorySystem, ReusesPagesInsteadOfTakingThemAgain) {
  written(10 * kMega);
  const auto* const place = written(10 * kMega).const_data_ptr();
  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(written(10 * kMega).const_data_ptr(), place);
  rusage after{};
  ::getrusage(RUSAGE_SELF, &after);
  // 20 times 2,442 pages, were they given back each time.
  EXPECT_LE(after.ru_minflt - before.ru_minflt, 2'000);
}

TEST(MemorySystem, SaysWhatIsResidentBesidesTensors) {
  const auto before = memory_outside_ledger_bytes();
  const auto tensor = written(100 * kMega);
  EXPECT_NEAR(static_cast<double>(memory_outside_ledger_bytes() - before), 0.0, 5e6);
  const std::vector<char> other(100 * kMega, 1);
  EXPECT_NEAR(static_cast<double>(memory_outside_ledger_bytes() - before), 100e6, 5e6);
}

TEST(MemorySystem, SaysWhatIsAvailable) {
  EXPECT_GT(available_memory_bytes(), 0);
  EXPECT_LT(available_memory_bytes(), std::int64_t{1} << 50);
}

/// What a child process finds wrong ends up in its error output.
void require(bool is_true, const char* what) {
  if (is_true) return;
  std::cerr << "not so: " << what << std::endl;
  std::_Exit(1);
}

/// Ends the process well if `action` returns.
[[noreturn]] void run_as_child(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    std::_Exit(2);
  }
  std::_Exit(0);
}

/// Allocates and frees at random. In a process of its own: the pages that are kept may be as many
/// as were ever in use.
void churn() {
  std::mt19937 random(2);
  const auto resident_before = resident();
  const auto before = in_use();
  Tensors tensors;
  std::int64_t most = 0;
  for (int i = 0; i < 6000; ++i) {
    const auto size = random_size(random);
    while (in_use() - before + size > 300 * kMega) {
      std::swap(tensors[random() % tensors.size()], tensors.back());
      tensors.pop_back();
    }
    tensors.push_back(written(size));
    if (i % 20 == 0) most = std::max(most, resident() - resident_before);
  }
  const auto peak = static_cast<double>(memory_stats().peak_bytes - before);
  require(static_cast<double>(most) <= 1.05 * peak, "resident memory stays below the peak");
  tensors.clear();
  release_cached_memory();
  require(memory_stats().cached_bytes == 0, "pages are given back");
  require(static_cast<double>(resident() - resident_before) <= 0.05 * peak, "they are gone");
}

bool is_refused(const std::function<void()>& action) {
  try {
    action();
  } catch (const BudgetError& error) {
    require(std::string(error.what()).find("system has no more") != std::string::npos,
            error.what());
    require(error.needed_bytes() > error.allowed_bytes(), "needed > allowed");
    return true;
  }
  return false;
}

void fill_address_space() {
  require(limit_address_space(500 * kMega), "a limit can be set");
  require(available_memory_bytes() <= 500 * kMega, "the limit is what is available");
  const auto before = in_use();
  for (int round = 0; round < 3; ++round) {
    Tensors tensors;
    while (!is_refused([&] { tensors.push_back(written(20 * kMega)); })) {
    }
    require(tensors.size() >= 20, "most of it can be used");
    while (!is_refused([&] { tensors.push_back(written(60'000)); })) {
    }
    for (const auto& tensor : tensors)
      require(tensor[tensor.numel() - 1].item<int>() == 1, "content");
    tensors.clear();
    require(in_use() == before, "all is free again");
  }
  // Free pages of large blocks are no obstacle to small ones.
  Tensors small;
  while (!is_refused([&] { small.push_back(written(60'000)); })) {
  }
  require(small.size() >= 6'500, "390 MB of them");
}

/// A step that runs with enough, before and after the system refuses it.
void train_at_the_limit() {
  const auto weight = torch::ones({1000, 1000}).requires_grad_();
  const auto step = [&] {
    auto y = torch::ones({2000, 1000});
    for (int i = 0; i < 10; ++i) y = y.matmul(weight).sigmoid();
    weight.mutable_grad() = Tensor();
    y.sum().backward();
    return weight.grad().clone();
  };
  const auto expected = step();
  const auto before = in_use();
  release_cached_memory();
  limit_address_space(250 * kMega);  // a step takes 10 * 2 * 8 MB
  std::optional<Tensor> hoard = torch::empty({150 * kMega}, torch::kUInt8);
  require(is_refused(step), "refused");
  hoard.reset();
  weight.mutable_grad() = Tensor();
  require(in_use() <= before, "nothing is left behind");
  require(testing::is_same_bytes(step(), expected), "the same gradient");
}

/// Others than tensors get std::bad_alloc, and pressure handlers are asked for the system's memory.
void free_for_the_system() {
  limit_address_space(300 * kMega);
  bool is_thrown = false;
  try {
    const std::vector<char> memory(400 * kMega);
  } catch (const std::bad_alloc&) {
    is_thrown = true;
  }
  require(is_thrown, "std::bad_alloc");
  Tensor cache = written(200 * kMega);
  const MemoryPressureHandler handler([&](std::int64_t missing) {
    require(missing >= 200 * kMega, "missing bytes");
    cache.reset();
    return true;
  });
  require(written(200 * kMega).defined(), "room was made");
}

/// A handler may free what is no tensor's.
void free_other_memory_for_the_system() {
  limit_address_space(300 * kMega);
  void* memory =
      ::mmap(nullptr, 200'000'000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const MemoryPressureHandler handler([&](std::int64_t) {
    if (memory == nullptr) return false;
    ::munmap(memory, 200'000'000);
    memory = nullptr;
    return true;
  });
  require(written(200 * kMega).defined(), "room was made");
}

/// What is asked for never overflows, and no budget is blamed where there is none.
void ask_for_the_impossible() {
  const auto before = in_use();
  for (const int power : {47, 50, 61, 62}) {
    for (const std::int64_t less : {0, 1, 63, 64}) {
      const auto bytes = (std::int64_t{1} << power) - less;
      require(is_refused([&] { torch::empty({bytes}, torch::kUInt8); }), "refused");
    }
  }
  require(in_use() == before, "nothing is counted");
  require(written(kMega).defined(), "the rest goes on");
}

class MemorySystemDeathTest : public ::testing::Test {
 protected:
  MemorySystemDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(MemorySystemDeathTest, IsRefusedByTheSystemAndGoesOn) {
  EXPECT_EXIT(run_as_child(fill_address_space), ExitedWithCode(0), "");
}

TEST_F(MemorySystemDeathTest, NeverHasMoreResidentThanThePeak) {
  EXPECT_EXIT(run_as_child(churn), ExitedWithCode(0), "");
}

TEST_F(MemorySystemDeathTest, TrainsAtTheLimit) {
  EXPECT_EXIT(run_as_child(train_at_the_limit), ExitedWithCode(0), "");
}

TEST_F(MemorySystemDeathTest, FreesForTheSystem) {
  EXPECT_EXIT(run_as_child(free_for_the_system), ExitedWithCode(0), "");
}

TEST_F(MemorySystemDeathTest, FreesOtherMemoryForTheSystem) {
  EXPECT_EXIT(run_as_child(free_other_memory_for_the_system), ExitedWithCode(0), "");
}

TEST_F(MemorySystemDeathTest, RefusesTheImpossible) {
  EXPECT_EXIT(run_as_child(ask_for_the_impossible), ExitedWithCode(0), "");
}

}  // namespace
}  // namespace reprise
