// SPDX-License-Identifier: Apache-2.0
/// Whole numbers that are not written as digits alone.
#pragma once

#include <cstdint>
#include <string>

namespace reprise {

/// How a whole number is written.
enum class NumberForm {
  kPlain,
  kBytes,  ///< a size of memory, see byte_size.h; 0 is written as nothing
  kAuto,   ///< at least 1; 0 is written "auto"
};

/// The number that `text` stands for, in digits; `text` itself where the form is plain. `label`
/// begins the message of an `OptionError`.
std::string digits_of(NumberForm form, const std::string& text, const std::string& label);

/// The other way round.
std::string number_text(NumberForm form, std::int64_t number);

}  // namespace reprise
