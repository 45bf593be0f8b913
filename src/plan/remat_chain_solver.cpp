// SPDX-License-Identifier: Apache-2.0
#include "plan/remat_chain_solver.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <unordered_map>

#include "plan/remat_costs.h"
#include "plan/remat_gap.h"

namespace reprise::detail {
namespace {

constexpr float kImpossible = 1e30F;
constexpr std::int32_t kSlots = 128;
constexpr std::int32_t kFineness = 16;  // of forward's own pass, where many values add up
constexpr double kMostForwardWork = 2.5e8;

/// Numbers of segments of equal stages are equal; `kinds` are those of the stages.
std::vector<std::int32_t> segment_numbers(const std::vector<std::int32_t>& kinds,
                                          std::int32_t& count) {
  const auto stages = static_cast<std::int32_t>(kinds.size());
  const std::int32_t cuts = stages + 1;
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(cuts) * cuts, kNone);
  std::unordered_map<std::int64_t, std::int32_t> known;
  count = 0;
  for (std::int32_t length = 1; length <= stages; ++length) {
    for (std::int32_t first = 0; first + length <= stages; ++first) {
      const std::size_t row = static_cast<std::size_t>(first) * cuts;
      const std::int64_t shorter = length == 1 ? -1 : numbers[row + first + length - 1];
      const std::int64_t key = (shorter + 1) * stages + kinds[first + length - 1];
      const auto [it, is_new] = known.try_emplace(key, count);
      if (is_new) ++count;
      numbers[row + first + length] = it->second;
    }
  }
  return numbers;
}

}  // namespace

ChainSolver::ChainSolver(const RematIndex& index, const Chain& chain, const ChainCosts& costs,
                         std::int64_t most_bytes, std::int64_t needed_bytes)
    : index_(index), chain_(chain), costs_(costs), needed_bytes_(needed_bytes) {
  choose_slot(most_bytes);
  // What is pinned counts where it is made, so that a segment may have that much more.
  const std::int64_t table_bytes = needed_bytes + costs.pinned_bytes.back();
  most_slots_ =
      static_cast<std::int32_t>(std::min(most_bytes / slot_bytes_, table_bytes / slot_bytes_ + 1));
  number_segments();
  const std::int32_t stages = chain_.stages();
  forward_.assign(stages, Costs(most_slots_ * fineness_ + 1, kImpossible));
  for (std::int32_t first = stages - 1; first >= 0; --first) solve_forward(first);
}

double ChainSolver::work(const RematIndex& index, const Chain& chain) {
  std::int32_t count = 0;
  const auto numbers = segment_numbers(stage_kinds(index, chain), count);
  std::vector<char> is_counted(count, 0);
  const std::int32_t cuts = chain.stages() + 1;
  double work = 0.0;
  for (std::int32_t first = 0; first < cuts; ++first) {
    for (std::int32_t end = first + 1; end < cuts; ++end) {
      const std::int32_t number = numbers[static_cast<std::size_t>(first) * cuts + end];
      if (is_counted[number]) continue;
      is_counted[number] = 1;
      work += static_cast<double>(end - first) * kSlots;
    }
  }
  return work;
}

/// Equal sizes lose least where the slot divides them.
void ChainSolver::choose_slot(std::int64_t most_bytes) {
  std::int64_t common = 0;
  for (const auto& value : index_.graph.values) common = std::gcd(common, value.bytes);
  for (const auto& operation : index_.graph.operations) {
    common = std::gcd(common, operation.temporary_bytes);
  }
  for (const auto& event : index_.graph.events) common = std::gcd(common, event.other_bytes);
  common = std::gcd(common, index_.graph.first_bytes);
  if (common > 0 && most_bytes / common <= kSlots) {
    slot_bytes_ = common;
  } else {
    const std::int64_t least = std::max<std::int64_t>(1, most_bytes / kSlots + 1);
    double least_loss = std::numeric_limits<double>::max();
    for (std::int64_t i = 0; i < 32; ++i) {
      const std::int64_t slot = least + least * i / 64;
      double loss = 0.0;
      for (const auto& value : index_.graph.values) {
        if (value.bytes * 4 < slot) continue;  // lost in any case
        loss += static_cast<double>((value.bytes + slot - 1) / slot * slot - value.bytes);
      }
      if (loss >= least_loss) continue;
      least_loss = loss;
      slot_bytes_ = slot;
    }
    const double pairs = 0.5 * chain_.stages() * chain_.stages();
    fineness_ = kFineness;
    if (pairs * fineness_ * kSlots > kMostForwardWork) fineness_ = 1;
  }
  slots_per_byte_ = 1.0 / static_cast<double>(slot_bytes_);
}

