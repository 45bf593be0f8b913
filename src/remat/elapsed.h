// SPDX-License-Identifier: Apache-2.0
/// How long something took.
#pragma once

#include <chrono>

namespace reprise::detail {

inline double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

}  // namespace reprise::detail
