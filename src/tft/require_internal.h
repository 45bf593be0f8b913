// SPDX-License-Identifier: Apache-2.0
/// Check an option.
#pragma once

#include "reprise/errors.h"

#include <c10/util/StringUtil.h>

namespace reprise::detail {

/// Throws `OptionError` for `field`, naming its `value` and what is `expected`, unless `is_valid`.
template <typename Value>
void require(bool is_valid, const char* field, const char* expected, const Value& value) {
  if (!is_valid) throw OptionError(field, c10::str(field, " is ", value, ": expected ", expected));
}

}  // namespace reprise::detail
