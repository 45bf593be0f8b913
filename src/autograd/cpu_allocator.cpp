// SPDX-License-Identifier: Apache-2.0
#include "autograd/cpu_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceType.h>

#include <limits>

namespace reprise::detail {
namespace {

class SourceAllocator final : public c10::Allocator {
 public:
  SourceAllocator(BlockSource& source, c10::Allocator& previous) {
    source_ = &source;
    previous_deleter_ = previous.raw_deleter();
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    void* block = nullptr;
    try {
      if (bytes > 0) block = source_->allocate(bytes);
    } catch (...) {
      c10::profiledCPUMemoryReporter().OutOfMemory(bytes);
      throw;
    }
    c10::profiledCPUMemoryReporter().New(block, bytes);
    return {block, block, &free_block, c10::Device(c10::kCPU)};
  }

  // oneDNN frees through the deleter of the allocator that is current then: also what another
  // allocator has handed out before.
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static void free_block(void* block) {
    if (block == nullptr) return;
    c10::profiledCPUMemoryReporter().Delete(block);
    if (!source_->free(block)) previous_deleter_(block);
  }

  static inline BlockSource* source_ = nullptr;
  static inline c10::DeleterFnPtr previous_deleter_ = nullptr;
};

}  // namespace

void install_cpu_allocator(BlockSource& source) {
  auto& previous = *c10::GetAllocator(c10::kCPU);
  // Never destroyed: tensors of static storage duration are freed after everything else.
  auto* const allocator = new SourceAllocator(source, previous);
  c10::SetAllocator(c10::kCPU, allocator, std::numeric_limits<std::uint8_t>::max());
}

}  // namespace reprise::detail
