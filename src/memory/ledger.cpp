// SPDX-License-Identifier: Apache-2.0
#include "memory/ledger.h"

#include "autograd/saved_tensor_hooks.h"
#include "memory/byte_text.h"
#include "reprise/errors.h"

#include <c10/util/ScopeExit.h>

#include <pthread.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <limits>
#include <new>

namespace reprise::detail {
namespace {

constexpr std::int64_t kAlignment = kBlockAlignment;
/// glibc is good at smaller blocks, and whole pages would waste a larger share of them.
constexpr std::int64_t kSmallestPooledBytes = 64 << 10;
constexpr std::int64_t kMostBytes = std::numeric_limits<std::int64_t>::max() / 2;

#if defined(__SANITIZE_ADDRESS__)
// Pages that are used again at once would hide uses after free from the sanitizer.
constexpr bool kIsPooled = false;
#else
constexpr bool kIsPooled = true;
#endif

bool is_large(std::int64_t bytes) {
  return kIsPooled && bytes >= kSmallestPooledBytes;
}

std::uint8_t bit_of(MemoryCategory category) {
  return static_cast<std::uint8_t>(1U << static_cast<unsigned>(category));
}

thread_local bool is_relieving_pressure = false;
/// Bytes that this thread has freed, less those that it has allocated.
thread_local std::int64_t freed_by_thread = 0;

/// Whoever uses the ledger at all has it before the first tensor is made.
[[maybe_unused]] const Ledger& from_the_start = Ledger::instance();

}  // namespace

MemoryCategory Ledger::Block::category() const {
  const std::uint8_t saved = saves > 0 ? bit_of(MemoryCategory::kSavedActivations) : 0;
  return static_cast<MemoryCategory>(std::countr_zero(static_cast<std::uint8_t>(labels | saved)));
}

LiveBlock Ledger::live_block(const Block& block) {
  return {block.number, block.requested, block.bytes, block.category(), block.layer};
}

Ledger& Ledger::instance() {
  // Never destroyed: tensors of static storage duration are freed after everything else.
  static auto* const ledger = [] {
    auto* const made = new Ledger;
    install_cpu_allocator(*made);
    // A child process begins with the ledger in one piece, whatever other threads did to it.
    ::pthread_atfork(&lock_all, &unlock_all, &unlock_all);
    install_engine();  // what a refused backward pass held is free when the error arrives
    return made;
  }();
  return *ledger;
}

void Ledger::lock_all() {
  instance().mutex_.lock();
  layer_names_mutex().lock();
}

void Ledger::unlock_all() {
  layer_names_mutex().unlock();
  instance().mutex_.unlock();
}

void* Ledger::allocate(std::size_t bytes) {
  const auto requested =
      static_cast<std::int64_t>(std::min(bytes, static_cast<std::size_t>(kMostBytes)));
  const std::int64_t rounded = (requested + kAlignment - 1) / kAlignment * kAlignment;
  for (int rounds_in_vain = 0;;) {
    Shortage shortage;
    void* const memory = try_allocate(requested, rounded, shortage);
    if (memory != nullptr) return memory;
    if (!relieve_pressure(rounded, shortage, rounds_in_vain)) refuse(rounded, shortage);
  }
}

void* Ledger::try_allocate(std::int64_t requested, std::int64_t bytes, Shortage& shortage) {
  const std::lock_guard lock(mutex_);
  const std::int64_t needed = current_ + bytes;
  if (!fits(bytes)) {
    shortage = {needed - limit(), needed, limit(), !budgets_.empty()};
    return nullptr;
  }
  void* const memory = take_memory(bytes);
  if (memory == nullptr) {
    shortage = {bytes, needed, current_, false};
    return nullptr;
  }
  const auto& labels = thread_labels();
  const Block block{
      allocations_, requested, bytes,
      static_cast<std::uint8_t>(bit_of(labels.category) | bit_of(MemoryCategory::kTemporaries))};
  try {
    blocks_.emplace(memory, block);
  } catch (const std::bad_alloc&) {
    give_back(memory, bytes);
    shortage = {bytes, needed, current_, false};
    return nullptr;
  }
  ++allocations_;
  current_ += bytes;
  freed_by_thread -= bytes;
  count(block, std::nullopt, block.category());
  release_excess();
  return memory;
}

void* Ledger::take_memory(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  const auto take = [&] {
    return is_large(bytes) ? pages_.allocate(size) : std::aligned_alloc(kAlignment, size);
  };
  void* memory = take();
  if (memory == nullptr && pages_.kept_bytes() > 0) {
    pages_.release(pages_.kept_bytes());
    memory = take();
    if (memory != nullptr) keeps_pages_ = false;  // they are missed
  }
  return memory;
}

void Ledger::give_back(void* memory, std::int64_t bytes) {
  if (is_large(bytes)) {
    pages_.free(memory, static_cast<std::size_t>(bytes));
  } else {
    std::free(memory);
  }
}

bool Ledger::free(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(memory);
  if (found == blocks_.end()) return false;
  const Block block = found->second;
  blocks_.erase(found);
  current_ -= block.bytes;
  freed_by_thread += block.bytes;
  count(block, block.category(), std::nullopt);
  give_back(memory, block.bytes);
  release_excess();
  return true;
}

/// Runs the handlers until there is room; true where another try may succeed.
bool Ledger::relieve_pressure(std::int64_t bytes, const Shortage& shortage, int& rounds_in_vain) {
  constexpr int kMostRoundsInVain = 8;
  if (is_relieving_pressure || rounds_in_vain >= kMostRoundsInVain) return false;
  decltype(handlers_) handlers;  // goes after the lock: they may hold tensors
  std::unique_lock lock(mutex_);
  handlers = handlers_;
  lock.unlock();

  const std::int64_t freed_before = freed_by_thread;
  bool has_freed = false;
  is_relieving_pressure = true;
  const auto end = c10::make_scope_exit([] { is_relieving_pressure = false; });
  for (const auto& [id, handler] : handlers) {
    has_freed = (*handler)(shortage.missing_bytes) || has_freed;
    lock.lock();
    const bool has_room = shortage.is_budget && fits(bytes);
    lock.unlock();
    if (has_room) return true;
  }
  // Other threads may have taken at once what was freed.
  if (freed_by_thread > freed_before) return has_freed;
  // Of a budget's memory nothing was freed; of the system's perhaps what is no tensor's.
  ++rounds_in_vain;
  return has_freed && !shortage.is_budget;
}

void Ledger::refuse(std::int64_t bytes, const Shortage& shortage) {
  {
    const std::lock_guard lock(mutex_);
    ++refusals_;
    for (auto* listener : listeners_) listener->on_refusal();
  }
  const std::int64_t in_use = shortage.needed_bytes - bytes;
  throw BudgetError(
      shortage.needed_bytes, shortage.allowed_bytes,
      "memory: an operator asks for " + byte_text(bytes) + " with " + byte_text(in_use) +
          " in use, " +
          (shortage.is_budget ? "and the budget is " + byte_text(shortage.allowed_bytes)
                              : std::string("and the system has no more")) +
          "; use a smaller batch or model, recompute more activations, or allow more memory");
}

std::int64_t Ledger::limit() const {
  return budgets_.empty() ? kMostBytes : *budgets_.begin();
}

/// Memory in use and free pages together stay below a budget.
void Ledger::release_excess() {
  const auto kept = static_cast<std::int64_t>(pages_.kept_bytes());
  const std::int64_t excess = keeps_pages_ ? current_ + kept - limit() : kept;
  if (excess > 0) pages_.release(static_cast<std::size_t>(excess));
}

/// Books a block from one category to another, and tells the listeners.
void Ledger::count(const Block& block, std::optional<MemoryCategory> from,
                   std::optional<MemoryCategory> to) {
  constexpr auto kSaved = MemoryCategory::kSavedActivations;
  if (from) bytes_[static_cast<std::size_t>(*from)] -= block.bytes;
  if (to) bytes_[static_cast<std::size_t>(*to)] += block.bytes;
  if (from == kSaved) saved_by_layer_[block.layer] -= block.bytes;
  if (to == kSaved) saved_by_layer_[block.layer] += block.bytes;
  if (current_ > peak_) {
    peak_ = current_;
    bytes_at_peak_ = bytes_;
  }
  if (listeners_.empty()) return;
  const auto layer = [&](std::optional<MemoryCategory> category) {
    return category == kSaved ? block.layer : kNoLayer;
  };
  MemoryEvent event;
  event.block = block.number;
  event.requested_bytes = block.requested;
  event.bytes = block.bytes;
  event.from = from;
  event.to = to;
  event.from_layer = layer(from);
  event.to_layer = layer(to);
  event.total_bytes = current_;
  for (auto* listener : listeners_) listener->on_event(event);
}

template <typename Change>
void Ledger::change(Block& block, Change change) {
  const MemoryCategory from = block.category();
  change(block);
  if (block.category() != from) count(block, from, block.category());
}

void Ledger::label(const void* memory, MemoryCategory category) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(memory);
  if (found == blocks_.end()) return;
  change(found->second, [&](Block& block) { block.labels |= bit_of(category); });
}

