// SPDX-License-Identifier: Apache-2.0
/// Bytes in messages.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace reprise::detail {

/// "12.3 MB", of 10^6 bytes; below that "1234 bytes".
inline std::string byte_text(std::int64_t bytes) {
  if (bytes < 1'000'000) return std::to_string(bytes) + " bytes";
  char text[48];
  std::snprintf(text, sizeof text, "%.1f MB", static_cast<double>(bytes) / 1e6);
  return text;
}

}  // namespace reprise::detail
