// SPDX-License-Identifier: Apache-2.0
/// The ledger: every block of tensor memory, what it is for, and how much there may be.
#pragma once

#include "autograd/cpu_allocator.h"
#include "memory/page_pool.h"
#include "memory/thread_labels.h"
#include "reprise/memory_timeline.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

namespace reprise::detail {

/// Where the memory of a tensor begins; null where it has none.
inline const void* memory_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl()->data() : nullptr;
}

/// What a recording hears, under the ledger's lock. It may not allocate tensors, nor throw.
class LedgerListener {
 public:
  virtual ~LedgerListener() = default;
  /// `event` as it happened, but for its time.
  virtual void on_event(const MemoryEvent& event) = 0;
  virtual void on_refusal() = 0;
  virtual void on_layer(std::int32_t layer, bool is_recomputed,
                        std::chrono::steady_clock::time_point begin) = 0;
};

/// A block as a listener finds it when it begins to listen.
struct LiveBlock {
  std::int64_t number = 0;
  std::int64_t requested_bytes = 0;
  std::int64_t bytes = 0;  ///< rounded up
  MemoryCategory category = MemoryCategory::kTemporaries;
  std::int32_t layer = kNoLayer;
};

/// One for the process. One lock guards all of it, so that sums, limit and events agree at every
/// moment.
class Ledger final : public BlockSource {
 public:
  /// The ledger, from its first use on the allocator of all CPU tensors.
  static Ledger& instance();

  /// Throws `BudgetError` where the budget or the system has no more, after pressure handlers ran.
  void* allocate(std::size_t bytes) override;
  bool free(void* block) override;

  MemoryStats stats() const;
  void reset_peak();
  void release_cached();
  /// Gives free pages back from now on: the system has run short of memory for others.
  void stop_keeping_pages();

  /// The block gets a category besides those that it has. Unknown blocks are left alone.
  void label(const void* block, MemoryCategory category);
  std::optional<LiveBlock> find(const void* block) const;
  /// Counts one more (one less) saved tensor of a block. `label_saved` returns the block's number,
  /// -1 of an unknown one, for `unlabel_saved` to tell it from another block at the same place.
  std::int64_t label_saved(const void* block, std::int32_t layer);
  void unlabel_saved(const void* block, std::int64_t number);

  /// Throws `BudgetError` when there is more than `bytes` already. Returns the budget's identity.
  using Budget = std::multiset<std::int64_t>::iterator;
  Budget add_budget(std::int64_t bytes);
  void remove_budget(Budget budget);

  using Handler = std::function<bool(std::int64_t missing_bytes)>;
  std::int64_t add_handler(Handler handler);
  void remove_handler(std::int64_t id);

  /// Returns the blocks that there are, in the order of allocation.
  std::vector<LiveBlock> add_listener(LedgerListener& listener);
  void remove_listener(LedgerListener& listener);
  /// Tells the listeners that a layer has ended.
  void end_layer(std::int32_t layer, bool is_recomputed,
                 std::chrono::steady_clock::time_point begin);

 private:
  struct Block {
    std::int64_t number;
    std::int64_t requested;
    std::int64_t bytes;             ///< rounded up
    std::uint8_t labels;            ///< one bit per category
    std::int32_t saves = 0;         ///< by autograd, at the moment
    std::int32_t layer = kNoLayer;  ///< that saved it first

    MemoryCategory category() const;
  };

  /// Why there is no memory.
  struct Shortage {
    std::int64_t missing_bytes = 0;
    std::int64_t needed_bytes = 0;  ///< in all
    std::int64_t allowed_bytes = 0;
    bool is_budget = false;
  };

  Ledger() = default;

  static LiveBlock live_block(const Block& block);
  static void lock_all();
  static void unlock_all();

  void* try_allocate(std::int64_t requested, std::int64_t bytes, Shortage& shortage);
  void* take_memory(std::int64_t bytes);
  void give_back(void* memory, std::int64_t bytes);
  bool relieve_pressure(std::int64_t bytes, const Shortage& shortage, int& rounds_in_vain);
  bool fits(std::int64_t bytes) const { return current_ + bytes <= limit(); }
  [[noreturn]] void refuse(std::int64_t bytes, const Shortage& shortage);
  std::int64_t limit() const;
  void release_excess();
  template <typename Change>
  void change(Block& block, Change change);
  void count(const Block& block, std::optional<MemoryCategory> from,
             std::optional<MemoryCategory> to);

  mutable std::mutex mutex_;
  std::pmr::unsynchronized_pool_resource nodes_;
  std::pmr::unordered_map<const void*, Block> blocks_{&nodes_};
  PagePool pages_;
  bool keeps_pages_ = true;
  std::array<std::int64_t, kMemoryCategories> bytes_ = {};
  std::array<std::int64_t, kMemoryCategories> bytes_at_peak_ = {};
  std::map<std::int32_t, std::int64_t> saved_by_layer_;
  std::int64_t current_ = 0;
  std::int64_t peak_ = 0;
  std::int64_t allocations_ = 0;
  std::int64_t refusals_ = 0;
  std::multiset<std::int64_t> budgets_;
  std::vector<std::pair<std::int64_t, std::shared_ptr<const Handler>>> handlers_;
  std::int64_t next_handler_ = 0;
  std::vector<LedgerListener*> listeners_;
};

}  // namespace reprise::detail
