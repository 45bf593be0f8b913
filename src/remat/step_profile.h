// SPDX-License-Identifier: Apache-2.0
/// What a recorded step does to memory besides its values: measured once, for the planner.
#pragma once

#include "memory/ledger.h"

#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace reprise::detail {

/// Listens to the ledger, and tells the memory of a tape's values from all other memory.
class StepProfile : public LedgerListener {
 public:
  StepProfile();
  ~StepProfile() override;
  StepProfile(const StepProfile&) = delete;
  StepProfile& operator=(const StepProfile&) = delete;

  /// The block at `memory` is that of a value from now on.
  void add_value(const void* memory);
  /// Bytes besides those in use at the beginning that are no value's.
  std::int64_t other_bytes() const;
  /// The most that there were since the last call.
  std::int64_t take_most_other_bytes();
  /// While a replay runs, its memory does not count.
  void pause() { set_paused(true); }
  void resume() { set_paused(false); }

  /// In use at the beginning.
  std::int64_t base_bytes() const { return base_bytes_; }
  /// Most in use since, values and replays included.
  std::int64_t peak_bytes() const;

  void on_event(const MemoryEvent& event) override;
  void on_refusal() override {}
  void on_layer(std::int32_t /*layer*/, bool /*is_recomputed*/,
                std::chrono::steady_clock::time_point /*begin*/) override {}

 private:
  void set_paused(bool is_paused);

  mutable std::mutex mutex_;                                     ///< taken after the ledger's
  std::unordered_map<std::int64_t, std::int64_t> value_blocks_;  ///< bytes by number
  static constexpr std::int64_t kUnknown = -1;
  std::int64_t base_bytes_ = kUnknown;
  std::int64_t total_bytes_ = 0;
  std::int64_t peak_bytes_ = 0;
  std::int64_t value_bytes_ = 0;
  std::int64_t most_other_bytes_ = 0;
  bool is_paused_ = false;
};

}  // namespace reprise::detail
