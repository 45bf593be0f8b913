// SPDX-License-Identifier: Apache-2.0
#include "number_form.h"

#include "byte_size.h"
#include "reprise/errors.h"

#include <charconv>
#include <optional>

namespace reprise {
namespace {

std::string auto_digits(const std::string& text, const std::string& label) {
  if (text == "auto") {
    return "0";
  }
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  if (read.ec != std::errc{} || read.ptr != end || number < 1) {
    throw OptionError(label,
                      label + ": '" + text + "' is neither a whole number of at least 1 nor auto");
  }
  return text;
}

std::string byte_digits(const std::string& text, const std::string& label) {
  const std::optional<std::int64_t> bytes = parse_byte_size(text);
  if (!bytes) {
    throw OptionError(label,
                      label + ": '" + text + "' is not a size of memory: write " + kByteSizeForm);
  }
  return std::to_string(*bytes);
}

}  // namespace

std::string digits_of(NumberForm form, const std::string& text, const std::string& label) {
  switch (form) {
    case NumberForm::kPlain:
      return text;
    case NumberForm::kBytes:
      return byte_digits(text, label);
    case NumberForm::kAuto:
      return auto_digits(text, label);
  }
  return text;
}

std::string number_text(NumberForm form, std::int64_t number) {
  if (number != 0 || form == NumberForm::kPlain) {
    return form == NumberForm::kBytes ? byte_size_text(number) : std::to_string(number);
  }
  return form == NumberForm::kBytes ? "" : "auto";
}

}  // namespace reprise
