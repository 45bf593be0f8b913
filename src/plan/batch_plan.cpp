// SPDX-License-Identifier: Apache-2.0
#include "reprise/batch_plan.h"

#include <algorithm>
#include <stdexcept>

namespace reprise {
namespace {

constexpr std::int64_t kMegabyte = 1'000'000;

/// 11,000
std::string with_separators(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

/// What is needed is rounded up and what is there down, so that what does not fit reads so.
enum class Rounding { kUp, kDown };

/// Whole MB, tenths below 100 MB.
std::string megabytes(std::int64_t bytes, Rounding rounding) {
  const bool has_tenths = bytes < 100 * kMegabyte;
  const std::int64_t unit = has_tenths ? kMegabyte / 10 : kMegabyte;
  const bool is_rounded_up = rounding == Rounding::kUp && bytes % unit > 0;
  const std::int64_t units = bytes / unit + (is_rounded_up ? 1 : 0);
  if (!has_tenths) return with_separators(units);
  return std::to_string(units / 10) + "." + std::to_string(units % 10);
}

/// "4,120 of 11,000 MB"
std::string share(std::int64_t bytes, std::int64_t usable_bytes) {
  // Both up where it fits, so that the first is not the larger one.
  const auto rounding = bytes <= usable_bytes ? Rounding::kUp : Rounding::kDown;
  return megabytes(bytes, Rounding::kUp) + " of " + megabytes(usable_bytes, rounding) + " MB";
}

std::string samples(std::int64_t count) {
  return with_separators(count) + (count == 1 ? " sample" : " samples");
}

std::string how(const TierPeaks& tier) {
  return tier.recomputes ? "with " + tier.tier + " checkpointing" : "without recomputing anything";
}

void check(const std::vector<TierPeaks>& tiers, const std::vector<DeviceMemory>& devices,
           std::int64_t wanted_batch) {
  const auto refuse = [](const std::string& what) {
    throw std::invalid_argument("plan_batches: " + what);
  };
  if (tiers.empty()) refuse("there is no tier to choose from");
  if (wanted_batch < 1) {
    refuse("the wanted batch is " + std::to_string(wanted_batch) + ", not 1 or more");
  }
  for (const auto& device : devices) {
    if (device.usable_bytes < 0) {
      refuse("device " + device.name + " has " + std::to_string(device.usable_bytes) + " bytes");
    }
  }
}

/// The choices on one device, and the words about them.
class Planner {
 public:
  Planner(const std::vector<TierPeaks>& tiers, std::int64_t wanted_batch)
      : tiers_(tiers), wanted_(wanted_batch) {
    for (const auto& tier : tiers) {
      wanted_bytes_.push_back(tier.peaks.peak_bytes(wanted_batch));
      least_bytes_.push_back(tier.peaks.peak_bytes(1));
    }
  }

  DevicePlan plan(const DeviceMemory& device) const {
    DevicePlan plan{device, {}, ""};
    for (std::size_t i = 0; i < tiers_.size(); ++i) plan.choices.push_back(choose(i, device));
    const std::size_t best = recommended_choice(plan.choices, wanted_);
    for (std::size_t i = 0; i < tiers_.size(); ++i) {
      plan.choices[i].is_recommended = i == best;
      plan.choices[i].reason = reason(plan.choices[i], i, device);
    }
    plan.recommendation = best < tiers_.size() ? plan.choices[best].reason : least(device);
    return plan;
  }

 private:
  BatchChoice choose(std::size_t tier, const DeviceMemory& device) const {
    const auto& peaks = tiers_[tier].peaks;
    BatchChoice choice;
    choice.tier = tiers_[tier].tier;
    choice.largest_batch = peaks.largest_batch(device.usable_bytes);
    // Where blocks shrink with the batch, a larger one may fit than the largest that is known to.
    if (wanted_bytes_[tier] <= device.usable_bytes) {
      choice.largest_batch = std::max(choice.largest_batch, wanted_);
    }
    choice.total_bytes =
        choice.largest_batch > 0 ? peaks.peak_bytes(choice.largest_batch) : least_bytes_[tier];
    choice.headroom_bytes = device.usable_bytes - choice.total_bytes;
    choice.wanted_bytes = wanted_bytes_[tier];
    return choice;
  }

  std::string reason(const BatchChoice& choice, std::size_t tier,
                     const DeviceMemory& device) const {
    const std::string wanted = "batch " + with_separators(wanted_);
    if (choice.largest_batch >= wanted_) {
      return wanted + fits(choice, tier, device) + how(tiers_[tier]) + ": " +
             share(choice.wanted_bytes, device.usable_bytes);
    }
    if (choice.largest_batch == 0) {
      return "not even one sample fits " + how(tiers_[tier]) + ": it needs " +
             share(choice.total_bytes, device.usable_bytes);
    }
    if (choice.is_recommended) return accumulate(choice, tiers_[tier], device);
    return wanted + " does not fit " + how(tiers_[tier]) + ": it needs " +
           share(choice.wanted_bytes, device.usable_bytes) + ", " + samples(choice.largest_batch) +
           (choice.largest_batch == 1 ? " fits" : " fit");
  }

  std::string fits(const BatchChoice& choice, std::size_t tier, const DeviceMemory& device) const {
    if (!choice.is_recommended) return " also fits ";
    const auto fitting =
        std::count_if(wanted_bytes_.begin(), wanted_bytes_.end(),
                      [&](std::int64_t bytes) { return bytes <= device.usable_bytes; });
    return tier > 0 && fitting == 1 ? " fits only " : " fits ";
  }

  /// In words. A part of a batch takes more than a batch of its size: the rest of the batch and the
  /// gradients so far are held beside it.
  std::string accumulate(const BatchChoice& choice, const TierPeaks& tier,
                         const DeviceMemory& device) const {
    return "batch " + with_separators(wanted_) + " fits in no tier; the largest is " +
           with_separators(choice.largest_batch) + " " + how(tier) + " (" +
           share(choice.total_bytes, device.usable_bytes) +
           "); micro-batches of it must be smaller than that";
  }

  std::string least(const DeviceMemory& device) const {
    const std::int64_t bytes = *std::min_element(least_bytes_.begin(), least_bytes_.end());
    return "not even one sample fits: needs at least " + megabytes(bytes, Rounding::kUp) +
           " MB, there are " + megabytes(device.usable_bytes, Rounding::kDown);
  }

  const std::vector<TierPeaks>& tiers_;
  std::int64_t wanted_;
  std::vector<std::int64_t> wanted_bytes_;  // of each tier
  std::vector<std::int64_t> least_bytes_;   // of one sample
};

}  // namespace

std::vector<DeviceMemory> common_devices() {
  return {{"4 GB", 3'700 * kMegabyte},
          {"12 GB", 11'000 * kMegabyte},
          {"24 GB", 22'000 * kMegabyte},
          {"48 GB", 44'000 * kMegabyte}};
}

std::size_t recommended_choice(const std::vector<BatchChoice>& choices, std::int64_t wanted_batch) {
  const auto index = [&](auto choice) {
    return static_cast<std::size_t>(choice - choices.begin());
  };
  const auto fits = std::find_if(choices.begin(), choices.end(), [&](const BatchChoice& choice) {
    return choice.largest_batch >= wanted_batch;
  });
  if (fits != choices.end()) return index(fits);
  // The first of equals is the fastest.
  const auto largest = std::max_element(
      choices.begin(), choices.end(),
      [](const BatchChoice& a, const BatchChoice& b) { return a.largest_batch < b.largest_batch; });
  const bool fits_any = largest != choices.end() && largest->largest_batch > 0;
  return index(fits_any ? largest : choices.end());
}

std::vector<DevicePlan> plan_batches(const std::vector<TierPeaks>& tiers,
                                     const std::vector<DeviceMemory>& devices,
                                     std::int64_t wanted_batch) {
  check(tiers, devices, wanted_batch);
  const Planner planner(tiers, wanted_batch);
  std::vector<DevicePlan> plans;
  plans.reserve(devices.size());
  for (const auto& device : devices) plans.push_back(planner.plan(device));
  return plans;
}

}  // namespace reprise
