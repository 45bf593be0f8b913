// SPDX-License-Identifier: Apache-2.0
/// What tests of memory share: tensors of so many bytes, what is in use, and the system's limits.
#pragma once

#include "reprise/memory.h"

#include <sys/resource.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace reprise::testing {

constexpr std::int64_t kMega = 1'000'000;

inline std::int64_t in_use() {
  return memory_stats().current_bytes;
}

inline torch::Tensor bytes_tensor(std::int64_t bytes) {
  return torch::empty({bytes}, torch::kUInt8);
}

/// Of /proc/self/statm, in bytes: 0 address space, 1 resident.
inline std::int64_t statm(int field) {
  std::ifstream in("/proc/self/statm");
  std::int64_t pages = 0;
  for (int i = 0; i <= field; ++i) in >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}

/// Leaves the process `bytes` of address space more than it has; whether that was possible.
inline bool limit_address_space(std::int64_t bytes) {
  rlimit limit{};
  ::getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = static_cast<rlim_t>(statm(0) + bytes);
  return ::setrlimit(RLIMIT_AS, &limit) == 0;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
/// Sanitizers need all of the address space, and have an allocator of their own.
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

/// Limits the address space as long as it lives.
class AddressSpaceLimit {
 public:
  explicit AddressSpaceLimit(std::int64_t bytes) {
    ::getrlimit(RLIMIT_AS, &before_);
    limit_address_space(bytes);
  }
  ~AddressSpaceLimit() { ::setrlimit(RLIMIT_AS, &before_); }
  AddressSpaceLimit(const AddressSpaceLimit&) = delete;
  AddressSpaceLimit& operator=(const AddressSpaceLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace reprise::testing
