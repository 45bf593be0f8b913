// SPDX-License-Identifier: Apache-2.0
/// Pages of large blocks, kept when a block is freed and cut to size for the next ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace reprise::detail {

/// glibc gives large blocks back to the kernel at every free; the page faults of getting them again
/// cost as much as a recomputation. The pool keeps free pages, joins neighbours, and cuts blocks
/// from the smallest stretch that is large enough. Its pages in use and kept together never exceed
/// the most that were ever in use at once: keeping pages never raises a process's peak.
///
/// Not thread-safe: its owner locks.
class PagePool {
 public:
  static constexpr std::size_t kPageBytes = 4096;

  /// A block of `bytes`, rounded up to whole pages; nullptr where the system has none left.
  void* allocate(std::size_t bytes);
  /// `bytes` as they were asked for.
  void free(void* block, std::size_t bytes);
  /// Gives free pages back to the system until at least `bytes` of them went, or none are left.
  void release(std::size_t bytes);

  /// Free pages kept.
  std::size_t kept_bytes() const { return kept_; }

 private:
  using Address = std::uintptr_t;
  using Stretches = std::map<Address, std::size_t>;  ///< bytes by where they begin

  void* take_kept(std::size_t bytes);
  void keep(Address begin, std::size_t bytes);
  void* cut_end(Stretches::iterator stretch, std::size_t bytes);
  void join(Stretches::iterator left, Stretches::iterator right);
  void resize(Stretches::iterator stretch, std::size_t bytes);

  Stretches by_address_;
  std::set<std::pair<std::size_t, Address>> by_size_;  // the same stretches
  std::size_t kept_ = 0;
  std::size_t used_ = 0;  // bytes in blocks
  std::size_t most_used_ = 0;
};

}  // namespace reprise::detail
