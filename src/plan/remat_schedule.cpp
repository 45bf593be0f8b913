// SPDX-License-Identifier: Apache-2.0
#include "plan/remat_schedule.h"

#include <algorithm>

#include "plan/remat_gap.h"

namespace reprise::detail {
namespace {

/// Goes backwards through the window, so that every use is seen before what makes the value.
class TimelineBuilder {
 public:
  TimelineBuilder(const RematIndex& index, const Schedule& schedule, const Window& window)
      : index_(index),
        schedule_(schedule),
        window_(window),
        open_(index.values, kNone),
        in_use_(index.values, 0) {
    first_gap_ = window.has_forward ? index.operations : 0;
    const auto events = static_cast<std::size_t>(window.end_event - window.first_event);
    moments_ = first_gap_ + 1 + static_cast<std::int32_t>(events + schedule.size());
    line_.level.assign(moments_ + 1, 0);
    line_.is_useful.assign(schedule.size(), 0);
    line_.replay_moment.assign(schedule.size(), 0);
    line_.event_moment.assign(events, 0);
    line_.uses.reserve(events + 2 * schedule.size());
  }

  Timeline build() {
    assign_moments();
    auto replay = static_cast<std::int32_t>(schedule_.size()) - 1;
    for (std::int32_t event = window_.end_event - 1; event >= window_.first_event; --event) {
      // Replays after the last event make nothing that is used.
      while (replay >= 0 && schedule_[replay].before_event > event) --replay;
      visit_event(event);
      for (; replay >= 0 && schedule_[replay].before_event == event; --replay) {
        visit_replay(replay);
      }
    }
    close_at_start();
    sum_levels();
    return std::move(line_);
  }

 private:
  void assign_moments() {
    std::int32_t moment = first_gap_;
    std::size_t replay = 0;
    add(moment, moment, bytes_in_gap_before(index_.graph, window_.first_event));
    for (std::int32_t event = window_.first_event; event < window_.end_event; ++event) {
      for (; replay < schedule_.size() && schedule_[replay].before_event <= event; ++replay) {
        line_.replay_moment[replay] = ++moment;
      }
      line_.event_moment[event - window_.first_event] = ++moment;
      add(moment, moment, index_.graph.events[event].other_bytes);
    }
    for (; replay < schedule_.size(); ++replay) line_.replay_moment[replay] = ++moment;
  }

  /// `level` holds differences until they are summed.
  void add(std::int32_t first, std::int32_t last, std::int64_t bytes) {
    if (first > last) return;
    line_.level[first] += bytes;
    line_.level[last + 1] -= bytes;
  }

  bool is_tracked(std::int32_t value) const {
    return value >= window_.first_value && !index_.is_permanent[value];
  }

  void visit_event(std::int32_t event) {
    const auto& it = index_.graph.events[event];
    if (!is_tracked(it.value)) return;
    if (it.kind == RematEvent::Kind::kRelease) {
      ++in_use_[it.value];
      return;
    }
    const std::int32_t release = index_.release_of[event];
    const std::int32_t moment = line_.event_moment[event - window_.first_event];
    const std::int32_t until = release < window_.end_event
                                   ? line_.event_moment[release - window_.first_event] - 1
                                   : moments_ - 1;
    if (release < window_.end_event) --in_use_[it.value];
    use(it.value, {moment, std::max(moment, until), event, kNone, kNone});
  }

  void visit_replay(std::int32_t replay) {
    const auto& operation = index_.graph.operations[schedule_[replay].operation];
    const std::int32_t moment = line_.replay_moment[replay];
    std::int64_t unused_bytes = 0;
    for (const std::int32_t value : operation.outputs) {
      if (open_[value] == kNone || in_use_[value] > 0) {
        unused_bytes += index_.bytes(value);
        if (open_[value] != kNone) line_.duplicates.push_back({replay, value});
        continue;
      }
      line_.is_useful[replay] = 1;
      close(value, replay, moment);
    }
    if (line_.is_useful[replay] == 0) return;
    line_.replay_ms += operation.time_ms;
    add(moment, moment,
        unused_bytes + operation.temporary_bytes +
            bytes_in_gap_before(index_.graph, schedule_[replay].before_event));
    for (const std::int32_t value : operation.inputs) {
      if (is_tracked(value)) use(value, {moment, moment, kNone, replay, kNone});
    }
  }

  void use(std::int32_t value, ValueUse use) {
    if (open_[value] == kNone) {
      open_[value] = static_cast<std::int32_t>(line_.holdings.size());
      line_.holdings.push_back({value, kForward, 0, use.until, kNone});
    }
    auto& holding = line_.holdings[open_[value]];
    use.next = holding.first_use;
    holding.first_use = static_cast<std::int32_t>(line_.uses.size());
    holding.end = std::max(holding.end, use.until);
    line_.uses.push_back(use);
  }

  void close(std::int32_t value, std::int32_t replay, std::int32_t moment) {
    auto& holding = line_.holdings[open_[value]];
    holding.replay = replay;
    holding.start = moment;
    add(moment, holding.end, index_.bytes(value));
    open_[value] = kNone;
  }

