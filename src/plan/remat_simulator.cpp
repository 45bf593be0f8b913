// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "plan/remat_gap.h"
#include "reprise/remat_plan.h"

namespace reprise {
namespace {

constexpr std::int32_t kNotThere = -1;

/// The copies of one value. A value that is made again while the backward pass still uses an
/// earlier copy takes its bytes twice.
struct Copies {
  std::int32_t made = 0;                  // number of the next copy
  std::int32_t there = kNotThere;         // copy that the plan holds
  std::vector<std::int32_t> in_use = {};  // copies that the pass holds, the longest held first

  bool uses(std::int32_t copy) const {
    return std::find(in_use.begin(), in_use.end(), copy) != in_use.end();
  }
};

class Simulator {
 public:
  Simulator(const RematGraph& graph, const RematPlan& plan)
      : graph_(graph),
        plan_(plan),
        is_kept_(graph.values.size(), false),
        copies_(graph.values.size()) {
    check_kept();
  }

  RematForecast run() {
    run_forward();
    auto action = plan_.actions.begin();
    for (std::int32_t event = 0; event < events(); ++event) {
      for (; action != plan_.actions.end() && action->before_event <= event; ++action) {
        perform(*action, event);
      }
      pass(event);
    }
    for (; action != plan_.actions.end(); ++action) perform(*action, events());
    forecast_.peak_bytes += graph_.base_bytes;
    return forecast_;
  }

 private:
  [[noreturn]] static void refuse(const std::string& what) {
    throw std::invalid_argument("simulate: " + what);
  }

  std::int32_t events() const { return static_cast<std::int32_t>(graph_.events.size()); }

  std::string name(std::int32_t operation) const {
    return "operation " + std::to_string(operation) + " (" + graph_.operations[operation].name +
           ")";
  }

  /// Forward has it, and nothing writes over it.
  bool is_permanent(std::int32_t value) const {
    const auto& it = graph_.values[value];
    return it.can_be_kept && it.held_until == static_cast<std::int32_t>(graph_.operations.size());
  }

  void check_kept() {
    std::int32_t previous = -1;
    for (const std::int32_t value : plan_.kept) {
      if (value <= previous || value >= static_cast<std::int64_t>(copies_.size())) {
        refuse("value " + std::to_string(value) + " cannot be kept: not there, or out of order");
      }
      if (!graph_.values[value].can_be_kept) {
        refuse("value " + std::to_string(value) + " cannot be kept: forward overwrites it");
      }
      is_kept_[value] = true;
      previous = value;
    }
  }

  void reach(std::int64_t other_bytes) {
    forecast_.peak_bytes = std::max(forecast_.peak_bytes, level_ + other_bytes);
  }

  void run_forward() {
    const auto count = static_cast<std::int32_t>(graph_.operations.size());
    std::vector<std::vector<std::int32_t>> ends(count + 1);
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      ends[graph_.values[i].held_until].push_back(static_cast<std::int32_t>(i));
    }
    for (std::int32_t i = 0; i < count; ++i) {
      const auto& operation = graph_.operations[i];
      for (const std::int32_t value : operation.outputs) level_ += graph_.values[value].bytes;
      reach(operation.temporary_bytes);
      for (const std::int32_t value : ends[i]) {
        if (!is_kept_[value]) level_ -= graph_.values[value].bytes;
      }
      forecast_.forward_ms += operation.time_ms;
    }
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      const auto value = static_cast<std::int32_t>(i);
      if (!is_kept_[i] && !is_permanent(value)) continue;
      copies_[i] = {1, 0};
      forecast_.kept_bytes += graph_.values[i].bytes;
    }
    reach(graph_.first_bytes);
  }

  void pass(std::int32_t index) {
    const auto& event = graph_.events[index];
    auto& copies = copies_[event.value];
    if (event.kind == RematEvent::Kind::kNeed) {
      if (copies.there == kNotThere) {
        refuse("event " + std::to_string(index) + " needs value " + std::to_string(event.value) +
               ", which is not there");
      }
      copies.in_use.push_back(copies.there);
    } else {
      const std::int32_t released = copies.in_use.front();
      copies.in_use.erase(copies.in_use.begin());
      free_unless_held(event.value, released);
    }
    reach(event.other_bytes);
    forecast_.backward_ms += event.time_ms;
  }

  void free_unless_held(std::int32_t value, std::int32_t copy) {
    const auto& copies = copies_[value];
    if (copies.there != copy && !copies.uses(copy)) level_ -= graph_.values[value].bytes;
  }

  void perform(const RematAction& action, std::int32_t next_event) {
    if (action.before_event < 0 || action.before_event != next_event) {
      refuse("an action before event " + std::to_string(action.before_event) +
             " is out of order, or there is no such event");
    }
    const bool is_run = action.kind == RematAction::Kind::kRun;
    const std::size_t known = is_run ? graph_.operations.size() : copies_.size();
    if (action.index < 0 || action.index >= static_cast<std::int64_t>(known)) {
      refuse(std::string("an action names ") + (is_run ? "operation " : "value ") +
             std::to_string(action.index) + " of " + std::to_string(known));
    }
    if (is_run) {
      run(action.index, detail::bytes_in_gap_before(graph_, next_event));
    } else {
      drop(action.index);
    }
  }

  void run(std::int32_t index, std::int64_t other_bytes) {
    const auto& operation = graph_.operations[index];
    if (!operation.can_run_again) refuse(name(index) + " cannot be run again");
    for (const std::int32_t value : operation.inputs) {
      if (copies_[value].there == kNotThere) {
        refuse(name(index) + " reads value " + std::to_string(value) + ", which is not there");
      }
    }
    std::int64_t duplicate_bytes = 0;
    for (const std::int32_t value : operation.outputs) {
      auto& copies = copies_[value];
      if (copies.there != kNotThere) {
        duplicate_bytes += graph_.values[value].bytes;
        continue;
      }
      copies.there = copies.made++;
      level_ += graph_.values[value].bytes;
    }
    reach(other_bytes + duplicate_bytes + operation.temporary_bytes);
    forecast_.replay_ms += operation.time_ms;
    ++forecast_.replayed_operations;
  }

  void drop(std::int32_t value) {
    auto& copies = copies_[value];
    if (copies.there == kNotThere) {
      refuse("value " + std::to_string(value) + " is dropped, but not there");
    }
    if (is_permanent(value)) {
      refuse("value " + std::to_string(value) + " is dropped, but forward holds it to the end");
    }
    const std::int32_t dropped = copies.there;
    copies.there = kNotThere;
    free_unless_held(value, dropped);
  }

  const RematGraph& graph_;
  const RematPlan& plan_;
  std::vector<bool> is_kept_;
  std::vector<Copies> copies_;
  std::int64_t level_ = 0;  // of all values
  RematForecast forecast_;
};

}  // namespace

RematForecast simulate(const RematGraph& graph, const RematPlan& plan) {
  return Simulator(graph, plan).run();
}

}  // namespace reprise
