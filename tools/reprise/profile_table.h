// SPDX-License-Identifier: Apache-2.0
/// What a profile measured, as tables and as JSON.
#pragma once

#include "reprise/training_profile.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>

namespace reprise {

/// What was profiled.
struct ProfileSubject {
  std::string file;
  TftOptions model = {};
  std::int64_t windows_per_pass = 0;
  std::int64_t threads = 0;
};

/// A header, the layers, who holds memory at the peak, and the figures of the step.
std::string profile_text(const ProfileSubject& subject, const TrainingProfile& profile);

/// The same with bytes as they are; null where a figure does not exist.
nlohmann::ordered_json profile_json(const ProfileSubject& subject, const TrainingProfile& profile);

}  // namespace reprise
