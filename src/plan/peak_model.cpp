// SPDX-License-Identifier: Apache-2.0
#include "reprise/batch_plan.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <utility>

namespace reprise {
namespace {

constexpr std::int64_t kAllocation = -1;  // in an order
constexpr std::int64_t kTooMany = std::numeric_limits<std::int64_t>::max();
// More than any machine has; up to here a double holds every number of bytes.
constexpr std::int64_t kMostTraceBytes = std::int64_t{1} << 53;

/// Sums and products that leave the range stay at its end.
std::int64_t saturating_add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return b > 0 ? kTooMany : std::numeric_limits<std::int64_t>::min();
}

/// a * b / divisor, rounded up. `divisor` is positive.
std::int64_t scaled(std::int64_t a, std::int64_t b, std::int64_t divisor) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) {
    return (a > 0) == (b > 0) ? kTooMany : std::numeric_limits<std::int64_t>::min();
  }
  // Division rounds towards 0: up where the product is negative.
  return product / divisor + (product % divisor > 0 ? 1 : 0);
}

std::int64_t round_up(std::int64_t bytes) {
  const std::int64_t over = bytes % kBlockAlignment;
  return over == 0 ? bytes : saturating_add(bytes, kBlockAlignment - over);
}

struct Peak {
  std::int64_t bytes = 0;
  std::size_t event = 0;  // that reaches it first
};

/// `sizes` are those of the blocks, in the order in which they are allocated.
Peak replay(const std::vector<std::int64_t>& order, const std::vector<std::int64_t>& sizes) {
  Peak peak;
  std::int64_t live_bytes = 0;
  auto next = sizes.begin();
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] != kAllocation) {
      live_bytes -= sizes[static_cast<std::size_t>(order[i])];
      continue;
    }
    live_bytes = saturating_add(live_bytes, *next++);
    if (live_bytes > peak.bytes) peak = {live_bytes, i};
    if (live_bytes == kTooMany) break;  // a saturated sum cannot be taken from
  }
  return peak;
}

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("PeakModel: " + what);
}

void require_not_negative(std::int64_t samples) {
  if (samples < 0) refuse("a batch of " + std::to_string(samples) + " samples cannot be");
}

}  // namespace

/// A trace that has been checked.
struct PeakModel::Recording {
  std::int64_t batch_size = 0;
  std::vector<std::int64_t> order = {};  // as order_
  std::vector<std::int64_t> bytes = {};  // of each block, as requested
  std::int64_t peak_bytes = 0;

  explicit Recording(const MemoryTrace& trace) : batch_size(trace.batch_size) {
    if (batch_size < 1) {
      refuse("a trace has batch size " + std::to_string(batch_size) + ", not 1 or more");
    }
    std::vector<bool> live;
    for (const auto& event : trace.events) add(event, live);
    std::vector<std::int64_t> sizes;
    sizes.reserve(bytes.size());
    for (const std::int64_t block : bytes) sizes.push_back(round_up(block));
    peak_bytes = replay(order, sizes).bytes;
    if (peak_bytes > kMostTraceBytes) {
      refuse("the trace of batch size " + std::to_string(batch_size) +
             " has more than 2^53 bytes allocated at once");
    }
  }

 private:
  void add(const MemoryTraceEvent& event, std::vector<bool>& live) {
    const auto next = static_cast<std::int64_t>(live.size());
    if (event.bytes < 0) refuse_event(event, "has " + std::to_string(event.bytes) + " bytes");
    if (event.bytes > 0) {
      if (event.block != next) {
        refuse_event(event, "is allocated, but the next number is " + std::to_string(next));
      }
      live.push_back(true);
      bytes.push_back(event.bytes);
      order.push_back(kAllocation);
      return;
    }
    if (event.block < 0 || event.block >= next)
      refuse_event(event, "is freed, but never allocated");
    const auto block = static_cast<std::size_t>(event.block);
    if (!live[block]) refuse_event(event, "is freed twice");
    live[block] = false;
    order.push_back(event.block);
  }

  [[noreturn]] void refuse_event(const MemoryTraceEvent& event, const std::string& what) const {
    refuse("the trace of batch size " + std::to_string(batch_size) + ", event " +
           std::to_string(order.size()) + ": block " + std::to_string(event.block) + " " + what +
           "; record every block from before the model is made");
  }
};

PeakModel PeakModel::fit(std::vector<MemoryTrace> traces) {
  std::vector<Recording> recordings;
  for (auto& trace : traces) {
    recordings.emplace_back(trace);
    trace.events = {};  // which is twice as large as the recording
  }
  std::stable_sort(recordings.begin(), recordings.end(),
                   [](const auto& a, const auto& b) { return a.batch_size < b.batch_size; });
  if (recordings.empty() || recordings.front().batch_size == recordings.back().batch_size) {
    refuse("traces of two different batch sizes are needed; record one more at another batch size");
  }
  PeakModel model;
  model.replays_events_ = std::all_of(recordings.begin(), recordings.end(), [&](const auto& other) {
    return other.order == recordings.front().order;
  });
  if (model.replays_events_) {
    model.replay_blocks(recordings.front(), recordings.back());
  } else {
    model.raise_line(recordings);
  }
  for (const auto& recording : recordings) {
    const std::int64_t difference = model.peak_bytes(recording.batch_size) - recording.peak_bytes;
    model.residual_bytes_ = std::max(model.residual_bytes_, std::abs(difference));
  }
  return model;
}

