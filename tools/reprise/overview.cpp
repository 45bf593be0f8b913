// SPDX-License-Identifier: Apache-2.0
#include "overview.h"

#include "fields.h"
#include "text.h"

#include <nlohmann/json.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <utility>

namespace reprise {
namespace {

constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;

// Nanoseconds of one unit; 0 for a step, which has no duration.
std::int64_t nanoseconds(TimeUnit unit) {
  switch (unit) {
    case TimeUnit::kStep:
      return 0;
    case TimeUnit::kDay:
      return 86'400 * kNanosecondsPerSecond;
    case TimeUnit::kSecond:
      return kNanosecondsPerSecond;
    case TimeUnit::kMillisecond:
      return 1'000'000;
    case TimeUnit::kMicrosecond:
      return 1'000;
    case TimeUnit::kNanosecond:
      return 1;
  }
  return 0;
}

std::string counted(std::int64_t count, const std::string& unit) {
  return format_count(count) + " " + unit + (count == 1 ? "" : "s");
}

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
  if (schema.time_unit == TimeUnit::kStep) {
    return counted(schema.frequency, "step");
  }
  if (schema.frequency < 0) {
    const std::int64_t months = -schema.frequency;
    return months % 12 == 0 ? counted(months / 12, "year") : counted(months, "month");
  }
  const std::int64_t unit = nanoseconds(schema.time_unit);
  constexpr std::array<std::pair<std::int64_t, const char*>, 5> kUnits = {
      {{86'400 * kNanosecondsPerSecond, "d"},
       {3'600 * kNanosecondsPerSecond, "h"},
       {60 * kNanosecondsPerSecond, "min"},
       {kNanosecondsPerSecond, "s"},
       {1'000'000, "ms"}}};
  for (const auto& [size, name] : kUnits) {
    // In units of the larger of the two, so that a frequency of many days does not overflow.
    const bool is_multiple =
        unit >= size ? unit % size == 0 : schema.frequency % (size / unit) == 0;
    if (is_multiple) {
      const std::int64_t count =
          unit >= size ? schema.frequency * (unit / size) : schema.frequency / (size / unit);
      return format_count(count) + " " + name;
    }
  }
  return format_count(schema.frequency * unit) + " ns";
}

std::string time_text(TimeUnit unit, std::int64_t time) {
  if (unit == TimeUnit::kStep) {
    return std::to_string(time);
  }
  const std::int64_t per_second =
      unit == TimeUnit::kDay ? 1 : kNanosecondsPerSecond / nanoseconds(unit);
  const std::int64_t factor = unit == TimeUnit::kDay ? 86'400 : 1;
  std::int64_t seconds = time / per_second;
  std::int64_t fraction = time % per_second;
  if (fraction < 0) {
    --seconds;
    fraction += per_second;
  }
  using namespace std::chrono;
  const sys_seconds instant{std::chrono::seconds(seconds * factor)};
  const sys_days day = floor<days>(instant);
  const year_month_day date(day);
  const hh_mm_ss clock(instant - day);
  char buffer[80];
  int written = std::snprintf(
      buffer, sizeof buffer, "%04d-%02u-%02u %02d:%02d:%02d", static_cast<int>(date.year()),
      static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
      static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
      static_cast<int>(clock.seconds().count()));
  std::string text(buffer, static_cast<std::size_t>(written));
  if (fraction != 0) {
    written =
        std::snprintf(buffer, sizeof buffer, ".%09lld",
                      static_cast<long long>(fraction * (kNanosecondsPerSecond / per_second)));
    text.append(buffer, static_cast<std::size_t>(written));
    text.erase(text.find_last_not_of('0') + 1);
  }
  return text;
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
          to_string(model.checkpointing) + "\n";
  text += "  inputs      " + std::to_string(overview.static_names.size()) + " static, " +
          std::to_string(overview.historical_names.size()) + " historical, " +
          std::to_string(overview.future_names.size()) + " future\n";
  return text;
}

nlohmann::ordered_json overview_json(const Overview& overview) {
  const DataOptions& options = overview.schema.options;
  return {{"file", overview.file},
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
            {"checkpointing", to_string(overview.model.checkpointing)}}}};
}

}  // namespace reprise
