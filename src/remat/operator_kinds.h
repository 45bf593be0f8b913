// SPDX-License-Identifier: Apache-2.0
/// Which operators can be run again with the same results, and why the others cannot.
#pragma once

#include "autograd/operator_observer.h"

namespace reprise::detail {

/// Why the results of an operator are kept; null where it can be run again.
const char* reason_to_keep(const OperatorInfo& info);

/// True for operators that make memory without filling it: what is written there through a pointer
/// is not seen.
bool makes_unfilled_memory(const OperatorInfo& info);

/// True for operators that give an argument other memory.
bool replaces_memory(const OperatorInfo& info);

/// True where the operator fills the whole of its argument `index`, whatever was there before.
bool overwrites(const OperatorInfo& info, std::size_t index);

}  // namespace reprise::detail
