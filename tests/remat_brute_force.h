// SPDX-License-Identifier: Apache-2.0
/// The best of all schedules of small graphs, by trying them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "reprise/remat_plan.h"

namespace reprise {

/// Least time to do backward within a budget: all schedules, by search over what is there. Only for
/// graphs as `chain` and `small_graph` make them: operation i makes value i, and a need is released
/// at once.
class BruteForce {
 public:
  BruteForce(const RematGraph& graph, std::int64_t budget_bytes)
      : graph_(graph), budget_(budget_bytes) {}

  /// Negative: impossible.
  double least_ms() {
    double best = -1.0;
    const auto values = static_cast<std::uint32_t>(graph_.values.size());
    for (std::uint32_t kept = 0; kept < (1U << values); ++kept) {
      if (!forward_fits(kept)) continue;
      const double ms = least(kept, 0);
      if (ms < kNever && (best < 0.0 || ms < best)) best = ms;
    }
    return best;
  }

 private:
  static constexpr double kNever = 1e9;

  std::int64_t bytes(std::uint32_t set) const {
    std::int64_t sum = 0;
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      if ((set >> v & 1U) != 0) sum += graph_.values[v].bytes;
    }
    return sum;
  }

  bool forward_fits(std::uint32_t kept) const {
    RematPlan plan;
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      if ((kept >> v & 1U) != 0) plan.kept.push_back(static_cast<std::int32_t>(v));
    }
    RematGraph forward = graph_;
    forward.events.clear();
    return simulate(forward, plan).peak_bytes <= budget_;
  }

  /// With the values of `there`, before the need number `need`.
  double least(std::uint32_t there, std::size_t need) {
    if (need * 2 == graph_.events.size()) return 0.0;
    const auto [it, is_new] = known_.try_emplace({there, need}, kNever);
    if (!is_new) return it->second;
    // Cheapest first over what can be there at this need.
    std::map<std::uint32_t, double> reached{{there, 0.0}};
    std::set<std::pair<double, std::uint32_t>> open{{0.0, there}};
    double best = kNever;
    const std::uint32_t wanted = 1U << graph_.events[need * 2].value;
    while (!open.empty()) {
      const auto [ms, set] = *open.begin();
      open.erase(open.begin());
      const auto visit = [&](std::uint32_t next, double next_ms) {
        const auto [known, is_first] = reached.try_emplace(next, next_ms);
        if (!is_first && known->second <= next_ms) return;
        known->second = next_ms;
        open.insert({next_ms, next});
      };
      if ((set & wanted) != 0) {
        best = std::min(best, ms + least(set, need + 1));
        best = std::min(best, ms + least(set & ~wanted, need + 1));
      }
      for (std::size_t v = 0; v < graph_.values.size(); ++v) {
        const std::uint32_t bit = 1U << v;
        if ((set & bit) != 0) visit(set & ~bit, ms);
        const auto& inputs = graph_.operations[v].inputs;
        const bool has_inputs = std::all_of(inputs.begin(), inputs.end(), [&, from = set](int i) {
          return (from >> static_cast<unsigned>(i) & 1U) != 0;
        });
        if ((set & bit) == 0 && has_inputs && bytes(set | bit) <= budget_) {
          visit(set | bit, ms + graph_.operations[v].time_ms);
        }
      }
    }
    known_[{there, need}] = best;
    return best;
  }

  const RematGraph& graph_;
  std::int64_t budget_;
  std::map<std::pair<std::uint32_t, std::size_t>, double> known_;
};

}  // namespace reprise