void PeakModel::replay_blocks(Recording& first, const Recording& last) {
  first_batch_ = first.batch_size;
  batch_step_ = last.batch_size - first.batch_size;
  order_ = std::move(first.order);
  blocks_.reserve(first.bytes.size());
  for (std::size_t i = 0; i < first.bytes.size(); ++i) {
    blocks_.push_back({first.bytes[i], last.bytes[i] - first.bytes[i]});
  }
}

/// The line is a single block, so that everything else is as for a replay.
void PeakModel::raise_line(const std::vector<Recording>& recordings) {
  const auto count = static_cast<double>(recordings.size());
  double mean_batch = 0.0;
  double mean_peak = 0.0;
  for (const auto& recording : recordings) {
    mean_batch += static_cast<double>(recording.batch_size) / count;
    mean_peak += static_cast<double>(recording.peak_bytes) / count;
  }
  double covariance = 0.0;
  double variance = 0.0;
  for (const auto& recording : recordings) {
    const double offset = static_cast<double>(recording.batch_size) - mean_batch;
    covariance += offset * (static_cast<double>(recording.peak_bytes) - mean_peak);
    variance += offset * offset;
  }
  first_batch_ = recordings.front().batch_size;
  batch_step_ = recordings.back().batch_size - first_batch_;
  // Peaks that fall are noise, and a line that falls would promise any batch.
  const double slope = std::max(0.0, covariance / variance);
  Block line{0, static_cast<std::int64_t>(std::ceil(slope * static_cast<double>(batch_step_)))};
  std::int64_t raised = std::numeric_limits<std::int64_t>::min();
  for (const auto& recording : recordings) {
    raised = std::max(raised, recording.peak_bytes - bytes_at(line, recording.batch_size));
  }
  line.bytes = raised;
  blocks_ = {line};
  order_ = {kAllocation};
}

/// As requested: negative where a size that shrinks would be.
std::int64_t PeakModel::bytes_at(const Block& block, std::int64_t batch_size) const {
  if (block.growth == 0) return block.bytes;
  return saturating_add(block.bytes, scaled(block.growth, batch_size - first_batch_, batch_step_));
}

/// Bytes that each block takes.
std::vector<std::int64_t> PeakModel::sizes_at(std::int64_t batch_size) const {
  require_not_negative(batch_size);
  std::vector<std::int64_t> sizes;
  sizes.reserve(blocks_.size());
  for (const auto& block : blocks_) {
    sizes.push_back(round_up(std::max<std::int64_t>(0, bytes_at(block, batch_size))));
  }
  return sizes;
}

/// Bytes per sample of the blocks that are live after an event; `sizes` are those of the blocks.
double PeakModel::slope_at(std::size_t event, const std::vector<std::int64_t>& sizes) const {
  double growth = 0.0;
  std::size_t next = 0;
  for (std::size_t i = 0; i <= event && i < order_.size(); ++i) {
    const bool is_allocation = order_[i] == kAllocation;
    const std::size_t block = is_allocation ? next++ : static_cast<std::size_t>(order_[i]);
    if (sizes[block] == 0) continue;  // it has stopped shrinking
    const auto bytes = static_cast<double>(blocks_[block].growth);
    growth += is_allocation ? bytes : -bytes;
  }
  return growth / static_cast<double>(batch_step_);
}

std::int64_t PeakModel::peak_bytes(std::int64_t batch_size) const {
  return replay(order_, sizes_at(batch_size)).bytes;
}

PeakParts PeakModel::parts(std::int64_t batch_size) const {
  const auto sizes = sizes_at(batch_size);
  const Peak peak = replay(order_, sizes);
  const double per_sample = slope_at(peak.event, sizes);
  return {static_cast<double>(peak.bytes) - per_sample * static_cast<double>(batch_size),
          per_sample};
}

std::int64_t PeakModel::largest_batch(std::int64_t limit_bytes, std::int64_t most) const {
  require_not_negative(most);
  std::int64_t largest = 0;
  std::int64_t low = 0;  // nothing below it is the answer
  std::int64_t high = most;
  while (low < high) {
    const std::int64_t middle = high - (high - low) / 2;  // above low
    const auto sizes = sizes_at(middle);
    const Peak peak = replay(order_, sizes);
    if (peak.bytes <= limit_bytes) {
      largest = low = middle;
    } else if (slope_at(peak.event, sizes) < 0.0) {
      low = middle;  // the moment that is too large here is larger still at smaller batches
    } else {
      high = middle - 1;
    }
  }
  return largest;
}

}  // namespace reprise
