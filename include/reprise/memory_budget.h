// SPDX-License-Identifier: Apache-2.0
/// Limit the memory of tensors.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace reprise {

/// While it lives, the tensors of the process take at most `bytes` in all: those that were there
/// before count. Of several budgets the smallest holds.
///
/// On the CPU the limit is hard: an allocation that would pass it runs the pressure handlers, and
/// then throws `BudgetError` from the operator that asked for it. The free pages that the ledger
/// keeps do not count; together with the memory in use they stay below the budget too.
///
/// LibTorch's allocators of accelerators know no limit: there the budget is checked before each
/// operator of the thread that made it, and one operator may pass it.
class MemoryBudget {
 public:
  /// Throws `OptionError` when `bytes` is not positive, `BudgetError` when there is more already.
  explicit MemoryBudget(std::int64_t bytes, const c10::Device& device = c10::Device(c10::kCPU));
  ~MemoryBudget();
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// While it lives, `handler` is asked to free memory before an allocation is refused: by the budget
/// or by the system.
class MemoryPressureHandler {
 public:
  /// `handler` gets the bytes that are missing, in the thread that allocates, and returns whether
  /// it has freed anything. Handlers are called in the order in which they were made, until there
  /// is room; one may be called several times for one allocation, from several threads at once, and
  /// within any operator: it cannot record a graph. What it allocates itself calls no handler.
  explicit MemoryPressureHandler(std::function<bool(std::int64_t missing_bytes)> handler);
  ~MemoryPressureHandler();
  MemoryPressureHandler(const MemoryPressureHandler&) = delete;
  MemoryPressureHandler& operator=(const MemoryPressureHandler&) = delete;

 private:
  std::int64_t id_;
};

}  // namespace reprise
