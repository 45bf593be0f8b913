// SPDX-License-Identifier: Apache-2.0
/// What a thread is doing, for the memory it allocates: a category and a layer.
#pragma once

#include "reprise/memory.h"

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace reprise::detail {

constexpr std::int32_t kNoLayer = -1;

struct ThreadLabels {
  MemoryCategory category = MemoryCategory::kTemporaries;
  std::int32_t layer = kNoLayer;
};

ThreadLabels& thread_labels();

/// The number of a layer's name, from 0; the same name has the same number for the life of the
/// process.
std::int32_t layer_number(const std::string& name);
std::string layer_name(std::int32_t number);
/// Guards the names. To be locked after the ledger's lock, where both are.
std::mutex& layer_names_mutex();
/// All names, by number.
std::vector<std::string> known_layers();

/// Memory allocated in its lifetime is recomputed, for the layer that was current in forward.
class RecomputationLabels {
 public:
  explicit RecomputationLabels(std::int32_t layer);
  ~RecomputationLabels();
  RecomputationLabels(const RecomputationLabels&) = delete;
  RecomputationLabels& operator=(const RecomputationLabels&) = delete;

 private:
  ThreadLabels outer_;
  std::int32_t layer_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace reprise::detail
