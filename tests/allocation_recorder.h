// SPDX-License-Identifier: Apache-2.0
/// Counts the bytes that LibTorch allocates on the CPU, through its own profiling interface.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>

namespace reprise::testing {

/// While it lives, counts what this thread allocates and frees. Blocks allocated before do not
/// count when freed.
class AllocationRecorder {
 public:
  AllocationRecorder()
      : counter_(std::make_shared<Counter>()),
        guard_(c10::DebugInfoKind::PROFILER_STATE, counter_) {}

  /// Bytes allocated since construction and not freed yet.
  std::int64_t live_bytes() const { return counter_->live_bytes; }
  /// The highest that `live_bytes` has been.
  std::int64_t peak_bytes() const { return counter_->peak_bytes; }

 private:
  struct Counter : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void* /*ptr*/, std::int64_t alloc_size, std::size_t /*total_allocated*/,
                           std::size_t /*total_reserved*/, c10::Device /*device*/) override {
      live_bytes += alloc_size;
      peak_bytes = std::max(peak_bytes, live_bytes);
    }
    bool memoryProfilingEnabled() const override { return true; }

    std::int64_t live_bytes = 0;
    std::int64_t peak_bytes = 0;
  };

  std::shared_ptr<Counter> counter_;
  c10::DebugInfoGuard guard_;
};

}  // namespace reprise::testing
