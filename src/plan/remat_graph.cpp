// SPDX-License-Identifier: Apache-2.0
#include "plan/fnv1a.h"

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "reprise/remat_plan.h"

namespace reprise {
namespace {

// Far more than any step has, and far from where sums leave the range.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;

/// Every check names the graph's part that it is about.
class GraphCheck {
 public:
  explicit GraphCheck(const RematGraph& graph) : graph_(graph) {}

  void run() {
    check_bytes(graph_.base_bytes, "base_bytes");
    check_bytes(graph_.first_bytes, "first_bytes");
    for (std::size_t i = 0; i < graph_.values.size(); ++i) check_value(i);
    std::vector<bool> is_made(graph_.values.size(), false);
    for (std::size_t i = 0; i < graph_.operations.size(); ++i) check_operation(i, is_made);
    for (std::size_t i = 0; i < is_made.size(); ++i) {
      if (!is_made[i]) refuse("value " + text(i), "is no output of the operation that makes it");
    }
    check_events();
  }

 private:
  template <typename Index>
  static std::string text(Index number) {
    return std::to_string(number);
  }

  [[noreturn]] static void refuse(const std::string& part, const std::string& what) {
    throw std::invalid_argument("RematGraph: " + part + " " + what);
  }

  void check_bytes(std::int64_t bytes, const std::string& part) {
    if (bytes < 0) refuse(part, "is " + text(bytes) + " bytes");
    total_bytes_ += bytes;
    if (bytes > kMostBytes || total_bytes_ > kMostBytes) refuse(part, "brings over 2^60 bytes");
  }

  static void check_time(double time_ms, const std::string& part) {
    if (!std::isfinite(time_ms) || time_ms < 0.0) {
      refuse(part, "takes " + std::to_string(time_ms) + " ms");
    }
  }

  void check_value(std::size_t index) {
    const auto& value = graph_.values[index];
    const std::string part = "value " + text(index);
    const auto operations = static_cast<std::int64_t>(graph_.operations.size());
    check_bytes(value.bytes, part);
    if (value.made_by < 0 || value.made_by >= operations) {
      refuse(part, "is made by operation " + text(value.made_by) + " of " + text(operations));
    }
    if (index > 0 && value.made_by < graph_.values[index - 1].made_by) {
      refuse(part, "is made before value " + text(index - 1));
    }
    if (value.held_until < value.made_by || value.held_until > operations) {
      refuse(part, "is held until operation " + text(value.held_until));
    }
  }

  void check_operation(std::size_t index, std::vector<bool>& is_made) {
    const auto& operation = graph_.operations[index];
    const std::string part = "operation " + text(index) + " (" + operation.name + ")";
    const auto self = static_cast<std::int64_t>(index);
    check_time(operation.time_ms, part);
    check_bytes(operation.temporary_bytes, part);
    check_order(operation.inputs, part);
    check_order(operation.outputs, part);
    for (const std::int32_t input : operation.inputs) {
      const auto& value = graph_.values[input];
      if (value.made_by >= self) refuse(part, "reads value " + text(input) + ", made later");
      if (value.held_until < self) {
        refuse(part, "reads value " + text(input) + ", held until operation " +
                         text(value.held_until) + " only");
      }
    }
    for (const std::int32_t output : operation.outputs) {
      if (graph_.values[output].made_by != self) {
        refuse(part, "makes value " + text(output) + ", made by operation " +
                         text(graph_.values[output].made_by));
      }
      is_made[output] = true;
    }
  }

  void check_order(const std::vector<std::int32_t>& values, const std::string& part) const {
    std::int32_t previous = -1;
    for (const std::int32_t value : values) {
      check_index(value, part);
      if (value <= previous) refuse(part, "lists its values in no ascending order");
      previous = value;
    }
  }

  void check_index(std::int32_t value, const std::string& part) const {
    if (value < 0 || value >= static_cast<std::int64_t>(graph_.values.size())) {
      refuse(part, "names value " + text(value) + " of " + text(graph_.values.size()));
    }
  }

  void check_events() {
    const std::vector<bool> is_obtainable = obtainable_values();
    std::vector<std::int32_t> needs(graph_.values.size(), 0);
    for (std::size_t i = 0; i < graph_.events.size(); ++i) {
      const auto& event = graph_.events[i];
      const std::string part = "event " + text(i);
      check_time(event.time_ms, part);
      check_bytes(event.other_bytes, part);
      check_index(event.value, part);
      if (event.kind == RematEvent::Kind::kRelease) {
        if (needs[event.value]-- == 0) {
          refuse(part, "releases value " + text(event.value) + ", which is not in use");
        }
        continue;
      }
      ++needs[event.value];
      if (!is_obtainable[event.value]) {
        refuse(part, "needs value " + text(event.value) +
                         ", which can neither be kept nor be computed again");
      }
    }
  }

  std::vector<bool> obtainable_values() const {
    std::vector<bool> result(graph_.values.size());
    for (std::size_t i = 0; i < result.size(); ++i) {
      const auto& operation = graph_.operations[graph_.values[i].made_by];
      bool can_be_made = operation.can_run_again;
      for (const std::int32_t input : operation.inputs) can_be_made = can_be_made && result[input];
      result[i] = graph_.values[i].can_be_kept || can_be_made;
    }
    return result;
  }

  const RematGraph& graph_;
  std::int64_t total_bytes_ = 0;
};

}  // namespace

void RematGraph::validate() const {
  GraphCheck(*this).run();
}

std::uint64_t RematGraph::hash() const {
  detail::Fnv1a hash;
  hash.add(base_bytes);
  hash.add(first_bytes);
  hash.add(static_cast<std::int64_t>(operations.size()));
  for (const auto& operation : operations) {
    hash.add(operation.name);
    hash.add(operation.layer);
    hash.add(operation.temporary_bytes);
    hash.add(operation.inputs);
    hash.add(operation.outputs);
    hash.add(std::int64_t{operation.can_run_again});
  }
  hash.add(static_cast<std::int64_t>(values.size()));
  for (const auto& value : values) {
    hash.add(value.bytes);
    hash.add(std::int64_t{value.made_by});
    hash.add(std::int64_t{value.held_until});
    hash.add(std::int64_t{value.can_be_kept});
  }
  hash.add(static_cast<std::int64_t>(events.size()));
  for (const auto& event : events) {
    hash.add(std::int64_t{event.kind == RematEvent::Kind::kRelease});
    hash.add(std::int64_t{event.value});
    hash.add(event.other_bytes);
  }
  return hash.value();
}

}  // namespace reprise
