// SPDX-License-Identifier: Apache-2.0
#include "reprise/memory_timeline.h"

#include "autograd/saved_tensor_hooks.h"
#include "memory/ledger.h"
#include "memory/saved_activations.h"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <utility>

namespace reprise {
namespace {

using Clock = std::chrono::steady_clock;

/// Adds (or takes away, where `sign` is -1) bytes of a category.
void book(MemoryBreakdown& breakdown, std::optional<MemoryCategory> category,
          const std::string& layer, std::int64_t bytes) {
  if (!category) return;
  breakdown.bytes[static_cast<std::size_t>(*category)] += bytes;
  if (*category != MemoryCategory::kSavedActivations) return;
  auto& of_layer = breakdown.saved_by_layer[layer];
  of_layer += bytes;
  if (of_layer == 0) breakdown.saved_by_layer.erase(layer);
}

}  // namespace

struct MemoryTimeline::Impl : detail::LedgerListener {
  Impl() {
    hooks.emplace(saved_activations);
    start = Clock::now();
    live = detail::Ledger::instance().add_listener(*this);
  }

  std::int64_t now_ns() const { return ns_since_start(Clock::now()); }
  std::int64_t ns_since_start(Clock::time_point time) const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time - start).count();
  }

  void on_event(const MemoryEvent& event) override {
    try {
      events.push_back(event);
      events.back().time_ns = now_ns();
    } catch (const std::bad_alloc&) {
      is_complete = false;
    }
  }

  void on_refusal() override { ++refusals; }

  void on_layer(std::int32_t layer, bool is_recomputed, Clock::time_point begin) override {
    try {
      layer_spans.push_back({layer, is_recomputed, ns_since_start(begin), now_ns()});
    } catch (const std::bad_alloc&) {
      is_complete = false;
    }
  }

  struct LayerSpan {
    std::int32_t layer;
    bool is_recomputed;
    std::int64_t begin_ns;
    std::int64_t end_ns;
  };

  void end_phase() {
    if (!phases.empty() && phases.back().end_ns < 0) phases.back().end_ns = now_ns();
  }

  void stop() {
    if (is_stopped) return;
    is_stopped = true;
    detail::Ledger::instance().remove_listener(*this);
    hooks.reset();
    end_phase();
    last_time_ns = now_ns();
    layers = detail::known_layers();
    start_breakdown = breakdown_at_start();
    spans = std::move(phases);
    for (const auto& span : layer_spans) {
      // A layer that was running already when the recording began.
      if (span.begin_ns < 0) continue;
      spans.push_back({name_of(span.layer), true, span.is_recomputed, span.begin_ns, span.end_ns});
    }
  }

  std::string name_of(std::int32_t layer) const {
    return layer == detail::kNoLayer ? "" : layers[static_cast<std::size_t>(layer)];
  }

  MemoryBreakdown breakdown_at_start() const {
    MemoryBreakdown breakdown;
    for (const auto& block : live)
      book(breakdown, block.category, name_of(block.layer), block.bytes);
    return breakdown;
  }

  void require_complete() const {
    if (!is_complete)
      throw std::runtime_error("MemoryTimeline: memory ran out for the recording itself");
  }

  detail::SavedActivations saved_activations;
  std::optional<detail::SavedTensorScope> hooks;
  Clock::time_point start;
  std::vector<detail::LiveBlock> live;
  std::vector<MemoryEvent> events;
  std::vector<LayerSpan> layer_spans;
  std::vector<TimelineSpan> phases;
  std::vector<TimelineSpan> spans;
  std::vector<std::string> layers;
  MemoryBreakdown start_breakdown;
  std::int64_t refusals = 0;
  std::int64_t last_time_ns = 0;
  bool is_complete = true;
  bool is_stopped = false;
};

MemoryTimeline::MemoryTimeline() : impl_(std::make_unique<Impl>()) {}

MemoryTimeline::~MemoryTimeline() {
  detail::Ledger::instance().remove_listener(*impl_);
}

