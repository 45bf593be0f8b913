// SPDX-License-Identifier: Apache-2.0
#include "remat/step_profile.h"

#include <algorithm>

namespace reprise::detail {

StepProfile::StepProfile() {
  std::int64_t bytes = 0;
  for (const auto& block : Ledger::instance().add_listener(*this)) bytes += block.bytes;
  const std::lock_guard lock(mutex_);
  base_bytes_ = bytes;
  // Another thread may have been heard already.
  if (total_bytes_ == 0) total_bytes_ = base_bytes_;
  peak_bytes_ = std::max(peak_bytes_, base_bytes_);
}

StepProfile::~StepProfile() {
  Ledger::instance().remove_listener(*this);
}

void StepProfile::on_event(const MemoryEvent& event) {
  const std::lock_guard lock(mutex_);
  total_bytes_ = event.total_bytes;
  peak_bytes_ = std::max(peak_bytes_, total_bytes_);
  if (!event.to) {
    if (const auto found = value_blocks_.find(event.block); found != value_blocks_.end()) {
      value_bytes_ -= found->second;
      value_blocks_.erase(found);
    }
  }
  if (!is_paused_ && base_bytes_ != kUnknown)
    most_other_bytes_ = std::max(most_other_bytes_, total_bytes_ - value_bytes_ - base_bytes_);
}

void StepProfile::add_value(const void* memory) {
  const auto block = Ledger::instance().find(memory);
  if (!block) return;
  const std::lock_guard lock(mutex_);
  if (value_blocks_.emplace(block->number, block->bytes).second) value_bytes_ += block->bytes;
}

std::int64_t StepProfile::other_bytes() const {
  const std::lock_guard lock(mutex_);
  return total_bytes_ - value_bytes_ - base_bytes_;
}

std::int64_t StepProfile::take_most_other_bytes() {
  const std::lock_guard lock(mutex_);
  const std::int64_t now = total_bytes_ - value_bytes_ - base_bytes_;
  const std::int64_t most = std::max(most_other_bytes_, now);
  most_other_bytes_ = now;
  return most;
}

std::int64_t StepProfile::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_bytes_;
}

void StepProfile::set_paused(bool is_paused) {
  const std::lock_guard lock(mutex_);
  is_paused_ = is_paused;
}

}  // namespace reprise::detail
