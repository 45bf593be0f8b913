// SPDX-License-Identifier: Apache-2.0
/// Record what happens to the memory of tensors, and who holds it at the peak.
#pragma once

#include "reprise/batch_plan.h"
#include "reprise/memory.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace reprise {

/// Something that happened to one block of memory.
struct MemoryEvent {
  std::int64_t time_ns = 0;  ///< since the recording began
  std::int64_t block = 0;    ///< in the order of allocation
  std::int64_t requested_bytes = 0;
  std::int64_t bytes = 0;  ///< of the block: rounded up to 64
  /// Where it counted before and counts now; none: not allocated.
  std::optional<MemoryCategory> from;
  std::optional<MemoryCategory> to;
  std::int32_t from_layer = -1;  ///< of saved activations: index into `layers()`
  std::int32_t to_layer = -1;
  std::int64_t total_bytes = 0;  ///< of all blocks, after it
};

/// A stretch of time with a name: a phase that was marked, or a layer.
struct TimelineSpan {
  std::string name;
  bool is_layer = false;
  bool is_recomputed = false;  ///< a layer that ran again in backward
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

/// Records the memory of all threads while it lives, or until `stop`.
///
/// What autograd saves on the thread that made it counts as saved activations, by the innermost
/// `LayerScope`. Some 100 bytes of memory per event, and half a microsecond. Timelines of one
/// thread stop in the opposite order of their beginning, in that thread.
class MemoryTimeline {
 public:
  MemoryTimeline();
  ~MemoryTimeline();
  MemoryTimeline(const MemoryTimeline&) = delete;
  MemoryTimeline& operator=(const MemoryTimeline&) = delete;

  /// Ends the phase before, if there is one, and begins the phase `name`.
  void mark(std::string name);
  void stop();

  // What was recorded; to be asked after `stop`.
  const std::vector<MemoryEvent>& events() const;
  const std::vector<TimelineSpan>& spans() const;
  const std::vector<std::string>& layers() const;
  const MemoryBreakdown& at_start() const;
  /// After the event with that index.
  MemoryBreakdown after(std::size_t event) const;
  /// At that time since the recording began.
  MemoryBreakdown at(std::int64_t time_ns) const;
  /// Index of the event after which there is most memory; none where there never was more than at
  /// the start.
  std::optional<std::size_t> peak_event() const;
  std::int64_t peak_bytes() const;
  /// Who holds it then.
  MemoryBreakdown at_peak() const;
  double average_bytes() const;  ///< over time
  std::int64_t out_of_memory_events() const;
  std::int64_t duration_ns() const;
  /// The same as a planner takes it: with what was there at the start, for a step of `batch_size`.
  MemoryTrace trace(std::int64_t batch_size) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Names what this thread does in its lifetime: a layer of a model. A scope inside another is
/// named "outer/inner".
class LayerScope {
 public:
  explicit LayerScope(const std::string& name);
  ~LayerScope();
  LayerScope(const LayerScope&) = delete;
  LayerScope& operator=(const LayerScope&) = delete;

 private:
  std::int32_t outer_;
  std::chrono::steady_clock::time_point begin_;
};

/// Names the layers of any model by its parameters: an operator that reads one belongs to the
/// module of that parameter, as do those after it that read none.
///
/// For the operators of this thread in its lifetime, outside every `LayerScope`. About a
/// microsecond per operator.
class ParameterLayers {
 public:
  /// `parameters` by path (`named_tensors(module)`): "encoder.0.weight" names the layer
  /// "encoder.0".
  explicit ParameterLayers(const std::vector<std::pair<std::string, at::Tensor>>& parameters);
  ~ParameterLayers();
  ParameterLayers(const ParameterLayers&) = delete;
  ParameterLayers& operator=(const ParameterLayers&) = delete;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reprise
