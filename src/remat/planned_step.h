// SPDX-License-Identifier: Apache-2.0
/// A plan that a tape carries out.
#pragma once

#include "remat/step_graph.h"
#include "reprise/remat_plan.h"

#include <cstdint>
#include <vector>

namespace reprise::detail {

/// A step that was recorded, and what to keep and to run again in steps that are the same.
struct PlannedStep {
  StepGraph step;
  RematSolution solution;
  std::vector<bool> is_kept;  ///< by value of the tape
};

}  // namespace reprise::detail
