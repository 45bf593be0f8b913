// SPDX-License-Identifier: Apache-2.0
/// What the system says about the memory of the process.
#pragma once

#include <cstdint>

namespace reprise::detail {

std::int64_t resident_bytes();
std::int64_t peak_resident_bytes();
/// What the process can still get: of the machine, of its control group, of its address space.
std::int64_t available_bytes();

}  // namespace reprise::detail