void MemoryTimeline::mark(std::string name) {
  impl_->end_phase();
  impl_->phases.push_back({std::move(name), false, false, impl_->now_ns(), -1});
}

void MemoryTimeline::stop() {
  impl_->stop();
  impl_->require_complete();
}

const std::vector<MemoryEvent>& MemoryTimeline::events() const {
  return impl_->events;
}
const std::vector<TimelineSpan>& MemoryTimeline::spans() const {
  return impl_->spans;
}
const std::vector<std::string>& MemoryTimeline::layers() const {
  return impl_->layers;
}
const MemoryBreakdown& MemoryTimeline::at_start() const {
  return impl_->start_breakdown;
}
std::int64_t MemoryTimeline::out_of_memory_events() const {
  return impl_->refusals;
}
std::int64_t MemoryTimeline::duration_ns() const {
  return impl_->last_time_ns;
}

MemoryBreakdown MemoryTimeline::after(std::size_t event) const {
  MemoryBreakdown breakdown = impl_->start_breakdown;
  for (std::size_t i = 0; i <= event; ++i) {
    const auto& e = impl_->events[i];
    book(breakdown, e.from, impl_->name_of(e.from_layer), -e.bytes);
    book(breakdown, e.to, impl_->name_of(e.to_layer), e.bytes);
  }
  return breakdown;
}

MemoryBreakdown MemoryTimeline::at(std::int64_t time_ns) const {
  const auto& events = impl_->events;
  const auto next = std::upper_bound(
      events.begin(), events.end(), time_ns,
      [](std::int64_t time, const MemoryEvent& event) { return time < event.time_ns; });
  return next == events.begin() ? at_start()
                                : after(static_cast<std::size_t>(next - events.begin() - 1));
}

std::optional<std::size_t> MemoryTimeline::peak_event() const {
  const auto& events = impl_->events;
  if (events.empty()) return std::nullopt;
  const auto peak = std::max_element(
      events.begin(), events.end(),
      [](const MemoryEvent& a, const MemoryEvent& b) { return a.total_bytes < b.total_bytes; });
  if (peak->total_bytes <= at_start().total()) return std::nullopt;
  return static_cast<std::size_t>(peak - events.begin());
}

std::int64_t MemoryTimeline::peak_bytes() const {
  const auto peak = peak_event();
  return peak ? impl_->events[*peak].total_bytes : at_start().total();
}

MemoryBreakdown MemoryTimeline::at_peak() const {
  const auto peak = peak_event();
  return peak ? after(*peak) : at_start();
}

double MemoryTimeline::average_bytes() const {
  double byte_ns = 0.0;
  std::int64_t bytes = at_start().total();
  std::int64_t since_ns = 0;
  for (const auto& event : impl_->events) {
    byte_ns += static_cast<double>(bytes) * static_cast<double>(event.time_ns - since_ns);
    bytes = event.total_bytes;
    since_ns = event.time_ns;
  }
  const auto duration_ns = static_cast<double>(impl_->last_time_ns);
  byte_ns += static_cast<double>(bytes) * (duration_ns - static_cast<double>(since_ns));
  return duration_ns > 0 ? byte_ns / duration_ns : static_cast<double>(bytes);
}

MemoryTrace MemoryTimeline::trace(std::int64_t batch_size) const {
  MemoryTrace trace{.batch_size = batch_size, .events = {}};
  std::map<std::int64_t, std::int64_t> numbers;  // in the ledger, in the trace
  const auto allocate = [&](std::int64_t block, std::int64_t requested_bytes) {
    const auto number = static_cast<std::int64_t>(numbers.size());
    numbers.emplace(block, number);
    trace.events.push_back({.block = number, .bytes = requested_bytes});
  };
  for (const auto& block : impl_->live) allocate(block.number, block.requested_bytes);
  for (const auto& event : impl_->events) {
    if (!event.from) allocate(event.block, event.requested_bytes);
    if (!event.to) trace.events.push_back({.block = numbers.at(event.block), .bytes = 0});
  }
  return trace;
}

}  // namespace reprise