std::optional<LiveBlock> Ledger::find(const void* memory) const {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(memory);
  if (found == blocks_.end()) return std::nullopt;
  return live_block(found->second);
}

std::int64_t Ledger::label_saved(const void* memory, std::int32_t layer) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(memory);
  if (found == blocks_.end()) return -1;
  change(found->second, [&](Block& block) {
    if (block.category() != MemoryCategory::kSavedActivations) block.layer = layer;
    ++block.saves;
  });
  return found->second.number;
}

void Ledger::unlabel_saved(const void* memory, std::int64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(memory);
  if (found == blocks_.end() || found->second.number != number) return;
  change(found->second, [](Block& block) { --block.saves; });
}

MemoryStats Ledger::stats() const {
  const std::lock_guard lock(mutex_);
  MemoryStats stats;
  stats.current_bytes = current_;
  stats.peak_bytes = peak_;
  stats.cached_bytes = static_cast<std::int64_t>(pages_.kept_bytes());
  stats.budget_bytes = budgets_.empty() ? 0 : limit();
  stats.allocations = allocations_;
  stats.out_of_memory_events = refusals_;
  stats.current.bytes = bytes_;
  for (const auto& [layer, bytes] : saved_by_layer_) {
    if (bytes > 0) stats.current.saved_by_layer[layer == kNoLayer ? "" : layer_name(layer)] = bytes;
  }
  stats.at_peak.bytes = bytes_at_peak_;
  return stats;
}

