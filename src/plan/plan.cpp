// SPDX-License-Identifier: Apache-2.0
#include "reprise/plan.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <stdexcept>

namespace reprise {
namespace {

/// A set of segments to recompute, as a linked list from its last member back.
struct Choice {
  std::int64_t freed_bytes = 0;
  double extra_ms = 0.0;
  std::size_t segment = 0;
  std::ptrdiff_t previous = -1;
};

void check(const std::vector<SegmentCost>& segments, std::int64_t budget_bytes) {
  for (const auto& segment : segments) {
    if (segment.activation_bytes < 0 || !(segment.forward_ms >= 0.0) ||
        !std::isfinite(segment.forward_ms)) {
      throw std::invalid_argument(
          "plan_recomputation: a segment's bytes and time must be finite and not negative");
    }
  }
  if (budget_bytes < 0) {
    throw std::invalid_argument("plan_recomputation: the budget is negative");
  }
}

/// Keeps of two sorted lists (more bytes freed costs more time) the choices that no other one beats
/// in both.
std::vector<std::size_t> merge_undominated(const std::vector<Choice>& pool,
                                           const std::vector<std::size_t>& without,
                                           const std::vector<std::size_t>& with,
                                           std::int64_t needed_bytes) {
  std::vector<std::size_t> merged;
  std::merge(without.begin(), without.end(), with.begin(), with.end(), std::back_inserter(merged),
             [&](std::size_t a, std::size_t b) {
               if (pool[a].extra_ms != pool[b].extra_ms) return pool[a].extra_ms < pool[b].extra_ms;
               return pool[a].freed_bytes > pool[b].freed_bytes;
             });
  std::vector<std::size_t> kept;
  for (std::size_t i : merged) {
    if (!kept.empty() && pool[i].freed_bytes <= pool[kept.back()].freed_bytes) continue;
    kept.push_back(i);
    if (pool[i].freed_bytes >= needed_bytes) break;  // anything later costs more and is not needed
  }
  return kept;
}

}  // namespace

std::vector<std::size_t> plan_recomputation(const std::vector<SegmentCost>& segments,
                                            std::int64_t budget_bytes) {
  check(segments, budget_bytes);
  std::int64_t total_bytes = 0;
  for (const auto& segment : segments) total_bytes += segment.activation_bytes;
  const std::int64_t needed_bytes = std::max<std::int64_t>(0, total_bytes - budget_bytes);

  // The knapsack's Pareto frontier (Nemhauser and Ullmann 1969), segment by segment.
  std::vector<Choice> pool = {Choice{}};
  std::vector<std::size_t> frontier = {0};
  for (std::size_t s = 0; s < segments.size(); ++s) {
    std::vector<std::size_t> extended;
    for (std::size_t i : frontier) {
      if (pool[i].freed_bytes >= needed_bytes) break;
      pool.push_back({pool[i].freed_bytes + segments[s].activation_bytes,
                      pool[i].extra_ms + segments[s].forward_ms, s,
                      static_cast<std::ptrdiff_t>(i)});
      extended.push_back(pool.size() - 1);
    }
    frontier = merge_undominated(pool, frontier, extended, needed_bytes);
  }

  std::vector<std::size_t> chosen;
  for (auto i = static_cast<std::ptrdiff_t>(frontier.back());
       pool[static_cast<std::size_t>(i)].previous >= 0;
       i = pool[static_cast<std::size_t>(i)].previous) {
    chosen.push_back(pool[static_cast<std::size_t>(i)].segment);
  }
  std::reverse(chosen.begin(), chosen.end());
  return chosen;
}

}  // namespace reprise
