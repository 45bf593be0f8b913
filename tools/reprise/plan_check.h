// SPDX-License-Identifier: Apache-2.0
/// The batches that a plan names, as they were run.
#pragma once

#include "reprise/training_profile.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace reprise {

/// The largest batch of one tier on one device.
struct BatchCheck {
  std::string device;
  std::string tier;
  std::int64_t foretold_batch = 0;
  std::optional<LargestBatch> found = {};  ///< none: not run
  std::string not_run = {};                ///< why
};

/// Writes what was found into the plan of a device, `checks` being of its choices in their order:
/// what it says and recommends changes where that is not what was foretold. A batch as large as the
/// training windows tells nothing of a larger one: there the plan stays as it is.
void correct_plan(DevicePlan& plan, const std::vector<BatchCheck>& checks,
                  std::int64_t wanted_batch);

/// A line per check.
std::string checks_text(const std::vector<BatchCheck>& checks);
nlohmann::ordered_json checks_json(const std::vector<BatchCheck>& checks);

}  // namespace reprise
