// SPDX-License-Identifier: Apache-2.0
#include "report/chrome_trace.h"

#include <nlohmann/json.hpp>

namespace reprise::detail {
namespace {

using nlohmann::json;

constexpr int kProcess = 1;

double microseconds(std::int64_t ns) {
  return static_cast<double>(ns) * 1e-3;
}

json row_name(int row, const char* name) {
  return {{"ph", "M"},
          {"pid", kProcess},
          {"tid", row},
          {"name", "thread_name"},
          {"args", {{"name", name}}}};
}

json span_event(const TimelineSpan& span) {
  constexpr int kPhases = 1;
  constexpr int kLayers = 2;
  return {{"ph", "X"},
          {"pid", kProcess},
          {"tid", span.is_layer ? kLayers : kPhases},
          {"name", span.name.empty() ? "outside every layer" : span.name},
          {"cat", span.is_recomputed ? "recomputed layer"
                  : span.is_layer    ? "layer"
                                     : "phase"},
          {"ts", microseconds(span.begin_ns)},
          {"dur", microseconds(span.end_ns - span.begin_ns)}};
}

json counter_event(std::int64_t time_ns, const MemoryBreakdown& breakdown) {
  json bytes = json::object();
  for (std::size_t i = 0; i < kMemoryCategories; ++i)
    bytes[to_string(static_cast<MemoryCategory>(i))] = breakdown.bytes[i];
  return {{"ph", "C"},
          {"pid", kProcess},
          {"name", "tensors"},
          {"ts", microseconds(time_ns)},
          {"args", std::move(bytes)}};
}

}  // namespace

std::string chrome_trace(const MemoryTimeline& timeline) {
  json events = json::array({row_name(1, "phases"), row_name(2, "layers")});
  for (const auto& span : timeline.spans()) events.push_back(span_event(span));
  MemoryBreakdown now = timeline.at_start();
  events.push_back(counter_event(0, now));
  for (const auto& event : timeline.events()) {
    if (event.from) now.bytes[static_cast<std::size_t>(*event.from)] -= event.bytes;
    if (event.to) now.bytes[static_cast<std::size_t>(*event.to)] += event.bytes;
    events.push_back(counter_event(event.time_ns, now));
  }
  return json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump(
      -1, ' ', false, json::error_handler_t::replace);
}

}  // namespace reprise::detail