std::int32_t ChainSolver::slots(std::int64_t bytes) const {
  // A division of integers would take as long as the inner loop.
  auto count = static_cast<std::int64_t>(static_cast<double>(bytes) * slots_per_byte_);
  while (count * slot_bytes_ < bytes) ++count;
  while (count > 0 && (count - 1) * slot_bytes_ >= bytes) --count;
  return static_cast<std::int32_t>(std::min<std::int64_t>(count, most_slots_ + 1));
}

std::int32_t ChainSolver::fine_slots(std::int64_t bytes) const {
  const std::int64_t most = std::int64_t{most_slots_} * fineness_;
  const std::int64_t count = bytes / slot_bytes_ * fineness_ +
                             (bytes % slot_bytes_ * fineness_ + slot_bytes_ - 1) / slot_bytes_;
  return static_cast<std::int32_t>(std::min(count, most + 1));
}

/// What is there for a segment in forward's own pass. The values that can only be kept count where
/// they are made before it.
std::int32_t ChainSolver::segment_slots(std::int32_t end_cut, std::int32_t fine_slots) const {
  const std::int64_t freed = costs_.pinned_bytes.back() - costs_.pinned_bytes[end_cut];
  const std::int64_t all = fine_slots / fineness_ + freed / slot_bytes_;
  return static_cast<std::int32_t>(std::min<std::int64_t>(all, most_slots_));
}

void ChainSolver::number_segments() {
  const std::int32_t stages = chain_.stages();
  std::int32_t count = 0;
  segment_number_ = segment_numbers(stage_kinds(index_, chain_), count);
  segments_.resize(count);
  ending_.resize(stages);
  for (const std::int64_t bytes : costs_.held_bytes) held_slots_.push_back(slots(bytes));
  // In this order the segments with the same end stay in the cache.
  for (std::int32_t end = 1; end <= stages; ++end) {
    for (std::int32_t first = end - 1; first >= 0; --first) {
      auto& segment = segments_[segment_number_[costs_.at(first, end)]];
      if (segment.costs.empty()) segment = solve_segment(first, end);
      ending_[first] = &segment;
    }
  }
}

const ChainSolver::Segment& ChainSolver::segment(std::int32_t first, std::int32_t end) const {
  return segments_[segment_number_[costs_.at(first, end)]];
}

/// With the values that cross `first` there: the time to run what is between the cuts as far as it
/// is needed, and again what backward of it needs.
ChainSolver::Segment ChainSolver::solve_segment(std::int32_t first, std::int32_t end) const {
  const std::int32_t count = most_slots_ + 1;
  Segment result{Costs(count, kImpossible), count, 0, kImpossible};
  float* costs = result.costs.data();
  if (end == first + 1) {
    const auto& nothing_kept = chain_.options[first].back();
    for (std::int32_t m = slots(nothing_kept.window_bytes); m < count; ++m) {
      costs[m] = static_cast<float>(nothing_kept.replay_ms);
    }
    find_range(result);
    return result;
  }
  add_options(first, end, costs);
  add_cuts(first, end, costs);
  for (std::int32_t m = 1; m < count; ++m) costs[m] = std::min(costs[m], costs[m - 1]);
  find_range(result);
  return result;
}

void ChainSolver::add_options(std::int32_t first, std::int32_t end, float* costs) const {
  const std::int64_t gap = bytes_in_gap_before(index_.graph, chain_.window[end]);
  const auto& later = segment(first + 1, end);
  for (const auto& option : chain_.options[first]) {
    const std::int32_t held = slots(option.held_bytes);
    const std::int32_t least =
        std::max({held + later.least, slots(option.run_bytes + gap), slots(option.window_bytes)});
    const std::int32_t enough = std::max(least, held + later.enough);
    improve(costs + least, later.costs.data() + (least - held),
            static_cast<float>(option.run_ms + option.replay_ms),
            std::min(most_slots_, enough) + 1 - least);
  }
}

