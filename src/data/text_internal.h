// SPDX-License-Identifier: Apache-2.0
/// Wording that the messages about tables share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::detail {

/// "'a', 'b' and 3 more".
std::string list_of(const std::vector<std::string>& names, std::size_t most = 8);

/// "1 row", "3 rows"; "1 series", "3 series".
std::string count_of(std::int64_t count, std::string_view noun);

/// "a=1, b=2" for the columns and values of a series key; "the table" without columns.
std::string describe_key(const std::vector<std::string>& columns,
                         const std::vector<std::string>& values);

/// `text` as a terminal can show it: bytes that are not UTF-8 and control characters become \xNN,
/// line ends \n unless `keeps_lines`. Files may hold any bytes, also those that command a terminal.
std::string printable(std::string_view text, bool keeps_lines = false);

std::string lower_case(std::string_view text);

}  // namespace reprise::detail
