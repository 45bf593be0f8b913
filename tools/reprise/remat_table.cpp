// SPDX-License-Identifier: Apache-2.0
#include "remat_table.h"

#include "table.h"
#include "text.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <utility>

namespace reprise {
namespace {

constexpr std::size_t kMostRows = 12;
constexpr const char* kNoLayer = "between layers";

// What a schedule does with the values of a layer.
struct LayerRow {
  std::string name;
  std::int64_t operations = 0;
  std::int64_t needed_bytes = 0;  // that backward reads
  std::int64_t kept_bytes = 0;
  std::int64_t replayed_operations = 0;
  double replay_ms = 0.0;
};

class LayerRows {
 public:
  explicit LayerRows(const RematGraph& graph) : graph_(graph) {
    for (const RematOperation& operation : graph.operations) {
      ++row(operation).operations;
    }
    std::vector<bool> is_needed(graph.values.size(), false);
    for (const RematEvent& event : graph.events) {
      is_needed[static_cast<std::size_t>(event.value)] = true;
    }
    for (std::size_t v = 0; v < is_needed.size(); ++v) {
      if (is_needed[v]) row_of_value(v).needed_bytes += graph.values[v].bytes;
    }
  }

  std::vector<LayerRow> of(const RematPlan& plan) && {
    for (const std::int32_t v : plan.kept) {
      const auto value = static_cast<std::size_t>(v);
      row_of_value(value).kept_bytes += graph_.values[value].bytes;
    }
    for (const RematAction& action : plan.actions) {
      if (action.kind != RematAction::Kind::kRun) continue;
      const RematOperation& operation = graph_.operations[static_cast<std::size_t>(action.index)];
      ++row(operation).replayed_operations;
      row(operation).replay_ms += operation.time_ms;
    }
    return std::move(rows_);
  }

 private:
  LayerRow& row(const RematOperation& operation) {
    const auto [entry, is_new] = index_.try_emplace(operation.layer, rows_.size());
    if (is_new) rows_.push_back({.name = operation.layer.empty() ? kNoLayer : operation.layer});
    return rows_[entry->second];
  }

  LayerRow& row_of_value(std::size_t value) {
    const auto made_by = static_cast<std::size_t>(graph_.values[value].made_by);
    return row(graph_.operations[made_by]);
  }

  const RematGraph& graph_;
  std::map<std::string, std::size_t> index_;
  std::vector<LayerRow> rows_;  // in the order of the forward pass
};

double plain_ms(const RematChoices& choices) {
  return choices.solution.forecast.forward_ms + choices.solution.forecast.backward_ms;
}

std::string curve_table(const RematChoices& choices) {
  Table table({"budget [MB]", "of the plain peak [%]", "recomputed [ms]", "of a plain step [%]"});
  const std::vector<RematPoint>& curve = choices.curve;
  const auto plain_bytes = static_cast<double>(curve.back().budget_bytes);
  const std::size_t rows = std::min(kMostRows, curve.size());
  for (std::size_t i = 0; i < rows; ++i) {
    const std::size_t place = rows == 1 ? 0 : i * (curve.size() - 1) / (rows - 1);
    const RematPoint& point = curve[place];
    table.add_row({format_megabytes(point.budget_bytes),
                   format_fixed(100.0 * static_cast<double>(point.budget_bytes) / plain_bytes, 1),
                   format_fixed(point.replay_ms, 2),
                   format_fixed(100.0 * point.replay_ms / plain_ms(choices), 1)});
  }
  return table.text();
}

std::string schedule_table(const RematChoices& choices) {
  Table table({"layer", "operators", "backward reads [MB]", "kept [MB]", "run again", "[ms]"});
  for (const LayerRow& row : LayerRows(choices.graph).of(choices.solution.plan)) {
    table.add_row({row.name, format_count(row.operations), format_megabytes(row.needed_bytes),
                   format_megabytes(row.kept_bytes), format_count(row.replayed_operations),
                   format_fixed(row.replay_ms, 2)});
  }
  return table.text();
}

std::string verdict_text(const RematChoices& choices) {
  const RematSolution& solution = choices.solution;
  const std::string budget = format_bytes(choices.budget_bytes);
  if (!choices.fits()) {
    return "No schedule fits into " + budget + ": the smallest budget found is " +
           format_bytes(solution.forecast.peak_bytes) + " (none is below " +
           format_bytes(solution.least_budget_bytes) + "). Its schedule:\n";
  }
  return "The schedule within " + budget +
         (choices.is_budget_given ? "" : ", half-way (--memory-budget chooses another)") +
         ": peak " + format_count(solution.forecast.peak_bytes) + " bytes, " +
         format_count(solution.forecast.replayed_operations) + " operators run again in " +
         format_fixed(solution.forecast.replay_ms, 2) + " ms (no schedule needs less than " +
         format_fixed(solution.least_replay_ms, 2) + ")\n";
}

nlohmann::ordered_json layers_json(const RematChoices& choices) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const LayerRow& row : LayerRows(choices.graph).of(choices.solution.plan)) {
    list.push_back({{"name", row.name},
                    {"operations", row.operations},
                    {"needed_bytes", row.needed_bytes},
                    {"kept_bytes", row.kept_bytes},
                    {"replayed_operations", row.replayed_operations},
                    {"replay_ms", row.replay_ms}});
  }
  return list;
}

}  // namespace