void ChainSolver::add_cuts(std::int32_t first, std::int32_t end, float* costs) const {
  const std::int64_t gap = bytes_in_gap_before(index_.graph, chain_.window[end]);
  for (std::int32_t cut = first + 1; cut < end; ++cut) {
    const std::size_t pair = costs_.at(first, cut);
    const auto& later = *ending_[cut];
    const auto& again = segment(first, cut);
    const auto run_ms = static_cast<float>(costs_.run_ms[pair]);
    const std::int32_t held = held_slots_[pair];
    const std::int32_t least =
        std::max({held + later.least, again.least, slots(costs_.run_bytes[pair] + gap)});
    const std::int32_t enough = std::max({least, held + later.enough, again.enough});
    const std::int32_t stop = improvable_end(costs, least, std::min(most_slots_, enough) + 1,
                                             run_ms + later.least_ms + again.least_ms);
    if (stop <= least) continue;
    improve(costs + least, later.costs.data() + (least - held), again.costs.data() + least, run_ms,
            stop - least);
  }
}

void ChainSolver::find_range(Segment& segment) {
  const auto& costs = segment.costs;
  const auto begin = costs.begin();
  segment.least_ms = costs.back();
  segment.least = static_cast<std::int32_t>(
      std::partition_point(begin, costs.end(), [](float it) { return it >= kImpossible; }) - begin);
  segment.enough = static_cast<std::int32_t>(
      std::partition_point(begin, costs.end(), [&](float it) { return it > segment.least_ms; }) -
      begin);
}

ChainSolver::Choice ChainSolver::segment_choice(std::int32_t first, std::int32_t end,
                                                std::int32_t slot_count) const {
  Choice best{kImpossible, kNone, kNone};
  if (end == first + 1) return best;
  const std::int64_t gap = bytes_in_gap_before(index_.graph, chain_.window[end]);
  const auto& later = segment(first + 1, end);
  for (std::size_t i = 0; i < chain_.options[first].size(); ++i) {
    const auto& option = chain_.options[first][i];
    const std::int32_t held = slots(option.held_bytes);
    const std::int32_t least =
        std::max({held, slots(option.run_bytes + gap), slots(option.window_bytes)});
    if (slot_count < least) continue;
    const float cost =
        static_cast<float>(option.run_ms + option.replay_ms) + later.costs[slot_count - held];
    if (cost < best.cost) best = {cost, kNone, static_cast<std::int32_t>(i)};
  }
  for (std::int32_t cut = first + 1; cut < end; ++cut) {
    const std::size_t pair = costs_.at(first, cut);
    const std::int32_t held = slots(costs_.held_bytes[pair]);
    if (slot_count < std::max(held, slots(costs_.run_bytes[pair] + gap))) continue;
    const float cost = static_cast<float>(costs_.run_ms[pair]) +
                       segment(cut, end).costs[slot_count - held] +
                       segment(first, cut).costs[slot_count];
    if (cost < best.cost) best = {cost, cut, kNone};
  }
  return best;
}

void ChainSolver::solve_forward(std::int32_t first) {
  auto& costs = forward_[first];
  const auto count = static_cast<std::int32_t>(costs.size());
  const bool is_last = first + 1 == chain_.stages();
  for (const auto& option : chain_.options[first]) {
    const std::int32_t held = is_last ? 0 : fine_slots(option.held_bytes);
    const std::int32_t least = std::max(held, least_forward_slots(first, first + 1, option));
    const auto added = static_cast<float>(option.replay_ms);
    if (least >= count) continue;
    if (is_last) {
      for (std::int32_t m = least; m < count; ++m) costs[m] = std::min(costs[m], added);
    } else {
      improve(costs.data() + least, forward_[first + 1].data() + (least - held), added,
              count - least);
    }
  }
  for (std::int32_t cut = first + 1; cut < chain_.stages(); ++cut) {
    const std::size_t pair = costs_.at(first, cut);
    const std::int32_t held = fine_slots(costs_.held_bytes[pair]);
    std::int32_t m = std::max(held, fine_slots(costs_.forward_bytes[pair]));
    const auto& again = segment(first, cut).costs;
    const float* later = forward_[cut].data();
    const std::int32_t freed = segment_slots(cut, 0);
    const std::int32_t stop =
        improvable_end(costs.data(), m, count, forward_[cut].back() + again.back());
    if (fineness_ == 1 && m + freed < stop) {
      improve(costs.data() + m, later + (m - held), again.data() + (m + freed), 0.0F,
              stop - freed - m);
      m = stop - freed;
    }
    while (m < stop) {
      const std::int32_t end = std::min(stop, (m / fineness_ + 1) * fineness_);
      improve(costs.data() + m, later + (m - held), again[segment_slots(cut, m)], end - m);
      m = end;
    }
  }
  for (std::int32_t m = 1; m < count; ++m) costs[m] = std::min(costs[m], costs[m - 1]);
}

