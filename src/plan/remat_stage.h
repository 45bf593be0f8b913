// SPDX-License-Identifier: Apache-2.0
/// The ways to get through one stage of a chain.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/remat_chain.h"

namespace reprise::detail {

struct Stage {
  std::int32_t first_operation = 0;
  std::int32_t end_operation = 0;
  std::int32_t first_event = 0;  ///< of its window
  std::int32_t end_event = 0;
  const std::vector<std::int32_t>& crosses;  ///< to the next stage
};

/// From keeping all that the window needs to keeping nothing, each dropping what costs least time
/// for its bytes.
std::vector<StageOption> stage_options(const RematIndex& index, const Stage& stage);

/// Operations of the stage, ascending, that make `targets` from what crosses into it and what
/// `is_there`.
std::vector<std::int32_t> stage_closure(const RematIndex& index, std::int32_t first_operation,
                                        const std::vector<std::int32_t>& targets,
                                        const std::vector<char>& is_there);

}  // namespace reprise::detail
