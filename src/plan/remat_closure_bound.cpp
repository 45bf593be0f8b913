// SPDX-License-Identifier: Apache-2.0
#include "plan/remat_closure_bound.h"

#include <algorithm>

namespace reprise::detail {

ClosureBound::ClosureBound(const RematIndex& index, std::int32_t event)
    : index_(index),
      is_waiting_(index.values, 0),
      can_charge_(index.values, 0),
      offered_ms_(index.values, 0.0) {
  std::vector<std::int32_t> uses(index.values, 0);
  for (std::int32_t e = 0; e <= event; ++e) {
    const auto& it = index.graph.events[e];
    uses[it.value] += it.kind == RematEvent::Kind::kNeed ? 1 : -1;
  }
  for (std::int32_t v = 0; v < index.values; ++v) {
    if (!index.is_chosen[v] || uses[v] > 0) continue;
    const bool is_needed = index.last_need[v] > event;
    is_waiting_[v] = is_needed ? 1 : 0;
    can_charge_[v] = is_needed ? 0 : 1;
  }
}

double ClosureBound::least_replay_ms(std::int64_t waiting_bytes, double price) {
  std::fill(offered_ms_.begin(), offered_ms_.end(), 0.0);
  double paid_ms = 0.0;
  for (std::int32_t i = index_.operations - 1; i >= 0; --i) {
    const auto& operation = index_.graph.operations[i];
    double offer_ms = 0.0;
    for (const std::int32_t v : operation.outputs) {
      offer_ms += is_waiting_[v] ? price * static_cast<double>(index_.bytes(v)) : offered_ms_[v];
    }
    const double taken_ms = std::min(offer_ms, operation.time_ms);
    paid_ms += taken_ms;
    offer_ms -= taken_ms;
    for (const std::int32_t v : operation.inputs) {
      if (offer_ms <= 0.0) break;
      if (!can_charge_[v]) continue;
      const double room_ms = price * static_cast<double>(index_.bytes(v)) - offered_ms_[v];
      const double passed_ms = std::min(offer_ms, room_ms);
      offered_ms_[v] += passed_ms;
      offer_ms -= passed_ms;
    }
  }
  return paid_ms - price * static_cast<double>(waiting_bytes);
}

}  // namespace reprise::detail
