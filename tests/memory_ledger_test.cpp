// SPDX-License-Identifier: Apache-2.0
/// What the ledger counts: exact bytes, rounded up to 64 per block, whatever becomes of a tensor.
#include "reprise/memory.h"
#include "reprise/memory_timeline.h"

#include "tests/checkpoint_testing.h"
#include "tests/memory_testing.h"

#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <malloc.h>
#include <rapidcheck/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/allocation_recorder.h"

namespace reprise {
namespace {

using testing::bytes_tensor;
using ::testing::Each;
using ::testing::HasSubstr;
using testing::random_leaf;
using torch::Tensor;

/// Made before anything of the ledger: by LibTorch's own allocator.
__attribute__((init_priority(101))) Tensor early = torch::ones({1000, 1000});

std::int64_t rounded(std::int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

/// What there is more than when it was made.
class Growth {
 public:
  std::int64_t bytes() const { return memory_stats().current_bytes - before_.current_bytes; }
  std::int64_t of(MemoryCategory category) const {
    return memory_stats().current[category] - before_.current[category];
  }
  std::int64_t peak() const { return memory_stats().peak_bytes - before_.current_bytes; }

 private:
  MemoryStats before_ = memory_stats();
};

class MemoryLedger : public testing::SeededTest {
 protected:
  MemoryLedger() { reset_peak_memory(); }
  ~MemoryLedger() override {
    const auto stats = memory_stats();
    EXPECT_EQ(stats.current.total(), stats.current_bytes);
    EXPECT_EQ(stats.at_peak.total(), stats.peak_bytes);
    EXPECT_GE(stats.peak_bytes, stats.current_bytes);
    EXPECT_THAT(stats.current.bytes, Each(::testing::Ge(0)));
  }
};

// Nothing, both sides of 64, of the smallest pooled block, of a page, of a huge page.
constexpr std::array<std::int64_t, 17> kSizes = {
    0,      1,      63,     64,     65,        1000,      65'472,    65'473,    65'535,
    65'536, 65'537, 69'632, 69'633, 2'097'152, 2'097'153, 5'000'001, 20'000'000};

TEST_F(MemoryLedger, CountsEverySizeRoundedUpTo64Bytes) {
  for (const auto size : kSizes) {
    SCOPED_TRACE(size);
    const Growth growth;
    {
      auto tensor = bytes_tensor(size);
      EXPECT_EQ(growth.bytes(), rounded(size));
      EXPECT_EQ(growth.of(MemoryCategory::kTemporaries), rounded(size));
      tensor.fill_(7);
      EXPECT_EQ(tensor.sum().item<std::int64_t>(), 7 * size);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % 64, 0U);
    }
    EXPECT_EQ(growth.bytes(), 0);
  }
}

TEST_F(MemoryLedger, KeepsThePeakAndWhoHeldIt) {
  const Growth growth;
  const auto parameter = bytes_tensor(100'000);
  label_memory(parameter, MemoryCategory::kParameters);
  {
    const auto batch = bytes_tensor(300);
    label_memory(batch, MemoryCategory::kBatch);
    const auto temporary = bytes_tensor(3'000'000);
  }
  EXPECT_EQ(growth.bytes(), 100'032);
  EXPECT_EQ(growth.peak(), 100'032 + 320 + 3'000'000);
  EXPECT_EQ(memory_stats().at_peak[MemoryCategory::kBatch], 320);
  reset_peak_memory();
  EXPECT_EQ(growth.peak(), 100'032);
}

TEST_F(MemoryLedger, CountsAllocationsThatWereMade) {
  const auto before = memory_stats().allocations;
  const std::vector<Tensor> tensors = {bytes_tensor(0), bytes_tensor(1), bytes_tensor(100'000)};
  EXPECT_EQ(memory_stats().allocations - before, 2);  // no bytes are no block
}

TEST_F(MemoryLedger, CountsViewsAndInPlaceOperatorsAsNothing) {
  auto base = torch::ones({100, 100});
  const Growth growth;
  const auto view = base.view({50, 200}).narrow(0, 10, 10).t();
  const auto alias = base.detach();
  base.add_(1).mul_(2).transpose_(0, 1);
  EXPECT_EQ(growth.bytes(), 0);
  base.reset();
  EXPECT_EQ(growth.bytes(), 0);  // the views hold it
}

TEST_F(MemoryLedger, CountsTheNewBlockOfAResizedTensor) {
  const Growth growth;
  auto tensor = bytes_tensor(1000);
  tensor.resize_({100'000});
  EXPECT_EQ(growth.bytes(), 100'032);
  EXPECT_EQ(growth.peak(), 100'032 + 1024);  // both, while it copies
  tensor.resize_({10});
  EXPECT_EQ(growth.bytes(), 100'032);  // the storage stays as it is
  tensor.resize_({0});
  tensor.storage().unsafeGetStorageImpl()->reset();
  EXPECT_EQ(growth.bytes(), 0);
}

TEST_F(MemoryLedger, FollowsStoragesThatAreSwapped) {
  const Growth growth;
  auto a = bytes_tensor(1000);
  auto b = bytes_tensor(100'000);
  a.set_data(b);
  EXPECT_EQ(growth.bytes(), 100'032);
  a.set_(bytes_tensor(64));
  EXPECT_EQ(growth.bytes(), 100'032 + 64);
  std::swap(a, b);
  a.reset();
  EXPECT_EQ(growth.bytes(), 64);
}

TEST_F(MemoryLedger, LeavesOutMemoryOfOthers) {
  std::vector<float> memory(100'000, 1.0F);
  const Growth growth;
  auto blob = torch::from_blob(memory.data(), {100'000});
  label_memory(blob, MemoryCategory::kParameters);
  blob.add_(1);
  EXPECT_EQ(growth.bytes(), 0);
  EXPECT_EQ(growth.of(MemoryCategory::kParameters), 0);
}

TEST_F(MemoryLedger, HandsBackMemoryFromBeforeToTheAllocatorItCameFrom) {
  if (testing::kIsSanitized) GTEST_SKIP() << "asks glibc";
  constexpr std::int64_t kBytes = 64 << 20;  // glibc maps it for itself: mallinfo2 shows it
  const Growth growth;
  const auto mapped = ::mallinfo2().hblkhd;
  void* const memory = c10::GetDefaultCPUAllocator()->raw_allocate(kBytes);
  ASSERT_GE(::mallinfo2().hblkhd, mapped + kBytes);
  c10::GetCPUAllocator()->raw_deallocate(memory);  // as oneDNN does
  EXPECT_EQ(::mallinfo2().hblkhd, mapped);
  EXPECT_EQ(growth.bytes(), 0);
}

TEST_F(MemoryLedger, LeavesOutTensorsFromBeforeItCounted) {
  ASSERT_TRUE(early.defined());
  const Growth growth;
  label_memory(early, MemoryCategory::kParameters);
  EXPECT_EQ(early.sum().item<float>(), 1e6F);
  early.resize_({2000, 2000}).fill_(1);
  early = Tensor();
  EXPECT_EQ(growth.of(MemoryCategory::kParameters), 0);
  EXPECT_EQ(growth.bytes(), 0);
}

TEST_F(MemoryLedger, CountsTensorsFreedInAnotherThread) {
  for (const auto size : kSizes) {
    const Growth growth;
    auto tensor = bytes_tensor(size);
    std::thread([moved = std::move(tensor)]() mutable { moved.reset(); }).join();
    EXPECT_EQ(growth.bytes(), 0) << size;
  }
}

int random_category() {
  return *rc::gen::inRange(0, static_cast<int>(kMemoryCategories));
}

// Whatever the order in which the labels come, the first category of the list counts.
RC_GTEST_FIXTURE_PROP(MemoryLedger, CountsWhatIsSeveralThingsAsTheFirstOfThem, ()) {
  const Growth growth;
  const auto tensor = bytes_tensor(100);
  int first = static_cast<int>(MemoryCategory::kTemporaries);
  for (int labels = *rc::gen::inRange(0, 10); labels > 0; --labels) {
    const int label = random_category();
    label_memory(tensor.narrow(0, 50, 3), static_cast<MemoryCategory>(label));
    first = std::min(first, label);
    RC_ASSERT(growth.of(static_cast<MemoryCategory>(first)) == 128);
    RC_ASSERT(growth.bytes() == 128);
  }
}

TEST_F(MemoryLedger, CountsInACategoryWhatAThreadAllocatesInItsScope) {
  const Growth growth;
  const MemoryCategoryScope batch(MemoryCategory::kBatch);
  const auto a = bytes_tensor(64);
  Tensor b;
  {
    const MemoryCategoryScope state(MemoryCategory::kOptimizerState);
    b = bytes_tensor(100);
    std::thread([&] {
      const auto other = bytes_tensor(1000);
      EXPECT_EQ(growth.of(MemoryCategory::kTemporaries), 1024);
    }).join();
  }
  const auto c = bytes_tensor(200);
  EXPECT_EQ(growth.of(MemoryCategory::kBatch), 64 + 256);
  EXPECT_EQ(growth.of(MemoryCategory::kOptimizerState), 128);
  label_memory(a, MemoryCategory::kTemporaries);  // never takes a category away
  EXPECT_EQ(growth.of(MemoryCategory::kBatch), 64 + 256);
}

struct Labelled {
  Tensor tensor;
  int category = static_cast<int>(MemoryCategory::kTemporaries);
};

void run_random_step(std::vector<Labelled>& live) {
  const auto size = *rc::gen::inRange<std::int64_t>(0, 200'000);
  const int action = live.empty() ? 0 : *rc::gen::inRange(0, 4);
  if (action == 0) {
    live.push_back({bytes_tensor(size)});
    return;
  }
  const auto chosen = live.begin() + size % static_cast<std::int64_t>(live.size());
  if (action == 1) {
    live.erase(chosen);
  } else if (action == 2) {
    const int category = random_category();
    label_memory(chosen->tensor.view(-1), static_cast<MemoryCategory>(category));
    chosen->category = std::min(chosen->category, category);
  } else {
    *chosen = {chosen->tensor.clone()};
  }
}

// Allocations, copies, labels and releases, against a model of them.
RC_GTEST_FIXTURE_PROP(MemoryLedger, AgreesWithAModelOnRandomPrograms, ()) {
  const Growth growth;
  std::vector<Labelled> live;
  for (int steps = *rc::gen::inRange(0, 60); steps > 0; --steps) {
    run_random_step(live);
    std::map<int, std::int64_t> expected;
    for (const auto& [tensor, category] : live)
      expected[tensor.numel() == 0 ? -1 : category] += rounded(tensor.numel());
    for (int i = 0; i < static_cast<int>(kMemoryCategories); ++i)
      RC_ASSERT(growth.of(static_cast<MemoryCategory>(i)) == expected[i]);
  }
}

TEST_F(MemoryLedger, SeesTheBytesThatLibTorchReports) {
  const testing::AllocationRecorder recorder;
  std::int64_t requested = 0;
  std::vector<Tensor> tensors;
  for (const auto size : kSizes) {
    tensors.push_back(bytes_tensor(size));
    requested += size;
    EXPECT_EQ(recorder.live_bytes(), requested);
  }
  tensors.clear();
  EXPECT_EQ(recorder.live_bytes(), 0);
  EXPECT_EQ(recorder.peak_bytes(), requested);
}

TEST_F(MemoryLedger, CountsAHundredThousandSmallTensors) {
  const Growth growth;
  std::vector<Tensor> tensors;
  for (int i = 0; i < 100'000; ++i) tensors.push_back(torch::empty({1}));
  EXPECT_EQ(growth.bytes(), 6'400'000);
  for (std::size_t i = 0; i < tensors.size(); i += 2) tensors[i].reset();
  EXPECT_EQ(growth.bytes(), 3'200'000);
  tensors.clear();
  EXPECT_EQ(growth.bytes(), 0);
}

}  // namespace
}  // namespace reprise
