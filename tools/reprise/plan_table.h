// SPDX-License-Identifier: Apache-2.0
/// Which batches fit where, as tables and as JSON.
#pragma once

#include "reprise/batch_plan.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace reprise {

/// What was planned for.
struct PlanSubject {
  std::string file;
  std::int64_t wanted_batch = 0;
  std::int64_t train_windows = 0;
};

/// How each tier's peak was modelled, the table of devices and tiers, and a recommendation per
/// device. The choices of `devices` are in the order of `tiers`.
std::string plan_text(const PlanSubject& subject, const std::vector<TierPeaks>& tiers,
                      const std::vector<DevicePlan>& devices);

/// The same as `plan_text` with bytes as they are.
nlohmann::ordered_json plan_json(const PlanSubject& subject, const std::vector<TierPeaks>& tiers,
                                 const std::vector<DevicePlan>& devices);

}  // namespace reprise
