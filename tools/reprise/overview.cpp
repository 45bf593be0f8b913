// SPDX-License-Identifier: Apache-2.0
#include "overview.h"

#include "data/time_axis_internal.h"
#include "fields.h"
#include "text.h"

#include <nlohmann/json.hpp>

#include <filesystem>
#include <utility>

namespace reprise {
namespace {

std::string line(const std::string& label, const std::string& text) {
  const std::string padded =
      label.size() < 12 ? label + std::string(12 - label.size(), ' ') : label;
  return "  " + padded + text + "\n";
}

std::string split_text(const DataOptions& options) {
  if (options.train_until.empty()) {
    return "validation " + format_fixed(options.valid_fraction * 100, 0) + " %, test " +
           format_fixed(options.test_fraction * 100, 0) + " % of each series' rows";
  }
  return "train until " + options.train_until + ", validation until " + options.valid_until +
         (options.test_until.empty() ? "" : ", test until " + options.test_until);
}

std::string names_text(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 12;
  if (names.size() <= kShown) {
    return join(names);
  }
  const std::vector<std::string> first(names.begin(), names.begin() + kShown);
  return join(first) + ", ... (" + std::to_string(names.size()) + " in all)";
}

std::string budget_text(std::int64_t bytes) {
  return bytes > 0 ? ", memory budget " + format_bytes(bytes) : "";
}

const char* level_name(AuditFinding::Level level) {
  switch (level) {
    case AuditFinding::Level::kInfo:
      return "info";
    case AuditFinding::Level::kWarning:
      return "warning";
    case AuditFinding::Level::kError:
      return "error";
  }
  return "error";
}

}  // namespace

std::string frequency_text(const Schema& schema) {
  detail::TimeAxis axis;
  axis.unit = schema.time_unit;
  axis.zone = schema.time_zone;
  axis.frequency = schema.frequency;
  return axis.frequency_text();
}

std::string checkpointing_text(const TftOptions& model) {
  std::vector<std::string> texts = layer_choice_texts(model.checkpoint_layers);
  texts.insert(texts.begin(), to_string(model.checkpointing));
  return join(texts);
}

Overview describe(const std::string& file, const Dataset& dataset, const TftOptions& model) {
  const auto count = [&](Split split, std::int64_t stride) {
    return static_cast<std::int64_t>(dataset.windows(split, stride).size());
  };
  Overview overview;
  overview.file = std::filesystem::path(file).filename().string();
  overview.rows = dataset.row_count();
  overview.series = dataset.series_count();
  overview.schema = dataset.schema();
  overview.static_names = dataset.static_names();
  overview.historical_names = dataset.historical_names();
  overview.future_names = dataset.future_names();
  overview.windows = {count(Split::kTrain, 1), count(Split::kValid, 1),
                      count(Split::kTest, dataset.schema().options.horizon)};
  overview.findings = dataset.findings();
  overview.model = model;
  return overview;
}

std::string findings_text(const std::vector<AuditFinding>& findings) {
  std::string text;
  for (const AuditFinding& finding : findings) {
    text += std::string("  ") + level_name(finding.level) + ": " + finding.what +
            (finding.action.empty() ? "" : " -> " + finding.action) + "\n";
  }
  return text;
}

nlohmann::ordered_json findings_json(const std::vector<AuditFinding>& findings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const AuditFinding& finding : findings) {
    list.push_back(
        {{"level", level_name(finding.level)}, {"what", finding.what}, {"action", finding.action}});
  }
  return list;
}

std::string overview_text(const Overview& overview) {
  const DataOptions& options = overview.schema.options;
  const TftOptions& model = overview.model;
  const std::string zone =
      overview.schema.time_zone.empty() ? "" : ", time zone " + overview.schema.time_zone;
  std::string text = "Data: " + overview.file + ", " + format_count(overview.rows) + " rows, " +
                     format_count(overview.series) + " series\n";
  text += line("time", options.time + " (every " + frequency_text(overview.schema) + zone + ")");
  text += line("id", join(options.id));
  text += line("target",
               names_text(options.target) + " (normalised: " + to_string(options.normalize) + ")");
  text += line("static", names_text(overview.static_names));
  text += line("observed", names_text(options.observed));
  text += line("known", names_text(overview.future_names));
  text += line("split", split_text(options));
  text += line("windows", format_count(overview.windows.train) + " training, " +
                              format_count(overview.windows.valid) + " validation, " +
                              format_count(overview.windows.test) + " test (every " +
                              std::to_string(options.horizon) + " samples)");
  text += overview.findings.empty() ? line("findings", "none")
                                    : "Findings\n" + findings_text(overview.findings);
  text += "Model: " +
          (overview.parameters > 0 ? format_count(overview.parameters) + " parameters, "
                                   : std::string()) +
          "encoder " + std::to_string(model.encoder_length) + ", horizon " +
          std::to_string(model.horizon) + ", hidden " + std::to_string(model.hidden_size) +
          ", heads " + std::to_string(model.attention_heads) + ", checkpointing " +
          checkpointing_text(model) + budget_text(overview.memory_budget_bytes) + "\n";
  text += "  inputs      " + std::to_string(overview.static_names.size()) + " static, " +
          std::to_string(overview.historical_names.size()) + " historical, " +
          std::to_string(overview.future_names.size()) + " future\n";
  return text;
}

nlohmann::ordered_json overview_json(const Overview& overview) {
  const DataOptions& options = overview.schema.options;
  nlohmann::ordered_json document = {
      {"file", overview.file},
      {"rows", overview.rows},
      {"series", overview.series},
      {"frequency", frequency_text(overview.schema)},
      {"time_zone", overview.schema.time_zone},
      {"roles",
       {{"time", options.time},
        {"id", options.id},
        {"target", options.target},
        {"static", options.static_columns},
        {"known", options.known},
        {"observed", options.observed},
        {"calendar", options.calendar},
        {"lags", options.lags}}},
      {"inputs",
       {{"static", overview.static_names},
        {"historical", overview.historical_names},
        {"future", overview.future_names}}},
      {"split", split_text(options)},
      {"windows",
       {{"train", overview.windows.train},
        {"valid", overview.windows.valid},
        {"test", overview.windows.test}}},
      {"findings", findings_json(overview.findings)},
      {"model",
       {{"parameters", overview.parameters},
        {"encoder", overview.model.encoder_length},
        {"horizon", overview.model.horizon},
        {"hidden", overview.model.hidden_size},
        {"heads", overview.model.attention_heads},
        {"quantiles", overview.model.quantiles},
        {"checkpointing", to_string(overview.model.checkpointing)},
        {"checkpoint_layer", layer_choice_texts(overview.model.checkpoint_layers)}}}};
  if (overview.memory_budget_bytes > 0) {
    document["model"]["memory_budget_bytes"] = overview.memory_budget_bytes;
  }
  return document;
}

}  // namespace reprise
