// SPDX-License-Identifier: Apache-2.0
/// Take LibTorch's place as the allocator of CPU tensors.
#pragma once

#include <cstddef>

namespace reprise::detail {

/// Where the memory of CPU tensors comes from.
class BlockSource {
 public:
  virtual ~BlockSource() = default;
  /// `bytes` (more than 0) of memory, aligned to 64. What it throws comes out of the operator that
  /// allocates.
  virtual void* allocate(std::size_t bytes) = 0;
  /// Takes back a block; false where the block is not this source's. Never throws.
  virtual bool free(void* block) = 0;
};

/// From now on LibTorch gets the memory of CPU tensors from `source`, which must live as long as
/// the process. Memory that it has already goes back where it came from. To be called once.
void install_cpu_allocator(BlockSource& source);

}  // namespace reprise::detail