/// From which on an option of a stage is possible in forward's own pass.
std::int32_t ChainSolver::least_forward_slots(std::int32_t first, std::int32_t end_cut,
                                              const StageOption& option) const {
  const std::int64_t freed = costs_.pinned_bytes.back() - costs_.pinned_bytes[end_cut];
  const auto freed_slots = std::min<std::int64_t>(freed / slot_bytes_, most_slots_);
  const std::int64_t window = slots(option.window_bytes) - freed_slots;
  return static_cast<std::int32_t>(std::max<std::int64_t>(
      fine_slots(costs_.forward_bytes[costs_.at(first, end_cut)]), window * fineness_));
}

/// As `segment_choice`, but what forward runs costs nothing, and the segment ends the chain.
ChainSolver::Choice ChainSolver::forward_choice(std::int32_t first, std::int32_t slot_count) const {
  Choice best{kImpossible, kNone, kNone};
  const bool is_last = first + 1 == chain_.stages();
  for (std::size_t i = 0; i < chain_.options[first].size(); ++i) {
    const auto& option = chain_.options[first][i];
    const std::int32_t held = is_last ? 0 : fine_slots(option.held_bytes);
    if (slot_count < std::max(held, least_forward_slots(first, first + 1, option))) continue;
    const float cost = static_cast<float>(option.replay_ms) +
                       (is_last ? 0.0F : forward_[first + 1][slot_count - held]);
    if (cost < best.cost) best = {cost, kNone, static_cast<std::int32_t>(i)};
  }
  for (std::int32_t cut = first + 1; cut < chain_.stages(); ++cut) {
    const std::size_t pair = costs_.at(first, cut);
    const std::int32_t held = fine_slots(costs_.held_bytes[pair]);
    if (slot_count < std::max(held, fine_slots(costs_.forward_bytes[pair]))) continue;
    const float cost = forward_[cut][slot_count - held] +
                       segment(first, cut).costs[segment_slots(cut, slot_count)];
    if (cost < best.cost) best = {cost, cut, kNone};
  }
  return best;
}

std::optional<Schedule> ChainSolver::schedule(std::int64_t bytes) const {
  if (bytes < 0) return std::nullopt;
  struct Part {
    std::int32_t first;
    std::int32_t fine_slots;
    Choice choice;
  };
  const std::int64_t most = std::int64_t{most_slots_} * fineness_;
  const std::int64_t all =
      bytes / slot_bytes_ * fineness_ + bytes % slot_bytes_ * fineness_ / slot_bytes_;
  auto slot_count = static_cast<std::int32_t>(std::min(all, most));
  std::vector<Part> parts;
  for (std::int32_t first = 0; first < chain_.stages();) {
    const Choice choice = forward_choice(first, slot_count);
    if (choice.cost >= kImpossible) return std::nullopt;
    parts.push_back({first, slot_count, choice});
    if (choice.option != kNone) {
      slot_count -= fine_slots(chain_.options[first][choice.option].held_bytes);
      ++first;
    } else {
      slot_count -= fine_slots(costs_.held_bytes[costs_.at(first, choice.cut)]);
      first = choice.cut;
    }
  }
  Schedule schedule;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (part->choice.option != kNone) {
      write_option(chain_.options[part->first][part->choice.option], schedule);
    } else {
      write_segment(part->first, part->choice.cut,
                    segment_slots(part->choice.cut, part->fine_slots), schedule);
    }
  }
  return schedule;
}

void ChainSolver::write_option(const StageOption& option, Schedule& schedule) const {
  schedule.insert(schedule.end(), option.replays.begin(), option.replays.end());
}

void ChainSolver::write_segment(std::int32_t first, std::int32_t end, std::int32_t slot_count,
                                Schedule& schedule) const {
  if (end == first + 1) {
    write_option(chain_.options[first].back(), schedule);
    return;
  }
  const Choice choice = segment_choice(first, end, slot_count);
  const std::int32_t event = chain_.window[end];
  if (choice.option != kNone) {
    const auto& option = chain_.options[first][choice.option];
    for (const std::int32_t i : option.to_run) schedule.push_back({event, i});
    write_segment(first + 1, end, slot_count - slots(option.held_bytes), schedule);
    write_option(option, schedule);
    return;
  }
  for (const std::int32_t i : operations_between(index_, chain_, first, choice.cut)) {
    schedule.push_back({event, i});
  }
  const std::int32_t held = slots(costs_.held_bytes[costs_.at(first, choice.cut)]);
  write_segment(choice.cut, end, slot_count - held, schedule);
  write_segment(first, choice.cut, slot_count, schedule);
}

}  // namespace reprise::detail
