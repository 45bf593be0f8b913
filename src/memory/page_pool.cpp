// SPDX-License-Identifier: Apache-2.0
#include "memory/page_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <new>

namespace reprise::detail {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + PagePool::kPageBytes - 1) / PagePool::kPageBytes * PagePool::kPageBytes;
}

void* map_pages(std::size_t bytes) {
  void* const pages =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  // One page fault for each 2 MiB instead of 512, where the system allows it.
  if (bytes >= kHugePageBytes) ::madvise(pages, bytes, MADV_HUGEPAGE);
  return pages;
}

void unmap_pages(void* pages, std::size_t bytes) {
  // Cutting a mapping in two can fail where there are too many; its memory can go all the same.
  if (::munmap(pages, bytes) != 0) ::madvise(pages, bytes, MADV_DONTNEED);
}

}  // namespace

void* PagePool::allocate(std::size_t bytes) {
  bytes = whole_pages(bytes);
  void* block = take_kept(bytes);
  if (block == nullptr) {
    const std::size_t held = used_ + kept_ + bytes;
    const std::size_t most = std::max(most_used_, used_ + bytes);
    if (held > most) release(held - most);
    block = map_pages(bytes);
    if (block == nullptr) return nullptr;
  }
  used_ += bytes;
  most_used_ = std::max(most_used_, used_);
  return block;
}

void PagePool::free(void* block, std::size_t bytes) {
  bytes = whole_pages(bytes);
  used_ -= bytes;
  try {
    keep(reinterpret_cast<Address>(block), bytes);
  } catch (const std::bad_alloc&) {  // no memory to note it in
    unmap_pages(block, bytes);
  }
}

void PagePool::release(std::size_t bytes) {
  for (std::size_t released = 0; released < bytes && !by_size_.empty();) {
    const auto [size, begin] = *by_size_.rbegin();
    const std::size_t part = std::min(size, whole_pages(bytes - released));
    unmap_pages(cut_end(by_address_.find(begin), part), part);
    released += part;
  }
}

void* PagePool::take_kept(std::size_t bytes) {
  const auto fit = by_size_.lower_bound({bytes, 0});
  return fit == by_size_.end() ? nullptr : cut_end(by_address_.find(fit->second), bytes);
}

void* PagePool::cut_end(Stretches::iterator stretch, std::size_t bytes) {
  const std::size_t rest = stretch->second - bytes;
  void* const end = reinterpret_cast<void*>(stretch->first + rest);
  resize(stretch, rest);
  return end;
}

void PagePool::keep(Address begin, std::size_t bytes) {
  const auto stretch = by_address_.emplace(begin, 0).first;
  try {
    by_size_.emplace(0, begin);
  } catch (...) {
    by_address_.erase(stretch);
    throw;
  }
  resize(stretch, bytes);
  if (const auto next = std::next(stretch); next != by_address_.end()) join(stretch, next);
  if (stretch != by_address_.begin()) join(std::prev(stretch), stretch);
}

void PagePool::join(Stretches::iterator left, Stretches::iterator right) {
  if (left->first + left->second != right->first) return;
  const std::size_t bytes = left->second + right->second;
  resize(right, 0);
  resize(left, bytes);
}

// Without allocating: this must work where memory has run out.
void PagePool::resize(Stretches::iterator stretch, std::size_t bytes) {
  kept_ = kept_ - stretch->second + bytes;
  auto node = by_size_.extract({stretch->second, stretch->first});
  if (bytes == 0) {
    by_address_.erase(stretch);
    return;
  }
  stretch->second = bytes;
  node.value().first = bytes;
  by_size_.insert(std::move(node));
}

}  // namespace reprise::detail
