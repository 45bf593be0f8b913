// SPDX-License-Identifier: Apache-2.0
#include "batch_choice.h"

#include "byte_size.h"
#include "reprise/memory.h"
#include "text.h"

#include <algorithm>

namespace reprise {
namespace {

// Tensors are not all that a training takes, and others use the machine too.
constexpr std::int64_t kUsablePercent = 80;

}  // namespace

std::int64_t tensor_memory_bytes(std::int64_t percent) {
  release_cached_memory();
  return memory_stats().current_bytes + available_memory_bytes() / 100 * percent;
}

MemoryLimit memory_limit(const TrainOptions& options) {
  if (options.memory_budget_bytes > 0) {
    return {options.memory_budget_bytes, "the budget"};
  }
  return {tensor_memory_bytes(kUsablePercent),
          std::to_string(kUsablePercent) + " % of the memory available"};
}

std::int64_t most_windows(std::int64_t train_windows) {
  return std::clamp<std::int64_t>(train_windows / kLeastStepsPerEpoch, 1, PeakModel::kMostSamples);
}

std::string batch_size_text(const LargestBatch& chosen, std::int64_t train_windows,
                            const MemoryLimit& limit) {
  const std::string reason = chosen.is_limited_by_most
                                 ? format_count(kLeastStepsPerEpoch) +
                                       " steps an epoch, which has " + format_windows(train_windows)
                                 : "memory";
  return "Batch size: " + format_windows(chosen.batch_size) + ", limited by " + reason +
         " (measured peak " + format_bytes(chosen.peak_bytes) + "; " + limit.what + " is " +
         format_bytes(limit.bytes) + ")\n";
}

BudgetError no_window_fits(std::int64_t needed_bytes, const MemoryLimit& limit) {
  return {needed_bytes, limit.bytes,
          "--batch-size auto: not even one window fits: a step of one needs at least " +
              format_bytes(needed_bytes) + ", and " + limit.what + " is " +
              format_bytes(limit.bytes) +
              "; use --checkpointing aggressive or a smaller --hidden or --encoder, or allow more "
              "(--memory-budget " +
              byte_size_text(needed_bytes) + ")"};
}

std::string resolve_batch_size(PreparedData& data) {
  TrainOptions& train = data.settings.train;
  if (train.batch_size != 0) {
    return "";
  }
  const TftOptions& model = data.settings.model;
  const std::int64_t train_windows = data.overview.windows.train;
  TrainOptions measured = train;
  measured.batch_size = TrainOptions{}.batch_size;  // of no meaning: several sizes are measured
  const PeakModel peaks = measure_peaks(model, data.dataset, measured);
  const MemoryLimit limit = memory_limit(train);
  const LargestBatch chosen = find_largest_batch(peaks, model, data.dataset, measured, limit.bytes,
                                                 most_windows(train_windows));
  if (chosen.batch_size == 0) {
    // What is foretold may be a little less than what was just refused.
    const std::int64_t foretold = peaks.peak_bytes(1);
    throw no_window_fits(foretold > limit.bytes ? foretold : limit.bytes + kBlockAlignment, limit);
  }
  train.batch_size = chosen.batch_size;
  train.validate();
  return batch_size_text(chosen, train_windows, limit);
}

}  // namespace reprise
