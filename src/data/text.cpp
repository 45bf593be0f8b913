// SPDX-License-Identifier: Apache-2.0
#include "data/text_internal.h"

#include <algorithm>
#include <cctype>

namespace reprise::detail {

std::string list_of(const std::vector<std::string>& names, std::size_t most) {
  // Nobody gains from "and 1 more" in place of the name.
  const std::size_t shown = names.size() <= most + 1 ? names.size() : most;
  std::string text;
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += "'" + names[i] + "'";
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
    text += (i < columns.size() ? columns[i] : "target") + "=" + values[i];
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
