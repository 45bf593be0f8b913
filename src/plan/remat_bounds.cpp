// SPDX-License-Identifier: Apache-2.0
#include "plan/remat_bounds.h"

#include <algorithm>
#include <cmath>

#include "plan/remat_closure_bound.h"

namespace reprise::detail {
namespace {

constexpr std::size_t kMostMoments = 64;
constexpr std::size_t kMostClosureWork = 10'000;  // operations and events, for each price
constexpr int kPrices = 24;
constexpr double kPriceRatio = 1.15;

}  // namespace

Bounds::Bounds(const RematIndex& index) : index_(index), least_bytes_(forward_bytes()) {
  add_gaps();
  for (const auto& gap : gaps_) least_bytes_ = std::max(least_bytes_, gap.other_bytes);
  std::stable_sort(gaps_.begin(), gaps_.end(), [](const Gap& a, const Gap& b) {
    return a.other_bytes + a.needed_bytes > b.other_bytes + b.needed_bytes;
  });
  if (gaps_.size() > kMostMoments) gaps_.resize(kMostMoments);
  add_items();
}

/// Values in use and those that can only be kept, with what is no value's; and forward.
std::int64_t Bounds::least_budget_bytes() const {
  return least_bytes_;
}

double Bounds::least_replay_ms(std::int64_t budget_bytes) const {
  std::vector<Knapsack> knapsacks;
  for (const auto& gap : gaps_) knapsacks.push_back(knapsack(gap, budget_bytes));
  std::stable_sort(knapsacks.begin(), knapsacks.end(),
                   [](const auto& a, const auto& b) { return a.ms > b.ms; });
  double most_ms = knapsacks.front().ms;
  if (most_ms <= 0.0) return 0.0;
  const auto size = static_cast<std::size_t>(index_.operations + index_.events);
  const std::size_t closures =
      std::clamp<std::size_t>(kMostClosureWork / size, 1, knapsacks.size());
  for (std::size_t i = 0; i < closures; ++i) {
    most_ms = std::max(most_ms, closure_ms(knapsacks[i], budget_bytes));
  }
  return most_ms;
}

/// The knapsack's own price gives at least the knapsack's bound; deeper recomputation pays more.
double Bounds::closure_ms(const Knapsack& knapsack, std::int64_t budget_bytes) const {
  if (knapsack.price <= 0.0) return 0.0;
  ClosureBound bound(index_, knapsack.gap->event);
  const std::int64_t waiting_bytes = budget_bytes - knapsack.gap->other_bytes;
  if (waiting_bytes < 0) return 0.0;
  double most_ms = 0.0;
  for (int step = 0; step < kPrices; ++step) {
    const double price = knapsack.price * std::pow(kPriceRatio, step);
    most_ms = std::max(most_ms, bound.least_replay_ms(waiting_bytes, price));
  }
  return most_ms;
}

/// A value that must be there for its next need, as its operation cannot run again.
bool Bounds::is_forced(std::int32_t value) const {
  return index_.is_pinned[value] && index_.last_need[value] >= 0;
}

void Bounds::add_gaps() {
  std::int64_t base = index_.graph.base_bytes;
  for (std::int32_t v = 0; v < index_.values; ++v) {
    if (index_.graph.values[v].held_until == index_.operations) base += index_.bytes(v);
  }
  std::vector<std::int32_t> uses(index_.values, 0);  // outstanding needs
  std::int64_t forced = 0;
  std::int64_t needed = 0;
  for (std::int32_t v = 0; v < index_.values; ++v) {
    if (index_.is_permanent[v] || index_.last_need[v] < 0) continue;
    (is_forced(v) ? forced : needed) += index_.bytes(v);
  }
  std::int64_t in_use = 0;  // besides forced and permanent values
  gaps_.push_back({-1, base + forced + index_.graph.first_bytes, needed});
  for (std::int32_t e = 0; e < index_.events; ++e) {
    const auto& event = index_.graph.events[e];
    const std::int32_t v = event.value;
    const bool is_counted = is_forced(v) ? e >= index_.last_need[v] : true;
    if (!index_.is_permanent[v]) {
      const bool is_need = event.kind == RematEvent::Kind::kNeed;
      const bool is_needed_later = index_.last_need[v] > e && !is_forced(v);
      if (is_need && uses[v]++ == 0) {
        if (is_counted) in_use += index_.bytes(v);
        if (!is_forced(v)) needed -= index_.bytes(v);
      }
      if (!is_need && --uses[v] == 0) {
        if (is_counted) in_use -= index_.bytes(v);
        if (is_needed_later) needed += index_.bytes(v);
      }
      if (is_need && e == index_.last_need[v] && is_forced(v)) forced -= index_.bytes(v);
    }
    gaps_.push_back({e, base + forced + in_use + event.other_bytes, needed});
  }
}

/// What forward itself holds, and what can only be kept.
std::int64_t Bounds::forward_bytes() const {
  std::vector<std::int64_t> change(index_.operations + 1, 0);
  for (std::int32_t v = 0; v < index_.values; ++v) {
    const auto& value = index_.graph.values[v];
    change[value.made_by] += value.bytes;
    if (value.held_until < index_.operations && !is_forced(v)) {
      change[value.held_until + 1] -= value.bytes;
    }
  }
  std::int64_t level = index_.graph.base_bytes;
  std::int64_t most = 0;
  for (std::int32_t i = 0; i < index_.operations; ++i) {
    level += change[i];
    most = std::max(most, level + index_.graph.operations[i].temporary_bytes);
  }
  return most;
}

void Bounds::add_items() {
  for (std::int32_t i = 0; i < index_.operations; ++i) {
    double bytes = 0.0;
    for (const std::int32_t v : index_.graph.operations[i].outputs) {
      if (can_be_freed(v, -1)) bytes += static_cast<double>(index_.bytes(v));
    }
    if (bytes > 0.0) items_.push_back({i, index_.time_ms(i) / bytes});
  }
  std::stable_sort(items_.begin(), items_.end(),
                   [](const Item& a, const Item& b) { return a.price < b.price; });
}

/// Needed after the event, and made again by nothing but its own operation.
bool Bounds::can_be_freed(std::int32_t value, std::int32_t event) const {
  return !index_.is_permanent[value] && !is_forced(value) && index_.last_need[value] > event;
}

/// The bytes over the budget must be freed, fractions of an operation's outputs allowed. Values
/// that are needed at fewer moments only make an operation's price smaller than it is.
Bounds::Knapsack Bounds::knapsack(const Gap& gap, std::int64_t budget_bytes) const {
  std::int64_t over = gap.other_bytes + gap.needed_bytes - budget_bytes;
  Knapsack result{&gap, 0.0, 0.0};
  for (const auto& item : items_) {
    if (over <= 0) break;
    std::int64_t bytes = 0;
    for (const std::int32_t v : index_.graph.operations[item.operation].outputs) {
      if (can_be_freed(v, gap.event)) bytes += index_.bytes(v);
    }
    if (bytes == 0) continue;
    result.ms += item.price * static_cast<double>(std::min(bytes, over));
    result.price = item.price;
    over -= bytes;
  }
  return result;
}

}  // namespace reprise::detail
