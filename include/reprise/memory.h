// SPDX-License-Identifier: Apache-2.0
/// The memory of CPU tensors, counted to the byte: how much there is, and what it is for.
///
/// A program that uses anything of this header, memory_budget.h or memory_timeline.h has the ledger
/// from its start: an allocator that counts every tensor's memory and keeps free pages for the
/// next. All functions here may be called from any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace reprise {

/// What memory is for. Memory that is several things counts as the first of them.
enum class MemoryCategory : std::uint8_t {
  kParameters,
  kGradients,
  kOptimizerState,
  kBatch,
  kSavedActivations,  ///< kept by autograd for backward
  kRecomputed,        ///< made while a checkpointed region is recomputed
  kTemporaries,       ///< everything else
};
constexpr std::size_t kMemoryCategories = 7;

/// "saved activations".
std::string to_string(MemoryCategory category);

/// Bytes by category; each block of memory counts once, rounded up to 64 bytes.
struct MemoryBreakdown {
  std::array<std::int64_t, kMemoryCategories> bytes = {};
  /// The saved activations by the layer that saved them first ("" outside every layer).
  std::map<std::string, std::int64_t> saved_by_layer = {};

  std::int64_t operator[](MemoryCategory category) const {
    return bytes[static_cast<std::size_t>(category)];
  }
  std::int64_t total() const;
};

struct MemoryStats {
  std::int64_t current_bytes = 0;
  std::int64_t peak_bytes = 0;    ///< highest `current_bytes` since the start or the last reset
  std::int64_t cached_bytes = 0;  ///< free, kept for the next blocks; not in `current_bytes`
  std::int64_t budget_bytes = 0;  ///< the smallest budget in force; 0: none
  std::int64_t allocations = 0;   ///< since the start
  std::int64_t out_of_memory_events = 0;  ///< allocations refused since the start
  MemoryBreakdown current;
  MemoryBreakdown at_peak;  ///< without `saved_by_layer`; that takes a `MemoryTimeline`
};

/// The ledger as it is now. Saved activations count as such where they were saved in the scope of a
/// `MemoryTimeline`, else as temporaries.
MemoryStats memory_stats();

/// Figures of LibTorch's own allocator for an accelerator (no categories), or the ledger's for the
/// CPU. Throws c10::Error where the device is not there.
MemoryStats memory_stats(const c10::Device& device);

/// Lets `peak_bytes` and `at_peak` start anew from what is there now.
void reset_peak_memory();
void reset_peak_memory(const c10::Device& device);

/// Gives the free pages that the ledger keeps back to the system.
void release_cached_memory();

/// Counts the memory of `tensor` as `category` from now on, and until it is freed. Memory that the
/// ledger did not allocate (a file's, another library's) is in no category.
void label_memory(const at::Tensor& tensor, MemoryCategory category);

/// Labels parameters, and their gradients from the moment that backward has added to them.
void label_parameters(std::span<const at::Tensor> parameters);

/// What this thread allocates in its lifetime counts as `category` where nothing else is known.
class MemoryCategoryScope {
 public:
  explicit MemoryCategoryScope(MemoryCategory category);
  ~MemoryCategoryScope();
  MemoryCategoryScope(const MemoryCategoryScope&) = delete;
  MemoryCategoryScope& operator=(const MemoryCategoryScope&) = delete;

 private:
  MemoryCategory outer_;
};

/// Resident memory of the process that is no tensor's: code, the data set, scratch memory that
/// libraries allocate themselves. Bytes; an estimate, since memory that was never written to is not
/// resident.
std::int64_t memory_outside_ledger_bytes();

/// What the process can still allocate: free memory of the machine, of its control group, and of
/// its address space limit, whichever is least. Bytes.
std::int64_t available_memory_bytes();

}  // namespace reprise
