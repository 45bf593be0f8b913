// SPDX-License-Identifier: Apache-2.0
#include "plan/remat_chain.h"

#include <algorithm>
#include <bit>
#include <map>

#include "plan/remat_gap.h"
#include "plan/remat_stage.h"

namespace reprise::detail {
namespace {

/// First and last event that needs any value before or after an operation.
struct Crossing {
  std::vector<std::int32_t> values;
  std::int32_t window = 0;
};

Crossing crossing_at(const RematIndex& index, std::int32_t cut) {
  Crossing crossing;
  std::int32_t later_needs_end = 0;  // event after the last need of what is made after the cut
  for (std::int32_t v = index.first_output[cut]; v < index.values; ++v) {
    if (index.is_chosen[v]) later_needs_end = std::max(later_needs_end, index.last_need[v] + 1);
  }
  crossing.window = index.events;
  for (std::int32_t v = 0; v < index.first_output[cut]; ++v) {
    if (!index.is_chosen[v]) continue;
    if (index.last_read[v] >= cut || index.first_need[v] < later_needs_end) {
      crossing.values.push_back(v);
    } else {
      crossing.window = std::min(crossing.window, index.first_need[v]);
    }
  }
  return crossing;
}

/// What must run from operation `begin` on, and when each value is used last, to have the values
/// that cross before operation `end`.
class BackwardClosure {
 public:
  BackwardClosure(const RematIndex& index, const std::vector<std::int32_t>& targets,
                  std::int32_t begin, std::int32_t end)
      : begin_(begin),
        first_value_(index.first_output[begin]),
        is_run_(end - begin, 0),
        last_use_(index.first_output[end] - first_value_, kNone) {
    for (const std::int32_t value : targets) want(index, value, end);
    for (std::int32_t i = end - 1; i >= begin; --i) {
      if (!is_run(i)) continue;
      for (const std::int32_t value : index.graph.operations[i].inputs) want(index, value, i);
    }
  }

  bool is_run(std::int32_t operation) const { return is_run_[operation - begin_] != 0; }

  /// Operation; `end`: the value crosses.
  std::int32_t last_use(std::int32_t value) const { return last_use_[value - first_value_]; }

 private:
  void want(const RematIndex& index, std::int32_t value, std::int32_t reader) {
    if (value < first_value_ || !index.is_chosen[value]) return;
    std::int32_t& last = last_use_[value - first_value_];
    last = std::max(last, reader);
    is_run_[index.graph.values[value].made_by - begin_] = 1;
  }

