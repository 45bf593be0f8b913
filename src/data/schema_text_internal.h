// SPDX-License-Identifier: Apache-2.0
/// Names of the schema's enumerators, in their order.
#pragma once

#include <string>
#include <vector>

namespace reprise::detail {

const std::vector<std::string>& normalization_names();
const std::vector<std::string>& time_unit_names();

}  // namespace reprise::detail