  void close_at_start() {
    for (std::int32_t value = 0; value < index_.values; ++value) {
      if (open_[value] == kNone) continue;
      const auto& it = index_.graph.values[value];
      line_.is_valid = line_.is_valid && it.can_be_kept;
      const std::int32_t end = line_.holdings[open_[value]].end;
      close(value, kForward, window_.has_forward ? it.made_by : 0);
      if (window_.has_forward) add(it.made_by, std::min(it.held_until, end), -it.bytes);
    }
    if (window_.has_forward) add_forward();
  }

  /// What forward itself holds.
  void add_forward() {
    for (const auto& value : index_.graph.values) {
      const bool is_for_good = value.held_until == index_.operations;
      add(value.made_by, is_for_good ? moments_ - 1 : value.held_until, value.bytes);
    }
    for (std::int32_t i = 0; i < index_.operations; ++i) {
      add(i, i, index_.graph.operations[i].temporary_bytes);
    }
    line_.level[0] += index_.graph.base_bytes;
  }

  void sum_levels() {
    for (std::int32_t i = 0; i < moments_; ++i) {
      if (i > 0) line_.level[i] += line_.level[i - 1];
      line_.peak_bytes = std::max(line_.peak_bytes, line_.level[i]);
    }
    line_.level.pop_back();
  }

  const RematIndex& index_;
  const Schedule& schedule_;
  const Window& window_;
  std::int32_t first_gap_ = 0;  // moment
  std::int32_t moments_ = 0;
  std::vector<std::int32_t> open_;    // per value: holding that is used later
  std::vector<std::int32_t> in_use_;  // per value: needs that are released later
  Timeline line_;
};

/// Actions of a plan, from its timeline.
class PlanWriter {
 public:
  PlanWriter(const RematIndex& index, const Schedule& schedule)
      : index_(index),
        schedule_(schedule),
        line_(lay_out(index, schedule, whole_step(index))),
        there_after_replay_(schedule.size()),
        dropped_by_replay_(schedule.size()),
        dropped_by_event_(index.events) {}

  RematPlan write() {
    for (const auto& holding : line_.holdings) end(holding);
    for (const auto& it : line_.duplicates) there_after_replay_[it.replay].push_back(it.value);
    std::sort(plan_.kept.begin(), plan_.kept.end());
    std::size_t replay = 0;
    for (std::int32_t event = 0; event <= index_.events; ++event) {
      if (event > 0) drop(dropped_by_event_[event - 1], event);
      for (; replay < schedule_.size() && schedule_[replay].before_event == event; ++replay) {
        if (line_.is_useful[replay]) run(replay, event);
      }
    }
    return std::move(plan_);
  }

 private:
  void end(const Holding& holding) {
    if (holding.replay == kForward) plan_.kept.push_back(holding.value);
    std::int32_t last = holding.first_use;
    while (line_.uses[last].next != kNone) last = line_.uses[last].next;
    const auto& use = line_.uses[last];
    auto& drops =
        use.event == kNone ? dropped_by_replay_[use.replay] : dropped_by_event_[use.event];
    drops.push_back(holding.value);
    if (holding.replay != kForward) there_after_replay_[holding.replay].push_back(holding.value);
  }

  void run(std::size_t replay, std::int32_t event) {
    const std::int32_t operation = schedule_[replay].operation;
    plan_.actions.push_back({event, RematAction::Kind::kRun, operation});
    auto& drops = dropped_by_replay_[replay];
    for (const std::int32_t value : index_.graph.operations[operation].outputs) {
      const auto& there = there_after_replay_[replay];
      const bool is_used = std::find(there.begin(), there.end(), value) != there.end();
      if (!is_used && !index_.is_permanent[value]) drops.push_back(value);
    }
    drop(drops, event);
  }

  void drop(std::vector<std::int32_t>& values, std::int32_t event) {
    std::sort(values.begin(), values.end());
    for (const std::int32_t value : values) {
      plan_.actions.push_back({event, RematAction::Kind::kDrop, value});
    }
  }

  const RematIndex& index_;
  const Schedule& schedule_;
  Timeline line_;
  std::vector<std::vector<std::int32_t>> there_after_replay_;  // values that are used
  std::vector<std::vector<std::int32_t>> dropped_by_replay_;
  std::vector<std::vector<std::int32_t>> dropped_by_event_;
  RematPlan plan_;
};

}  // namespace

Window whole_step(const RematIndex& index) {
  return {0, index.events, 0, true};
}

Timeline lay_out(const RematIndex& index, const Schedule& schedule, const Window& window) {
  return TimelineBuilder(index, schedule, window).build();
}

Schedule without_useless(const Schedule& schedule, const Timeline& timeline) {
  Schedule useful;
  for (std::size_t i = 0; i < schedule.size(); ++i) {
    if (timeline.is_useful[i]) useful.push_back(schedule[i]);
  }
  return useful;
}

RematPlan to_plan(const RematIndex& index, const Schedule& schedule) {
  return PlanWriter(index, schedule).write();
}

}  // namespace reprise::detail
