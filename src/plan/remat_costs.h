// SPDX-License-Identifier: Apache-2.0
/// Costs per number of slots: the inner loops of the chain's solver.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace reprise::detail {

/// Four at a time: at -O2 compilers do not do that to a loop by themselves.
using Lanes = float __attribute__((vector_size(16)));
constexpr std::int32_t kLanes = 4;

inline Lanes load(const float* from) {
  Lanes lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return lanes;
}

inline void store_least(float* to, Lanes cost) {
  const Lanes known = load(to);
  const Lanes least = cost < known ? cost : known;
  std::memcpy(to, &least, sizeof least);
}

/// costs[i] = min(costs[i], added + later[i] + again[i])
inline void improve(float* costs, const float* later, const float* again, float added,
                    std::int32_t count) {
  std::int32_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store_least(costs + i, added + load(later + i) + load(again + i));
  }
  for (; i < count; ++i) costs[i] = std::min(costs[i], added + later[i] + again[i]);
}

/// costs[i] = min(costs[i], added + later[i])
inline void improve(float* costs, const float* later, float added, std::int32_t count) {
  std::int32_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store_least(costs + i, added + load(later + i));
  for (; i < count; ++i) costs[i] = std::min(costs[i], added + later[i]);
}

/// From `begin` on, the first that is known to be no better than `least_cost`, or `end`: costs
/// never rise with memory once they are complete, so what costs at least that improves none behind
/// it.
inline std::int32_t improvable_end(const float* costs, std::int32_t begin, std::int32_t end,
                                   float least_cost) {
  if (begin >= end || costs[end - 1] > least_cost) return end;
  std::int32_t last = end - 1;
  while (begin < last) {
    const std::int32_t middle = begin + (last - begin) / 2;
    if (costs[middle] > least_cost) {
      begin = middle + 1;
    } else {
      last = middle;
    }
  }
  return last;
}

}  // namespace reprise::detail
