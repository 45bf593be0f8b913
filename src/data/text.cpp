// SPDX-License-Identifier: Apache-2.0
#include "data/text_internal.h"

#include <algorithm>
#include <cctype>

namespace reprise::detail {
namespace {

/// Bytes of the UTF-8 character that `text` begins with; 0 when it is none.
std::size_t character_size(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return static_cast<unsigned char>(text[i]);
  };
  const unsigned lead = byte(0);
  const std::size_t size = lead < 0x80   ? 1
                           : lead < 0xC2 ? 0
                           : lead < 0xE0 ? 2
                           : lead < 0xF0 ? 3
                           : lead < 0xF5 ? 4
                                         : 0;
  if (size == 0 || size > text.size()) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return 0;
  }
  if (size < 2) return size;
  // Longer than needed, half of a pair of UTF-16, or beyond the last character.
  const unsigned second = byte(1);
  const bool is_invalid = (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
                          (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F);
  return is_invalid ? 0 : size;
}

bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7F;
  return first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
}

}  // namespace

std::string printable(std::string_view text, bool keeps_lines) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string shown;
  while (!text.empty()) {
    const std::size_t valid = character_size(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(valid, 1));
    if (character == "\n") {
      shown += keeps_lines ? "\n" : "\\n";
    } else if (valid == 0 || is_control(character)) {
      for (const char c : character) {
        const auto code = static_cast<unsigned char>(c);
        shown += std::string("\\x") + kHex[code / 16] + kHex[code % 16];
      }
    } else {
      shown += character;
    }
    text.remove_prefix(character.size());
  }
  return shown;
}

std::string list_of(const std::vector<std::string>& names, std::size_t most) {
  // Nobody gains from "and 1 more" in place of the name.
  const std::size_t shown = names.size() <= most + 1 ? names.size() : most;
  std::string text;
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += "'" + printable(names[i]) + "'";
  }
  if (shown < names.size()) text += " and " + std::to_string(names.size() - shown) + " more";
  return text;
}

std::string count_of(std::int64_t count, std::string_view noun) {
  std::string text = std::to_string(count) + " " + std::string(noun);
  if (count != 1 && noun.back() != 's') text += "s";
  return text;
}

std::string describe_key(const std::vector<std::string>& columns,
                         const std::vector<std::string>& values) {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += ", ";
    text += (i < columns.size() ? columns[i] : "target") + "=" + printable(values[i]);
  }
  return text.empty() ? "the table" : text;
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

}  // namespace reprise::detail