void Ledger::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_ = current_;
  bytes_at_peak_ = bytes_;
}

void Ledger::release_cached() {
  const std::lock_guard lock(mutex_);
  pages_.release(pages_.kept_bytes());
}

void Ledger::stop_keeping_pages() {
  const std::lock_guard lock(mutex_);
  keeps_pages_ = false;
  release_excess();
}

Ledger::Budget Ledger::add_budget(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (current_ > bytes) {
    throw BudgetError(current_, bytes,
                      "memory: the budget is " + byte_text(bytes) + ", and " + byte_text(current_) +
                          " are in use already; allow more memory, or free some before");
  }
  const auto budget = budgets_.insert(bytes);
  release_excess();
  return budget;
}

void Ledger::remove_budget(Budget budget) {
  const std::lock_guard lock(mutex_);
  budgets_.erase(budget);
}

std::int64_t Ledger::add_handler(Handler handler) {
  auto shared = std::make_shared<const Handler>(std::move(handler));
  const std::lock_guard lock(mutex_);
  handlers_.emplace_back(next_handler_, std::move(shared));
  return next_handler_++;
}

void Ledger::remove_handler(std::int64_t id) {
  std::shared_ptr<const Handler> removed;  // goes after the lock: it may hold tensors
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(handlers_.begin(), handlers_.end(),
                                  [&](const auto& entry) { return entry.first == id; });
  removed = std::move(found->second);
  handlers_.erase(found);
}

std::vector<LiveBlock> Ledger::add_listener(LedgerListener& listener) {
  const std::lock_guard lock(mutex_);
  std::vector<LiveBlock> live;
  live.reserve(blocks_.size());
  for (const auto& [memory, block] : blocks_) live.push_back(live_block(block));
  std::sort(live.begin(), live.end(),
            [](const LiveBlock& a, const LiveBlock& b) { return a.number < b.number; });
  listeners_.push_back(&listener);
  return live;
}

void Ledger::remove_listener(LedgerListener& listener) {
  const std::lock_guard lock(mutex_);
  std::erase(listeners_, &listener);
}

void Ledger::end_layer(std::int32_t layer, bool is_recomputed,
                       std::chrono::steady_clock::time_point begin) {
  const std::lock_guard lock(mutex_);
  for (auto* listener : listeners_) listener->on_layer(layer, is_recomputed, begin);
}

}  // namespace reprise::detail
