// SPDX-License-Identifier: Apache-2.0
/// Where to cut a step into stages.
#pragma once

#include "plan/remat_chain.h"

namespace reprise::detail {

/// As many stages as the solver can take: every operation its own, or else cuts where little
/// crosses.
Chain choose_chain(const RematIndex& index);

}  // namespace reprise::detail
