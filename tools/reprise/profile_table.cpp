// SPDX-License-Identifier: Apache-2.0
#include "profile_table.h"

#include "fields.h"
#include "overview.h"
#include "table.h"
#include "text.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace reprise {
namespace {

constexpr const char* kNoLayer = "outside every layer";

double per_window(std::int64_t bytes, const ProfileSubject& subject) {
  return static_cast<double>(bytes) /
         static_cast<double>(std::max<std::int64_t>(subject.windows_per_pass, 1));
}

std::string percent_text(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? format_fixed(100.0 * static_cast<double>(part) / static_cast<double>(whole), 1)
                   : "-";
}

std::string recomputed_text(const TrainingProfile& profile, const LayerCost& layer) {
  if (layer.is_checkpointed) return "yes";
  return profile.checkpointing == Checkpointing::kAuto ? "in part" : "no";
}

std::string layer_table(const ProfileSubject& subject, const TrainingProfile& profile) {
  Table table({"layer", "saved [MB]", "per window [kB]", "kept if recomputed [MB]", "forward [ms]",
               "recompute [ms]", "MB per 1 % of the step", "recomputed", "why"});
  std::int64_t plain_bytes = 0;
  std::int64_t kept_bytes = 0;
  for (const LayerCost& layer : profile.layers) {
    plain_bytes += layer.plain_bytes;
    kept_bytes += layer.kept_bytes;
    table.add_row({layer.name, format_megabytes(layer.plain_bytes),
                   format_fixed(per_window(layer.plain_bytes, subject) / 1e3, 1),
                   format_megabytes(layer.kept_bytes), format_fixed(layer.forward_ms, 2),
                   format_fixed(layer.recompute_ms, 2),
                   format_fixed(layer.megabytes_per_percent(profile.plain_step_ms), 1),
                   recomputed_text(profile, layer), layer.reason});
  }
  table.add_row({"all", format_megabytes(plain_bytes),
                 format_fixed(per_window(plain_bytes, subject) / 1e3, 1),
                 format_megabytes(kept_bytes)});
  return table.text();
}

std::string breakdown_table(const TrainingProfile& profile) {
  Table table({"memory at the peak", "MB", "%"});
  const std::int64_t total = profile.at_peak.total();
  for (std::size_t i = 0; i < kMemoryCategories; ++i) {
    const std::int64_t bytes = profile.at_peak.bytes[i];
    table.add_row({to_string(static_cast<MemoryCategory>(i)), format_megabytes(bytes),
                   percent_text(bytes, total)});
  }
  table.add_row({"all", format_megabytes(total), percent_text(total, total)});
  return table.text();
}

std::string saved_table(const TrainingProfile& profile) {
  Table table({"saved activations at the peak", "MB", "%"});
  const std::int64_t total = profile.at_peak[MemoryCategory::kSavedActivations];
  for (const auto& [layer, bytes] : profile.at_peak.saved_by_layer) {
    table.add_row(
        {layer.empty() ? kNoLayer : layer, format_megabytes(bytes), percent_text(bytes, total)});
  }
  return table.text();
}

std::string step_text(const TrainingProfile& profile) {
  const double change = 100.0 * (profile.step_ms / profile.plain_step_ms - 1.0);
  const std::string added =
      profile.checkpointing == Checkpointing::kOff && profile.step_ms == profile.plain_step_ms
          ? ""
          : " (" + std::string(change < 0 ? "" : "+") + format_fixed(change, 1) + " %)";
  return "Peak     " + format_bytes(profile.peak_bytes) + ", in " + profile.peak_phase + ", " +
         format_fixed(profile.peak_ms, 1) + " ms after the step began\n" +  //
         "Average  " + format_bytes(static_cast<std::int64_t>(profile.average_bytes)) +
         " over the step; " + format_bytes(profile.start_bytes) + " before it\n" +  //
         "Outside  " + format_bytes(profile.outside_ledger_bytes) +
         " of resident memory that is no tensor's: code, the table, scratch memory of libraries\n" +
         "Refused  " + format_count(profile.out_of_memory_events) + " allocations\n" +  //
         "Step     " + format_fixed(profile.plain_step_ms, 1) + " ms without recomputation, " +
         format_fixed(profile.step_ms, 1) + " ms as asked for" + added + "\n";
}

// "saved_activations" of "saved activations".
std::string key_of(std::string name) {
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

nlohmann::ordered_json layers_json(const ProfileSubject& subject, const TrainingProfile& profile) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const LayerCost& layer : profile.layers) {
    list.push_back({{"name", layer.name},
                    {"plain_bytes", layer.plain_bytes},
                    {"bytes_per_window", per_window(layer.plain_bytes, subject)},
                    {"kept_bytes", layer.kept_bytes},
                    {"saved_bytes", layer.saved_bytes()},
                    {"forward_ms", layer.forward_ms},
                    {"recompute_ms", layer.recompute_ms},
                    {"megabytes_per_percent", layer.megabytes_per_percent(profile.plain_step_ms)},
                    {"recomputed", layer.is_checkpointed},
                    {"reason", layer.reason}});
  }
  return list;
}

nlohmann::ordered_json breakdown_json(const MemoryBreakdown& breakdown) {
  nlohmann::ordered_json document = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < kMemoryCategories; ++i) {
    document[key_of(to_string(static_cast<MemoryCategory>(i)))] = breakdown.bytes[i];
  }
  return document;
}

}  // namespace

std::string profile_text(const ProfileSubject& subject, const TrainingProfile& profile) {
  const TftOptions& model = subject.model;
  std::string text = "Profile of " + subject.file + ": encoder " +
                     std::to_string(model.encoder_length) + ", horizon " +
                     std::to_string(model.horizon) + ", hidden " +
                     std::to_string(model.hidden_size) + ", batch " +
                     format_count(profile.batch_size) + " windows";
  if (subject.windows_per_pass < profile.batch_size) {
    text += " in passes of " + format_count(subject.windows_per_pass);
  }
  text += ", checkpointing " + checkpointing_text(model) + ", " + std::to_string(subject.threads) +
          (subject.threads == 1 ? " thread" : " threads") + "\n\n";
  text += layer_table(subject, profile) + "\n" + breakdown_table(profile) + "\n";
  if (!profile.at_peak.saved_by_layer.empty()) {
    text += saved_table(profile) + "\n";
  }
  return text + step_text(profile);
}

nlohmann::ordered_json profile_json(const ProfileSubject& subject, const TrainingProfile& profile) {
  return {{"file", subject.file},
          {"batch_size", profile.batch_size},
          {"micro_batch_size", subject.windows_per_pass},
          {"checkpointing", to_string(profile.checkpointing)},
          {"checkpoint_layer", layer_choice_texts(subject.model.checkpoint_layers)},
          {"threads", subject.threads},
          {"layers", layers_json(subject, profile)},
          {"at_peak", breakdown_json(profile.at_peak)},
          {"saved_by_layer", profile.at_peak.saved_by_layer},
          {"peak_bytes", profile.peak_bytes},
          {"peak_phase", profile.peak_phase},
          {"peak_ms", profile.peak_ms},
          {"average_bytes", profile.average_bytes},
          {"start_bytes", profile.start_bytes},
          {"outside_ledger_bytes", profile.outside_ledger_bytes},
          {"out_of_memory_events", profile.out_of_memory_events},
          {"plain_step_ms", profile.plain_step_ms},
          {"step_ms", profile.step_ms}};
}

}  // namespace reprise
