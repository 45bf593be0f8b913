// SPDX-License-Identifier: Apache-2.0
/// The pool of pages: blocks never overlap, keep their content, and go back where they should.
#include "memory/page_pool.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace reprise {
namespace {

using detail::PagePool;

constexpr std::size_t kPage = PagePool::kPageBytes;

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

bool is_mapped(const void* page) {
  unsigned char state = 0;
  return ::mincore(const_cast<void*>(page), kPage, &state) == 0 || errno != ENOMEM;
}

std::byte* first_of(void* block) {
  return static_cast<std::byte*>(block);
}

/// A pool, and all that may be said of it from outside.
class Model {
 public:
  ~Model() {
    while (!blocks_.empty()) free(blocks_.begin());
    pool_.release(pool_.kept_bytes());
  }

  void allocate(std::size_t bytes) {
    const auto kept = pool_.kept_bytes();
    auto* const block = first_of(pool_.allocate(bytes));
    RC_ASSERT(block != nullptr);
    RC_ASSERT(reinterpret_cast<std::uintptr_t>(block) % kPage == 0U);
    const auto next = blocks_.lower_bound(block);
    if (next != blocks_.end()) RC_ASSERT(block + whole_pages(bytes) <= next->first);
    if (next != blocks_.begin()) {
      const auto& before = *std::prev(next);
      RC_ASSERT(before.first + whole_pages(before.second.bytes) <= block);
    }
    used_ += whole_pages(bytes);
    most_used_ = std::max(most_used_, used_);
    blocks_[block] = {bytes, ++stamp_};
    write(block, bytes, stamp_);
    RC_ASSERT(pool_.kept_bytes() <= kept);
  }

  void free_one(std::size_t index) {
    const auto kept = pool_.kept_bytes();
    const auto block =
        std::next(blocks_.begin(), static_cast<std::ptrdiff_t>(index % blocks_.size()));
    const auto bytes = whole_pages(block->second.bytes);
    free(block);
    RC_ASSERT(pool_.kept_bytes() == kept + bytes);
  }

  void release(std::size_t bytes) {
    const auto kept = pool_.kept_bytes();
    pool_.release(bytes);
    RC_ASSERT(pool_.kept_bytes() == kept - std::min(kept, whole_pages(bytes)));
  }

  std::size_t blocks() const { return blocks_.size(); }

  /// No more is held than was ever needed at once, and every block holds what was written to it.
  bool is_right() const {
    return used_ + pool_.kept_bytes() <= most_used_ &&
           std::all_of(blocks_.begin(), blocks_.end(), [](const auto& entry) {
             return has_stamp(entry.first, entry.second.bytes, entry.second.stamp);
           });
  }

 private:
  struct Block {
    std::size_t bytes = 0;
    std::uint32_t stamp = 0;
  };
  using Blocks = std::map<std::byte*, Block>;

  /// The stamp into the beginning and the end of each page.
  static void write(std::byte* block, std::size_t bytes, std::uint32_t stamp) {
    for (std::size_t at = 0; at < whole_pages(bytes); at += kPage) {
      std::memcpy(block + at, &stamp, sizeof stamp);
      std::memcpy(block + at + kPage - sizeof stamp, &stamp, sizeof stamp);
    }
  }

  static bool has_stamp(const std::byte* block, std::size_t bytes, std::uint32_t stamp) {
    for (std::size_t at = 0; at < whole_pages(bytes); at += kPage) {
      if (std::memcmp(block + at, &stamp, sizeof stamp) != 0) return false;
      if (std::memcmp(block + at + kPage - sizeof stamp, &stamp, sizeof stamp) != 0) return false;
    }
    return true;
  }

  void free(Blocks::iterator block) {
    pool_.free(block->first, block->second.bytes);
    used_ -= whole_pages(block->second.bytes);
    blocks_.erase(block);
  }

