// SPDX-License-Identifier: Apache-2.0
#include "plan/remat_cuts.h"

#include <algorithm>
#include <tuple>

#include "plan/remat_chain_solver.h"
#include "plan/remat_stage.h"

namespace reprise::detail {
namespace {

constexpr std::int32_t kMostStages = 1200;
constexpr double kMostWork = 3e8;

/// The less crosses, the better; then the longer it takes to make it again.
struct CutQuality {
  std::int64_t bytes = 0;
  double time_ms = 0.0;

  bool operator<(const CutQuality& other) const {
    return std::tuple(bytes, -time_ms) < std::tuple(other.bytes, -other.time_ms);
  }
};

std::vector<CutQuality> qualities(const RematIndex& index) {
  std::vector<std::int64_t> change(index.operations + 2, 0);
  for (std::int32_t v = 0; v < index.values; ++v) {
    if (!index.is_chosen[v] || index.last_read[v] < 0) continue;
    change[index.graph.values[v].made_by + 1] += index.bytes(v);
    change[index.last_read[v] + 1] -= index.bytes(v);
  }
  std::vector<CutQuality> result(index.operations + 1);
  std::int64_t bytes = 0;
  for (std::int32_t i = 0; i <= index.operations; ++i) {
    bytes += change[i];
    result[i] = {bytes, i == 0 ? 0.0 : index.time_ms(i - 1)};
  }
  return result;
}

/// Cuts whose values forward can keep.
std::vector<std::int32_t> possible_cuts(const RematIndex& index) {
  std::vector<std::int32_t> overwritten(index.operations + 2, 0);
  for (std::int32_t v = 0; v < index.values; ++v) {
    if (index.graph.values[v].can_be_kept || !index.is_chosen[v]) continue;
    ++overwritten[index.graph.values[v].made_by + 1];
    --overwritten[std::max(index.last_read[v], index.graph.values[v].made_by) + 1];
  }
  std::vector<std::int32_t> cuts;
  std::int32_t crossing = 0;
  for (std::int32_t i = 0; i <= index.operations; ++i) {
    crossing += overwritten[i];
    if (crossing == 0) cuts.push_back(i);
  }
  return cuts;
}

/// Those that are better than the one before and no worse than the one after.
std::vector<std::int32_t> local_best(const std::vector<std::int32_t>& cuts,
                                     const std::vector<CutQuality>& quality) {
  std::vector<std::int32_t> best;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    const bool is_end = i == 0 || i + 1 == cuts.size();
    if (is_end ||
        (quality[cuts[i]] < quality[cuts[i - 1]] && !(quality[cuts[i + 1]] < quality[cuts[i]]))) {
      best.push_back(cuts[i]);
    }
  }
  return best;
}

/// The best of every `group` cuts.
std::vector<std::int32_t> thin(const std::vector<std::int32_t>& cuts,
                               const std::vector<CutQuality>& quality, std::size_t group) {
  std::vector<std::int32_t> result{cuts.front()};
  for (std::size_t i = 1; i + 1 < cuts.size(); i += group) {
    const std::size_t end = std::min(i + group, cuts.size() - 1);
    result.push_back(
        *std::min_element(cuts.begin() + static_cast<std::ptrdiff_t>(i),
                          cuts.begin() + static_cast<std::ptrdiff_t>(end),
                          [&](std::int32_t a, std::int32_t b) { return quality[a] < quality[b]; }));
  }
  result.push_back(cuts.back());
  return result;
}

bool is_small_enough(const RematIndex& index, const std::vector<std::int32_t>& cuts, Chain& chain) {
  if (cuts.size() > kMostStages) return false;
  chain = make_chain(index, cuts);
  return ChainSolver::work(index, chain) <= kMostWork;
}

/// Without options.
Chain smallest_enough(const RematIndex& index) {
  const auto quality = qualities(index);
  std::vector<std::int32_t> cuts = possible_cuts(index);
  Chain chain;
  if (is_small_enough(index, cuts, chain)) return chain;
  for (auto best = local_best(cuts, quality); best.size() >= 64 && best.size() < cuts.size();
       best = local_best(cuts, quality)) {
    cuts = best;
    if (is_small_enough(index, cuts, chain)) return chain;
  }
  for (std::size_t group = 2;; group += 1 + group / 8) {
    if (is_small_enough(index, thin(cuts, quality, group), chain)) return chain;
  }
}

}  // namespace

Chain choose_chain(const RematIndex& index) {
  Chain chain = smallest_enough(index);
  add_options(index, chain);
  return chain;
}

}  // namespace reprise::detail
