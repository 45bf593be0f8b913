// SPDX-License-Identifier: Apache-2.0
/// A recording in the format that Perfetto and chrome://tracing open.
#pragma once

#include "reprise/memory_timeline.h"

#include <string>

namespace reprise::detail {

/// The timeline as a JSON document of trace events: a counter of the bytes of each category, one
/// row with the phases, one with the layers. Times in microseconds.
std::string chrome_trace(const MemoryTimeline& timeline);

}  // namespace reprise::detail