  PagePool pool_;
  Blocks blocks_;
  std::uint32_t stamp_ = 0;
  std::size_t used_ = 0;
  std::size_t most_used_ = 0;
};

RC_GTEST_PROP(PagePool, KeepsBlocksApartAndTheirContent, ()) {
  Model model;
  for (int steps = *rc::gen::inRange(0, 120); steps > 0; --steps) {
    const int action = *rc::gen::inRange(0, 9);
    const auto bytes = *rc::gen::inRange<std::size_t>(1, 40 * kPage);
    if (action < 5 || model.blocks() == 0) {
      model.allocate(bytes);
    } else if (action < 8) {
      model.free_one(bytes);
    } else {
      model.release(bytes);
    }
    RC_ASSERT(model.is_right());
  }
}

TEST(PagePool, RoundsUpToWholePages) {
  PagePool pool;
  for (const std::size_t bytes : {std::size_t{1}, kPage - 1, kPage, kPage + 1, 3 * kPage + 5}) {
    pool.free(pool.allocate(bytes), bytes);
    EXPECT_EQ(pool.kept_bytes(), whole_pages(bytes)) << bytes;
    pool.release(1);  // one page at least
    EXPECT_EQ(pool.kept_bytes(), whole_pages(bytes) - kPage);
    pool.release(pool.kept_bytes());
    EXPECT_EQ(pool.kept_bytes(), 0U);
  }
}

TEST(PagePool, GivesFreedPagesToTheNextBlock) {
  PagePool pool;
  void* const first = pool.allocate(100 * kPage);
  pool.free(first, 100 * kPage);
  EXPECT_EQ(pool.allocate(100 * kPage), first);
  EXPECT_EQ(pool.kept_bytes(), 0U);
}

TEST(PagePool, CutsFromTheSmallestStretchThatIsLargeEnough) {
  PagePool pool;
  auto* const all = first_of(pool.allocate(100 * kPage));
  pool.free(all, 100 * kPage);
  std::vector<std::byte*> pages;
  for (int i = 0; i < 100; ++i) pages.push_back(first_of(pool.allocate(kPage)));
  std::sort(pages.begin(), pages.end());
  ASSERT_EQ(pages.front(), all);
  const auto free_pages = [&](std::size_t begin, std::size_t count) {
    for (std::size_t i = begin; i < begin + count; ++i) pool.free(pages[i], kPage);
  };
  free_pages(10, 20);
  free_pages(40, 5);
  free_pages(60, 8);
  auto* const block = first_of(pool.allocate(6 * kPage));
  EXPECT_GE(block, pages[60]);
  EXPECT_LE(block, pages[62]);
  EXPECT_EQ(pool.kept_bytes(), (20 + 5 + 2) * kPage);
}

// In whatever order: what was one mapping is one stretch again.
RC_GTEST_PROP(PagePool, JoinsNeighbours, ()) {
  constexpr std::size_t kPages = 64;
  PagePool pool;
  auto* const all = first_of(pool.allocate(kPages * kPage));
  pool.free(all, kPages * kPage);
  std::vector<std::pair<void*, std::size_t>> pieces;
  for (std::size_t left = kPages; left > 0;) {
    const auto pages = *rc::gen::inRange<std::size_t>(1, left + 1);
    pieces.emplace_back(pool.allocate(pages * kPage), pages * kPage);
    left -= pages;
  }
  RC_ASSERT(pool.kept_bytes() == 0U);
  std::mt19937 generator(*rc::gen::arbitrary<std::uint32_t>());
  std::shuffle(pieces.begin(), pieces.end(), generator);
  for (const auto& [block, bytes] : pieces) pool.free(block, bytes);
  RC_ASSERT(pool.kept_bytes() == kPages * kPage);
  RC_ASSERT(first_of(pool.allocate(kPages * kPage)) == all);
  RC_ASSERT(pool.kept_bytes() == 0U);
  pool.free(all, kPages * kPage);
  pool.release(kPages * kPage);
}

TEST(PagePool, GivesPagesBackToTheSystem) {
  PagePool pool;
  auto* const block = first_of(pool.allocate(10 * kPage));
  std::memset(block, 1, 10 * kPage);
  pool.free(block, 10 * kPage);
  EXPECT_TRUE(is_mapped(block));
  pool.release(3 * kPage);
  EXPECT_EQ(pool.kept_bytes(), 7 * kPage);
  int mapped = 0;
  for (std::size_t i = 0; i < 10; ++i) mapped += is_mapped(block + i * kPage) ? 1 : 0;
  EXPECT_EQ(mapped, 7);
  pool.release(std::size_t{1} << 60);
  EXPECT_EQ(pool.kept_bytes(), 0U);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_FALSE(is_mapped(block + i * kPage)) << i;
  pool.release(kPage);  // nothing is left
  EXPECT_EQ(pool.kept_bytes(), 0U);
}

TEST(PagePool, KeepsNoMoreThanWasEverUsed) {
  PagePool pool;
  // 10 + 10 used at once; then 15 fit into neither of the two stretches.
  void* const a = pool.allocate(10 * kPage);
  void* const gap = ::mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void* const b = pool.allocate(10 * kPage);
  pool.free(a, 10 * kPage);
  pool.free(b, 10 * kPage);
  EXPECT_EQ(pool.kept_bytes(), 20 * kPage);
  ASSERT_NE(pool.allocate(25 * kPage), nullptr);
  EXPECT_EQ(pool.kept_bytes(), 0U);
  ::munmap(gap, kPage);
}

TEST(PagePool, SaysWhenTheSystemHasNoMore) {
  PagePool pool;
  void* const block = pool.allocate(10 * kPage);
  EXPECT_EQ(pool.allocate(std::size_t{1} << 60), nullptr);
  EXPECT_EQ(pool.allocate(std::size_t{1} << 62), nullptr);
  pool.free(block, 10 * kPage);
  EXPECT_LE(pool.kept_bytes(), 10 * kPage);
  EXPECT_NE(pool.allocate(10 * kPage), nullptr);
}

TEST(PagePool, StandsAHundredThousandBlocks) {
  PagePool pool;
  std::vector<void*> blocks;
  for (int i = 0; i < 100'000; ++i) {
    blocks.push_back(pool.allocate(kPage));
    ASSERT_NE(blocks.back(), nullptr);
  }
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(1));
  // Every second one: more stretches than the kernel allows mappings.
  for (std::size_t i = 0; i < blocks.size(); i += 2) pool.free(blocks[i], kPage);
  EXPECT_EQ(pool.kept_bytes(), 50'000 * kPage);
  pool.release(pool.kept_bytes());
  EXPECT_EQ(pool.kept_bytes(), 0U);
  for (std::size_t i = 1; i < blocks.size(); i += 2) pool.free(blocks[i], kPage);
  pool.release(pool.kept_bytes());
  EXPECT_EQ(pool.kept_bytes(), 0U);
}

}  // namespace
}  // namespace reprise
