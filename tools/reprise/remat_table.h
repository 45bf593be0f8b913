// SPDX-License-Identifier: Apache-2.0
/// What checkpointing auto makes of a step: the curve of memory against time, and the schedule of
/// one of its points, layer by layer.
#pragma once

#include "reprise/remat_plan.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace reprise {

/// A recorded step and what can be made of it.
struct RematChoices {
  std::int64_t batch_size = 0;  ///< windows in a pass
  RematGraph graph;
  std::vector<RematPoint> curve = {};
  std::int64_t budget_bytes = 0;  ///< of `solution`
  bool is_budget_given = false;   ///< false: it is the middle of the curve
  /// For the budget, or for the smallest one where none fits into it.
  RematSolution solution = {};

  bool fits() const { return solution.forecast.peak_bytes <= budget_bytes; }
};

/// Plans `graph` for `budget_bytes`; 0: for the middle between the least and the most that it
/// takes.
RematChoices choose_remat(std::int64_t batch_size, RematGraph graph, std::int64_t budget_bytes);

std::string remat_text(const RematChoices& choices);
nlohmann::ordered_json remat_json(const RematChoices& choices);

}  // namespace reprise
