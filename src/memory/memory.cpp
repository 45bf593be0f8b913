// SPDX-License-Identifier: Apache-2.0
#include "reprise/memory.h"

#include "autograd/gradient_hook.h"
#include "memory/ledger.h"
#include "memory/process_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <numeric>

namespace reprise {

using detail::Ledger;

namespace {

c10::DeviceIndex index_of(const c10::Device& device) {
  return device.has_index() ? device.index() : c10::DeviceIndex{0};
}

void label_gradient(const at::Tensor& parameter) {
  label_memory(parameter.grad(), MemoryCategory::kGradients);
}

}  // namespace

std::string to_string(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::kParameters:
      return "parameters";
    case MemoryCategory::kGradients:
      return "gradients";
    case MemoryCategory::kOptimizerState:
      return "optimizer state";
    case MemoryCategory::kBatch:
      return "batch data";
    case MemoryCategory::kSavedActivations:
      return "saved activations";
    case MemoryCategory::kRecomputed:
      return "recompute buffers";
    case MemoryCategory::kTemporaries:
      return "temporaries";
  }
  return "temporaries";
}

std::int64_t MemoryBreakdown::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
}

MemoryStats memory_stats() {
  return Ledger::instance().stats();
}

MemoryStats memory_stats(const c10::Device& device) {
  if (device.is_cpu()) return memory_stats();
  const auto figures = c10::getDeviceAllocator(device.type())->getDeviceStats(index_of(device));
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto& allocated = figures.allocated_bytes[kAll];
  MemoryStats stats;
  stats.current_bytes = allocated.current;
  stats.peak_bytes = allocated.peak;
  stats.cached_bytes = figures.reserved_bytes[kAll].current - allocated.current;
  stats.allocations = figures.allocation[kAll].allocated;
  stats.out_of_memory_events = figures.num_ooms;
  return stats;
}

void reset_peak_memory() {
  Ledger::instance().reset_peak();
}

void reset_peak_memory(const c10::Device& device) {
  if (device.is_cpu()) {
    reset_peak_memory();
  } else {
    c10::getDeviceAllocator(device.type())->resetPeakStats(index_of(device));
  }
}

void release_cached_memory() {
  Ledger::instance().release_cached();
}

void label_memory(const at::Tensor& tensor, MemoryCategory category) {
  if (tensor.defined()) Ledger::instance().label(detail::memory_of(tensor), category);
}

void label_parameters(std::span<const at::Tensor> parameters) {
  for (const auto& parameter : parameters) {
    if (!parameter.defined()) continue;
    label_memory(parameter, MemoryCategory::kParameters);
    label_gradient(parameter);
    if (parameter.requires_grad()) detail::add_gradient_hook(parameter, &label_gradient);
  }
}

std::int64_t memory_outside_ledger_bytes() {
  const auto stats = memory_stats();
  return detail::resident_bytes() - stats.current_bytes - stats.cached_bytes;
}

std::int64_t available_memory_bytes() {
  return detail::available_bytes();
}

}  // namespace reprise