RematChoices choose_remat(std::int64_t batch_size, RematGraph graph, std::int64_t budget_bytes) {
  RematChoices choices{.batch_size = batch_size,
                       .graph = std::move(graph),
                       .budget_bytes = budget_bytes,
                       .is_budget_given = budget_bytes > 0};
  choices.curve = rematerialisation_curve(choices.graph);
  if (!choices.is_budget_given) {
    const std::int64_t least = choices.curve.front().budget_bytes;
    choices.budget_bytes = least + (choices.curve.back().budget_bytes - least) / 2;
  }
  choices.solution = plan_rematerialisation(choices.graph, choices.budget_bytes);
  if (!choices.solution.is_feasible) {
    // All budgets were tried for the curve.
    const std::int64_t smallest = choices.curve.front().budget_bytes;
    auto of_smallest = plan_rematerialisation(choices.graph, smallest);
    if (of_smallest.is_feasible) choices.solution = std::move(of_smallest);
  }
  return choices;
}

std::string remat_text(const RematChoices& choices) {
  return "With --checkpointing auto, passes of " + format_windows(choices.batch_size) + ": " +
         format_count(static_cast<std::int64_t>(choices.graph.operations.size())) +
         " operators, a plain step takes " + format_fixed(plain_ms(choices), 1) + " ms\n" +
         curve_table(choices) + "\n" + verdict_text(choices) + schedule_table(choices);
}

nlohmann::ordered_json remat_json(const RematChoices& choices) {
  const RematSolution& solution = choices.solution;
  nlohmann::ordered_json curve = nlohmann::ordered_json::array();
  for (const RematPoint& point : choices.curve) {
    curve.push_back({{"budget_bytes", point.budget_bytes}, {"replay_ms", point.replay_ms}});
  }
  return {{"batch_size", choices.batch_size},
          {"operations", choices.graph.operations.size()},
          {"plain_step_ms", plain_ms(choices)},
          {"curve", curve},
          {"budget_bytes", choices.budget_bytes},
          {"fits", choices.fits()},
          {"predicted_peak_bytes", solution.forecast.peak_bytes},
          {"predicted_replay_ms", solution.forecast.replay_ms},
          {"replayed_operations", solution.forecast.replayed_operations},
          {"least_replay_ms", solution.least_replay_ms},
          {"smallest_budget_bytes", choices.curve.front().budget_bytes},
          {"least_budget_bytes", solution.least_budget_bytes},
          {"layers", layers_json(choices)}};
}

}  // namespace reprise
