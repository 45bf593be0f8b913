// SPDX-License-Identifier: Apache-2.0
/// Thin out windows.
#pragma once

#include "reprise/dataset.h"

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace reprise::detail {

/// Every k-th of `windows`, so that at most `most` remain. k is odd and has no factor in common
/// with `season` (in samples), so that every phase of the season is met.
inline std::vector<Window> every_kth(std::vector<Window> windows, std::size_t most,
                                     std::int64_t season) {
  if (windows.size() <= most) return windows;
  auto k = static_cast<std::int64_t>((windows.size() + most - 1) / most) | 1;
  while (std::gcd(k, season) != 1) k += 2;
  std::vector<Window> chosen;
  for (std::size_t i = 0; i < windows.size(); i += static_cast<std::size_t>(k)) {
    chosen.push_back(windows[i]);
  }
  return chosen;
}

}  // namespace reprise::detail
