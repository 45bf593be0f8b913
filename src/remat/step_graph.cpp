// SPDX-License-Identifier: Apache-2.0
#include "remat/step_graph.h"

#include "memory/thread_labels.h"

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>

namespace reprise::detail {
namespace {

/// The position of an operation that changed `value` in place, where it may become one with the
/// operation that made it.
class GraphBuilder {
 public:
  GraphBuilder(const std::vector<Operation>& operations, const std::vector<Value>& values,
               const StepRecord& record)
      : operations_(operations),
        values_(values),
        record_(record),
        reads_(values.size(), 0),
        graph_value_(values.size(), kNone),
        compound_(operations.size(), kNone) {
    for (const auto& operation : operations) {
      std::unordered_set<ValueId> read;
      for (const auto& r : operation.reads) {
        if (r.value != kNone && read.insert(r.value).second) ++reads_[at(r.value)];
      }
    }
  }

  StepGraph build() {
    result_.tape_values = values_.size();
    freed_bytes_ = freed_bytes();
    result_.graph.base_bytes = record_.base_bytes - freed_bytes_;
    result_.graph.first_bytes = record_.first_bytes + freed_bytes_;
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      result_.signature.push_back(signature_of(operations_[i], values_));
      if (!merge(i)) add(i);
    }
    for (auto& operation : result_.graph.operations) {
      std::ranges::sort(operation.inputs);
      const auto repeated = std::ranges::unique(operation.inputs);
      operation.inputs.erase(repeated.begin(), repeated.end());
    }
    set_held_until();
    add_events();
    return std::move(result_);
  }

 private:
  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

  /// What operation `index` changes in place, if nobody else ever sees it as it was before.
  std::optional<ValueId> changed_by(std::size_t index) const {
    const auto& operation = operations_[index];
    if (operation.writes.size() != 1 || operation.writes[0].read == kNone) return std::nullopt;
    const auto& read = operation.reads[at(operation.writes[0].read)];
    if (read.value == kNone || values_[at(read.value)].made_by == kNone) return std::nullopt;
    if (reads_[at(read.value)] != 1 || record_.is_saved[at(read.value)]) return std::nullopt;
    return read.value;
  }

  bool merge(std::size_t index) {
    const auto changed = changed_by(index);
    if (!changed) return false;
    const auto target = compound_[at(values_[at(*changed)].made_by)];
    const auto& operation = operations_[index];
    // All that it reads must be there when the compound runs.
    const auto first = result_.operations[at(target)].front();
    for (const auto& read : operation.reads) {
      if (read.value == kNone || read.value == *changed) continue;
      if (values_[at(read.value)].made_by >= first) return false;
    }
    auto& compound = result_.graph.operations[at(target)];
    for (const auto& read : operation.reads) {
      if (read.value != *changed) add_input(compound, read);
    }
    compound.time_ms += operation.time_ms;
    compound.temporary_bytes = std::max(compound.temporary_bytes, record_.temporary_bytes[index]);
    compound_[index] = target;
    result_.operations[at(target)].push_back(static_cast<std::int32_t>(index));
    const auto value = graph_value_[at(*changed)];
    graph_value_[at(operation.writes[0].value)] = value;
    result_.values[at(value)] = operation.writes[0].value;
    return true;
  }

  void add(std::size_t index) {
    const auto& operation = operations_[index];
    compound_[index] = static_cast<std::int32_t>(result_.graph.operations.size());
    RematOperation added;
    added.name = operation.info->name;
    if (operation.layer != kNone) added.layer = layer_name(operation.layer);
    added.time_ms = operation.time_ms;
    added.temporary_bytes =
        record_.temporary_bytes[index] + record_.other_bytes[index] + freed_bytes_;
    for (const auto& read : operation.reads) add_input(added, read);
    for (const auto& write : operation.writes) {
      const auto value = static_cast<std::int32_t>(result_.graph.values.size());
      graph_value_[at(write.value)] = value;
      added.outputs.push_back(value);
      result_.values.push_back(write.value);
      result_.graph.values.push_back({.bytes = values_[at(write.value)].bytes,
                                      .made_by = compound_[index],
                                      .held_until = compound_[index]});
    }
    result_.graph.operations.push_back(std::move(added));
    result_.operations.push_back({static_cast<std::int32_t>(index)});
  }

  void add_input(RematOperation& operation, const Read& read) const {
    if (read.value != kNone && graph_value_[at(read.value)] != kNone)
      operation.inputs.push_back(graph_value_[at(read.value)]);
  }

  void set_held_until() {
    // The last operation of the graph that begins no later than one of the tape.
    std::vector<std::int32_t> last(operations_.size());
    std::int32_t latest = 0;
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      latest = std::max(latest, compound_[i]);
      last[i] = latest;
    }
    const auto count = static_cast<std::int32_t>(result_.graph.operations.size());
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (graph_value_[i] == kNone) continue;
      auto& value = result_.graph.values[at(graph_value_[i])];
      const auto until = record_.held_until[i];
      const auto held = until >= static_cast<std::int32_t>(operations_.size()) ? count
                        : until < 0                                            ? 0
                                                                               : last[at(until)];
      value.held_until = std::max(value.held_until, held);
      const bool is_last = result_.values[at(graph_value_[i])] == static_cast<ValueId>(i);
      if (is_last) value.can_be_kept = !record_.is_overwritten[i];
    }
  }

  void add_events() {
    for (const auto& event : record_.events) {
      result_.graph.events.push_back(
          {.kind = event.is_need ? RematEvent::Kind::kNeed : RematEvent::Kind::kRelease,
           .value = graph_value_[at(event.value)],
           .time_ms = event.time_ms,
           .other_bytes = event.other_bytes + freed_bytes_});
    }
  }

  /// What was in use before the step, and is freed in it: no part of the base.
  std::int64_t freed_bytes() const {
    std::int64_t least = std::min<std::int64_t>(0, record_.first_bytes);
    for (const auto bytes : record_.other_bytes) least = std::min(least, bytes);
    for (const auto& event : record_.events) least = std::min(least, event.other_bytes);
    return -least;
  }

  const std::vector<Operation>& operations_;
  const std::vector<Value>& values_;
  const StepRecord& record_;
  std::vector<std::int32_t> reads_;        // by value: operations that read it
  std::vector<std::int32_t> graph_value_;  // by value of the tape
  std::vector<std::int32_t> compound_;     // by operation of the tape
  std::int64_t freed_bytes_ = 0;
  StepGraph result_;
};

}  // namespace

std::uint64_t signature_of(const Operation& operation, const std::vector<Value>& values) {
  // FNV-1a, by words.
  std::uint64_t hash = 14695981039346656037U;
  const auto add = [&](std::uint64_t word) {
    hash = (hash ^ word) * 1099511628211U;
  };
  add(reinterpret_cast<std::uintptr_t>(operation.info));
  for (const auto& read : operation.reads) add(static_cast<std::uint64_t>(read.value + 1));
  for (const auto& write : operation.writes) {
    add(static_cast<std::uint64_t>(write.value));
    add(static_cast<std::uint64_t>(values[static_cast<std::size_t>(write.value)].bytes));
  }
  return hash;
}

StepGraph graph_of(const std::vector<Operation>& operations, const std::vector<Value>& values,
                   const StepRecord& record) {
  return GraphBuilder(operations, values, record).build();
}

}  // namespace reprise::detail
