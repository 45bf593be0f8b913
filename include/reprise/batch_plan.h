// SPDX-License-Identifier: Apache-2.0
/// How large a batch fits: the peak memory of training at any batch size, from recordings at small
/// ones.
///
/// A training step makes the same allocations and releases at every batch size, and the bytes of
/// each allocation are an affine function of the batch size. Replaying the recorded sequence with
/// the sizes of another batch gives the peak there, to the byte where that holds for every
/// allocation. A straight line through measured
/// peaks does not: the peak may move from one moment of the step to another.
///
/// No LibTorch here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace reprise {

/// Bytes; every block is counted as the next multiple of it.
constexpr std::int64_t kBlockAlignment = 64;

/// One allocation or release of a recording.
struct MemoryTraceEvent {
  std::int64_t block = 0;  ///< allocations count up from 0 in the order in which they are made
  std::int64_t bytes = 0;  ///< as requested, before rounding; 0: the block is freed
};

/// What training did to memory at one batch size: a few steps, from before the model was made.
struct MemoryTrace {
  std::int64_t batch_size = 0;  ///< samples
  std::vector<MemoryTraceEvent> events;
};

/// What the peak at one batch size is made of: fixed_bytes + per_sample_bytes * batch size.
struct PeakParts {
  double fixed_bytes = 0.0;       ///< with what rounding adds to the blocks
  double per_sample_bytes = 0.0;  ///< of the moment at which the peak is reached
};

/// Peak memory of training as a function of the batch size.
class PeakModel {
 public:
  static constexpr std::int64_t kMostSamples = std::int64_t{1} << 24;

  /// The smallest and the largest batch size define the model, the others check it (see
  /// `residual_bytes`).
  ///
  /// Throws `std::invalid_argument` unless there are two different batch sizes, for a batch size
  /// below 1, and for a trace that cannot be: negative sizes, allocations that do not count up from
  /// 0, releases of a block that is not allocated, more than 2^53 bytes at once.
  static PeakModel fit(std::vector<MemoryTrace> traces);

  /// Largest sum of the live blocks, each rounded up to `kBlockAlignment`; the largest
  /// std::int64_t where it would be more.
  ///
  /// Sizes between two bytes are rounded up; a size that shrinks with the batch stops at 0. Throws
  /// `std::invalid_argument` for a negative batch size.
  std::int64_t peak_bytes(std::int64_t batch_size) const;

  /// Largest batch size, up to `most`, whose peak is at most `limit_bytes`; 0: not even one sample
  /// fits.
  ///
  /// Where no block shrinks with the batch, the peak never falls, and the answer is exact. Else the
  /// batch sizes that fit need not begin at 1: the answer always fits, but where the limit is
  /// within `kBlockAlignment` per live block of a peak, a larger batch may fit as well. Throws
  /// `std::invalid_argument` for a negative `most`.
  std::int64_t largest_batch(std::int64_t limit_bytes, std::int64_t most = kMostSamples) const;

  /// The linear piece on which the batch size lies. Throws `std::invalid_argument` for a negative
  /// one.
  PeakParts parts(std::int64_t batch_size) const;

  /// Largest difference between a peak of the traces and the model's. 0 says little where
  /// `replays_events` is false and there were two traces: a line goes through any two points.
  std::int64_t residual_bytes() const { return residual_bytes_; }

  /// Whether all traces make the same sequence of allocations and releases, which the model
  /// replays. Else it is the straight line of least squares through the peaks (or a constant,
  /// should they fall), raised until it is below none of them.
  bool replays_events() const { return replays_events_; }

 private:
  struct Block {
    std::int64_t bytes;   // at first_batch_
    std::int64_t growth;  // bytes more at first_batch_ + batch_step_
  };
  struct Recording;

  PeakModel() = default;
  void replay_blocks(Recording& first, const Recording& last);
  void raise_line(const std::vector<Recording>& recordings);
  std::int64_t bytes_at(const Block& block, std::int64_t batch_size) const;
  std::vector<std::int64_t> sizes_at(std::int64_t batch_size) const;
  double slope_at(std::size_t event, const std::vector<std::int64_t>& sizes) const;

  std::vector<Block> blocks_;
  std::vector<std::int64_t> order_;  // per event: the block freed, or -1: the next allocated
  std::int64_t first_batch_ = 1;
  std::int64_t batch_step_ = 1;
  std::int64_t residual_bytes_ = 0;
  bool replays_events_ = false;
};

/// Memory of a device that training can have.
struct DeviceMemory {
  std::string name;
  std::int64_t usable_bytes = 0;
};

/// Devices of 4, 12, 24 and 48 GB, of which 3,700, 11,000, 22,000 and 44,000 MB (10^6 bytes) are
/// usable.
std::vector<DeviceMemory> common_devices();

/// One way to train the model.
struct TierPeaks {
  std::string tier;  ///< as it is shown: "off", "aggressive"
  PeakModel peaks;
  bool recomputes = true;  ///< false where nothing is recomputed
};

/// What one tier can do on one device.
struct BatchChoice {
  std::string tier;
  std::int64_t largest_batch = 0;   ///< samples; 0: not even one fits
  std::int64_t total_bytes = 0;     ///< peak at `largest_batch`, or of one sample where that is 0
  std::int64_t headroom_bytes = 0;  ///< usable less total: negative where not even one sample fits
  std::int64_t wanted_bytes = 0;    ///< peak at the wanted batch size
  bool is_recommended = false;
  std::string reason;  ///< why it is recommended or not, in one sentence with numbers
};

/// What all tiers can do on one device.
struct DevicePlan {
  DeviceMemory device;
  std::vector<BatchChoice> choices;  ///< one per tier, in the order given
  std::string recommendation;  ///< the recommended choice's reason, or that not one sample fits
};

/// Index of the first choice in which a batch of `wanted_batch` samples fits; where it fits in
/// none, of the first with the largest batch; their number where not even one sample fits.
std::size_t recommended_choice(const std::vector<BatchChoice>& choices, std::int64_t wanted_batch);

/// For each device the largest batch of each tier, and the tier recommended for batches of
/// `wanted_batch` samples. `tiers` are in order of their time, fastest first.
///
/// Recommended is the tier of `recommended_choice`.
/// Throws `std::invalid_argument` when there are no tiers, the wanted batch is below 1, or usable
/// bytes are negative.
std::vector<DevicePlan> plan_batches(const std::vector<TierPeaks>& tiers,
                                     const std::vector<DeviceMemory>& devices,
                                     std::int64_t wanted_batch);

}  // namespace reprise
