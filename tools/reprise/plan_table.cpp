// SPDX-License-Identifier: Apache-2.0
#include "plan_table.h"

#include "table.h"
#include "text.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace reprise {
namespace {

// The batch whose total a row shows: one window where not even that fits.
std::int64_t shown_batch(const BatchChoice& choice) {
  return std::max<std::int64_t>(choice.largest_batch, 1);
}

std::string fit_table(const std::vector<TierPeaks>& tiers) {
  Table table({"tier", "its peaks are", "largest difference to a measured one [bytes]"});
  for (const TierPeaks& tier : tiers) {
    table.add_row({tier.tier,
                   tier.peaks.replays_events() ? "replayed, allocation by allocation"
                                               : "on a straight line above the measured ones",
                   format_count(tier.peaks.residual_bytes())});
  }
  return table.text();
}

std::string choice_table(const std::vector<TierPeaks>& tiers,
                         const std::vector<DevicePlan>& devices) {
  Table table({"device", "usable [MB]", "tier", "largest batch", "fixed [MB]", "per window [MB]",
               "total [MB]", "headroom [MB]", "recommended"});
  for (const DevicePlan& plan : devices) {
    for (std::size_t i = 0; i < plan.choices.size(); ++i) {
      const BatchChoice& choice = plan.choices[i];
      const PeakParts parts = tiers[i].peaks.parts(shown_batch(choice));
      table.add_row({plan.device.name, format_megabytes(plan.device.usable_bytes), choice.tier,
                     format_count(choice.largest_batch), format_megabytes(parts.fixed_bytes),
                     format_megabytes(parts.per_sample_bytes, 3),
                     format_megabytes(choice.total_bytes), format_megabytes(choice.headroom_bytes),
                     choice.is_recommended ? "yes" : ""});
    }
  }
  return table.text();
}

bool passes_table(const PlanSubject& subject, const std::vector<DevicePlan>& devices) {
  return std::any_of(devices.begin(), devices.end(), [&](const DevicePlan& plan) {
    return std::any_of(plan.choices.begin(), plan.choices.end(), [&](const BatchChoice& choice) {
      return choice.largest_batch > subject.train_windows;
    });
  });
}

nlohmann::ordered_json choice_json(const TierPeaks& tier, const BatchChoice& choice) {
  const PeakParts parts = tier.peaks.parts(shown_batch(choice));
  return {{"tier", choice.tier},
          {"largest_batch", choice.largest_batch},
          {"fixed_bytes", parts.fixed_bytes},
          {"bytes_per_window", parts.per_sample_bytes},
          {"total_bytes", choice.total_bytes},
          {"headroom_bytes", choice.headroom_bytes},
          {"wanted_bytes", choice.wanted_bytes},
          {"recommended", choice.is_recommended},
          {"reason", choice.reason}};
}

nlohmann::ordered_json device_json(const std::vector<TierPeaks>& tiers, const DevicePlan& plan) {
  nlohmann::ordered_json choices = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < plan.choices.size(); ++i) {
    choices.push_back(choice_json(tiers[i], plan.choices[i]));
  }
  return {{"device", plan.device.name},
          {"usable_bytes", plan.device.usable_bytes},
          {"recommendation", plan.recommendation},
          {"choices", choices}};
}

}  // namespace

std::string plan_text(const PlanSubject& subject, const std::vector<TierPeaks>& tiers,
                      const std::vector<DevicePlan>& devices) {
  std::string text = "Peak memory of all tensors of a training on " + subject.file +
                     ", from steps measured at small batches\n" + fit_table(tiers) +
                     "\nWindows that one forward and backward pass can take: fixed + per window x "
                     "batch = total\n" +
                     choice_table(tiers, devices) + "\nFor batches of " +
                     format_windows(subject.wanted_batch) + "\n";
  for (const DevicePlan& plan : devices) {
    text += "  " + plan.device.name + ": " + plan.recommendation + "\n";
  }
  if (passes_table(subject, devices)) {
    text += "The table has " + format_count(subject.train_windows) +
            " training windows: a larger batch takes no more than those.\n";
  }
  return text;
}

nlohmann::ordered_json plan_json(const PlanSubject& subject, const std::vector<TierPeaks>& tiers,
                                 const std::vector<DevicePlan>& devices) {
  nlohmann::ordered_json tier_list = nlohmann::ordered_json::array();
  for (const TierPeaks& tier : tiers) {
    tier_list.push_back({{"tier", tier.tier},
                         {"replays_events", tier.peaks.replays_events()},
                         {"residual_bytes", tier.peaks.residual_bytes()}});
  }
  nlohmann::ordered_json device_list = nlohmann::ordered_json::array();
  for (const DevicePlan& plan : devices) {
    device_list.push_back(device_json(tiers, plan));
  }
  return {{"file", subject.file},
          {"wanted_batch", subject.wanted_batch},
          {"train_windows", subject.train_windows},
          {"tiers", tier_list},
          {"devices", device_list}};
}

}  // namespace reprise
