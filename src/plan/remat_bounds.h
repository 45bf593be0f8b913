// SPDX-License-Identifier: Apache-2.0
/// What no plan can do better.
#pragma once

#include "plan/remat_index.h"

namespace reprise::detail {

/// Every plan takes at least that many bytes at some moment.
std::int64_t least_budget_bytes(const RematIndex& index);

/// Every plan within the budget replays at least that long.
double least_replay_ms(const RematIndex& index, std::int64_t budget_bytes);

}  // namespace reprise::detail