  std::int32_t begin_;
  std::int32_t first_value_;
  std::vector<char> is_run_;
  std::vector<std::int32_t> last_use_;
};

/// The costs from every earlier cut to one, by going back through the operations.
void add_runs_to(const RematIndex& index, const Chain& chain, std::int32_t second,
                 ChainCosts& costs) {
  const std::int32_t end = chain.cuts[second];
  const BackwardClosure closure(index, chain.crosses[second], 0, end);
  std::vector<std::int64_t> live(end + 1, 0);
  double run_ms = 0.0;
  std::int64_t most = 0;
  std::int64_t held = 0;
  std::int32_t first = second;
  for (std::int32_t i = end - 1; i >= 0; --i) {
    if (closure.is_run(i)) {
      const auto& operation = index.graph.operations[i];
      run_ms += operation.time_ms;
      for (const std::int32_t value : operation.outputs) {
        const std::int64_t bytes = index.bytes(value);
        const std::int32_t last = std::max(i, closure.last_use(value));
        for (std::int32_t k = i; k <= last && k < end; ++k) {
          live[k] += bytes;
          most = std::max(most, live[k]);
        }
        if (closure.last_use(value) == end) held += bytes;
      }
      live[i] += operation.temporary_bytes;
      most = std::max(most, live[i]);
    }
    while (first > 0 && chain.cuts[first - 1] == i) {
      --first;
      costs.run_ms[costs.at(first, second)] = run_ms;
      costs.run_bytes[costs.at(first, second)] = most;
      costs.held_bytes[costs.at(first, second)] = held;
    }
  }
}

/// What forward itself holds of the values made after a cut.
void add_forward_from(const RematIndex& index, const Chain& chain, std::int32_t first,
                      ChainCosts& costs) {
  std::vector<std::int64_t> ends(index.operations + 1, 0);
  std::int64_t level = 0;
  std::int64_t most = 0;
  std::int32_t second = first;
  for (std::int32_t i = chain.cuts[first]; i < index.operations; ++i) {
    const auto& operation = index.graph.operations[i];
    for (const std::int32_t value : operation.outputs) {
      if (!index.is_chosen[value]) continue;
      level += index.bytes(value);
      ends[index.graph.values[value].held_until] += index.bytes(value);
    }
    most = std::max(most, level + operation.temporary_bytes);
    level -= ends[i];
    if (chain.cuts[second + 1] == i + 1) costs.forward_bytes[costs.at(first, ++second)] = most;
  }
}

/// The last cut that each value crosses, as distance from the stage that makes it.
std::vector<std::int32_t> last_crossings(const RematIndex& index, const Chain& chain) {
  std::vector<std::int32_t> result(index.values, 0);
  for (std::int32_t cut = 0; cut <= chain.stages(); ++cut) {
    for (const std::int32_t value : chain.crosses[cut]) result[value] = cut;
  }
  return result;
}

std::int64_t bits(double number) {
  return std::bit_cast<std::int64_t>(number);
}

/// All that the solution of a stage depends on, relative to the stage.
std::vector<std::int64_t> description(const RematIndex& index, const Chain& chain,
                                      const std::vector<std::int32_t>& last_crossing,
                                      std::int32_t stage) {
  std::vector<std::int64_t> text;
  const std::int32_t first = index.first_output[chain.cuts[stage]];
  for (std::int32_t i = chain.cuts[stage]; i < chain.cuts[stage + 1]; ++i) {
    const auto& operation = index.graph.operations[i];
    text.insert(text.end(),
                {bits(operation.time_ms), operation.temporary_bytes, operation.can_run_again, -1});
    for (const std::int32_t value : operation.inputs) {
      // What is there anyway may be anywhere.
      if (index.is_chosen[value]) text.push_back(value - first);
    }
    text.push_back(index.values);
    for (const std::int32_t value : operation.outputs) {
      const bool crosses = index.is_chosen[value] && last_crossing[value] > stage;
      text.insert(text.end(), {index.bytes(value), index.is_chosen[value],
                               crosses ? last_crossing[value] - stage : 0});
    }
  }
  text.push_back(bytes_in_gap_before(index.graph, chain.window[stage + 1]));
  for (std::int32_t e = chain.window[stage + 1]; e < chain.window[stage]; ++e) {
    const auto& event = index.graph.events[e];
    const bool is_own = index.is_chosen[event.value] && event.value >= first;
    text.insert(text.end(), {event.kind == RematEvent::Kind::kNeed,
                             is_own ? event.value - first : -1, event.other_bytes});
  }
  return text;
}

}  // namespace

Chain make_chain(const RematIndex& index, std::vector<std::int32_t> cuts) {
  Chain chain;
  chain.cuts = std::move(cuts);
  for (const std::int32_t cut : chain.cuts) {
    Crossing crossing = crossing_at(index, cut);
    chain.crosses.push_back(std::move(crossing.values));
    chain.window.push_back(crossing.window);
  }
  return chain;
}

void add_options(const RematIndex& index, Chain& chain) {
  for (std::int32_t stage = 0; stage < chain.stages(); ++stage) {
    chain.options.push_back(
        stage_options(index, {chain.cuts[stage], chain.cuts[stage + 1], chain.window[stage + 1],
                              chain.window[stage], chain.crosses[stage + 1]}));
  }
}

ChainCosts chain_costs(const RematIndex& index, const Chain& chain) {
  ChainCosts costs;
  costs.cuts = chain.stages() + 1;
  const std::size_t pairs = static_cast<std::size_t>(costs.cuts) * costs.cuts;
  costs.run_ms.assign(pairs, 0.0);
  costs.run_bytes.assign(pairs, 0);
  costs.held_bytes.assign(pairs, 0);
  costs.forward_bytes.assign(pairs, 0);
  for (std::int32_t cut = 1; cut < costs.cuts; ++cut) add_runs_to(index, chain, cut, costs);
  for (std::int32_t cut = 0; cut + 1 < costs.cuts; ++cut) {
    add_forward_from(index, chain, cut, costs);
  }
  for (const std::int32_t cut : chain.cuts) {
    std::int64_t bytes = 0;
    for (std::int32_t v = 0; v < index.first_output[cut]; ++v) {
      if (index.is_pinned[v]) bytes += index.bytes(v);
    }
    costs.pinned_bytes.push_back(bytes);
  }
  return costs;
}

std::vector<std::int32_t> operations_between(const RematIndex& index, const Chain& chain,
                                             std::int32_t first, std::int32_t second) {
  const BackwardClosure closure(index, chain.crosses[second], chain.cuts[first],
                                chain.cuts[second]);
  std::vector<std::int32_t> operations;
  for (std::int32_t i = chain.cuts[first]; i < chain.cuts[second]; ++i) {
    if (closure.is_run(i)) operations.push_back(i);
  }
  return operations;
}

std::vector<std::int32_t> stage_kinds(const RematIndex& index, const Chain& chain) {
  const auto last_crossing = last_crossings(index, chain);
  std::map<std::vector<std::int64_t>, std::int32_t> kinds;
  std::vector<std::int32_t> result;
  for (std::int32_t stage = 0; stage < chain.stages(); ++stage) {
    const auto next = static_cast<std::int32_t>(kinds.size());
    result.push_back(
        kinds.try_emplace(description(index, chain, last_crossing, stage), next).first->second);
  }
  return result;
}

}  // namespace reprise::detail
