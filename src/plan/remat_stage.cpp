// SPDX-License-Identifier: Apache-2.0
#include "plan/remat_stage.h"

#include <algorithm>
#include <set>

namespace reprise::detail {
namespace {

constexpr std::size_t kMostGreedyValues = 24;  // of a stage; with more, they go in one order

class StageSolver {
 public:
  StageSolver(const RematIndex& index, const Stage& stage)
      : index_(index),
        stage_(stage),
        first_value_(index.first_output[stage.first_operation]),
        is_there_(index.first_output[stage.end_operation] - first_value_, 0) {
    for (std::int32_t e = stage.first_event; e < stage.end_event; ++e) {
      const auto& event = index.graph.events[e];
      if (event.kind == RematEvent::Kind::kNeed && event.value >= first_value_ &&
          index.is_chosen[event.value]) {
        needs_.push_back(e);
      }
    }
  }

  std::vector<StageOption> options() {
    std::vector<StageOption> options;
    std::vector<std::int32_t> kept = keepable();
    options.push_back(option(kept));
    while (!kept.empty()) {
      drop_cheapest(kept);
      options.push_back(option(kept));
    }
    return options;
  }

 private:
  std::vector<std::int32_t> keepable() const {
    std::set<std::int32_t> values;
    for (const std::int32_t e : needs_) {
      const std::int32_t value = index_.graph.events[e].value;
      if (index_.graph.values[value].can_be_kept) values.insert(value);
    }
    return {values.begin(), values.end()};
  }

  void drop_cheapest(std::vector<std::int32_t>& kept) {
    if (kept.size() > kMostGreedyValues) {
      // The largest: fewer options of a stage that is large are enough.
      kept.erase(std::max_element(kept.begin(), kept.end(), [&](auto a, auto b) {
        return index_.bytes(a) < index_.bytes(b);
      }));
      return;
    }
    std::size_t best = 0;
    double best_price = 0.0;
    const double now_ms = time_ms(replays(kept));
    for (std::size_t i = 0; i < kept.size(); ++i) {
      std::vector<std::int32_t> fewer = kept;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      const auto bytes = static_cast<double>(index_.bytes(kept[i]) + 1);
      const double price = (time_ms(replays(fewer)) - now_ms) / bytes;
      if (i == 0 || price < best_price) {
        best = i;
        best_price = price;
      }
    }
    kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(best));
  }

  double time_ms(const Schedule& schedule) const {
    double sum = 0.0;
    for (const auto& replay : schedule) sum += index_.time_ms(replay.operation);
    return sum;
  }

  /// At each need of what is not there: what makes it, which then stays for later needs.
  Schedule replays(const std::vector<std::int32_t>& kept) {
    std::fill(is_there_.begin(), is_there_.end(), 0);
    for (const std::int32_t value : kept) is_there_[value - first_value_] = 1;
    Schedule schedule;
    for (const std::int32_t event : needs_) {
      const std::int32_t value = index_.graph.events[event].value;
      for (const std::int32_t i :
           stage_closure(index_, stage_.first_operation, {value}, is_there_)) {
        schedule.push_back({event, i});
        for (const std::int32_t output : index_.graph.operations[i].outputs) {
          is_there_[output - first_value_] = 1;
        }
      }
    }
    return schedule;
  }

  StageOption option(const std::vector<std::int32_t>& kept) {
    StageOption option;
    option.kept = kept;
    option.replays = replays(kept);
    option.replay_ms = time_ms(option.replays);
    const Window window{stage_.first_event, stage_.end_event, first_value_, false};
    option.window_bytes = window.first_event < window.end_event
                              ? lay_out(index_, option.replays, window).peak_bytes
                              : 0;
    std::set<std::int32_t> held(kept.begin(), kept.end());
    for (const std::int32_t value : stage_.crosses) {
      if (value >= first_value_) held.insert(value);
    }
    for (const std::int32_t value : held) option.held_bytes += index_.bytes(value);
    run(option, {held.begin(), held.end()});
    return option;
  }

  void run(StageOption& option, const std::vector<std::int32_t>& targets) {
    std::fill(is_there_.begin(), is_there_.end(), 0);
    option.to_run = stage_closure(index_, stage_.first_operation, targets, is_there_);
    // All that is made stays: an upper bound, exact for a stage of one operation.
    std::int64_t made = 0;
    for (const std::int32_t i : option.to_run) {
      option.run_ms += index_.time_ms(i);
      for (const std::int32_t value : index_.graph.operations[i].outputs)
        made += index_.bytes(value);
      option.run_bytes =
          std::max(option.run_bytes, made + index_.graph.operations[i].temporary_bytes);
    }
  }

  const RematIndex& index_;
  const Stage& stage_;
  std::int32_t first_value_;
  std::vector<std::int32_t> needs_;  // events
  std::vector<char> is_there_;       // per value of the stage
};

}  // namespace

std::vector<std::int32_t> stage_closure(const RematIndex& index, std::int32_t first_operation,
                                        const std::vector<std::int32_t>& targets,
                                        const std::vector<char>& is_there) {
  const std::int32_t first_value = index.first_output[first_operation];
  std::set<std::int32_t> operations;
  std::vector<std::int32_t> open = targets;
  while (!open.empty()) {
    const std::int32_t value = open.back();
    open.pop_back();
    if (value < first_value || !index.is_chosen[value] || is_there[value - first_value]) continue;
    const std::int32_t operation = index.graph.values[value].made_by;
    if (!operations.insert(operation).second) continue;
    const auto& inputs = index.graph.operations[operation].inputs;
    open.insert(open.end(), inputs.begin(), inputs.end());
  }
  return {operations.begin(), operations.end()};
}

std::vector<StageOption> stage_options(const RematIndex& index, const Stage& stage) {
  return StageSolver(index, stage).options();
}

}  // namespace reprise::detail
