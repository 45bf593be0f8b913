// SPDX-License-Identifier: Apache-2.0
/// Moves that make a schedule faster or smaller, on any graph.
#pragma once

#include "plan/remat_schedule.h"

namespace reprise::detail {

/// Keeps values longer, instead of making them again, wherever the bytes are free: of a schedule
/// that fits, one that fits and takes no longer.
Schedule fill(const RematIndex& index, Schedule schedule, std::int64_t budget_bytes);

/// Makes values again, those that cost least time for their bytes first, instead of keeping them
/// where the budget is exceeded. The result may exceed it still.
Schedule shrink(const RematIndex& index, Schedule schedule, std::int64_t budget_bytes);

/// Keeps what one replayed operation makes, and makes other values again for it, wherever that
/// takes less time: of a schedule that fits, one that fits and takes no longer.
Schedule exchange(const RematIndex& index, Schedule schedule, std::int64_t budget_bytes);

}  // namespace reprise::detail
