// SPDX-License-Identifier: Apache-2.0
/// Numbers, times and lists as the program prints them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace reprise {

/// `value` with `decimals` digits after the point; "-" when it is not a number.
std::string format_fixed(double value, int decimals);
/// A whole number with a comma between thousands: 17,420.
std::string format_count(std::int64_t value);
/// Bytes in MB (of 10^6): "512.0 MB"; below one of them "1234 bytes".
std::string format_bytes(std::int64_t bytes);
/// The number of MB (of 10^6) alone, for a table whose header has the unit.
std::string format_megabytes(double bytes, int decimals = 1);
std::string format_megabytes(std::int64_t bytes, int decimals = 1);
/// "1 window", "17,420 windows".
std::string format_windows(std::int64_t count);
/// Seconds as "42 s", "3 min 20 s" or "2 h 05 min".
std::string format_duration(double seconds);
/// A quantile as the field writes it: 0.1 is "P10".
std::string format_quantile(double quantile);
/// The shortest text that reads back as the same double; always with a point or an exponent, as
/// TOML wants.
std::string format_exact(double value);
/// Items with `separator` between them; "none" when there are no items.
std::string join(const std::vector<std::string>& items, std::string_view separator = ", ");
/// Cuts at every comma and trims blanks; empty text gives no items.
std::vector<std::string> split_list(std::string_view text);
/// The known name closest to a wrong one, or "" when none is near.
std::string nearest_name(std::string_view wrong, const std::vector<std::string>& known);

}  // namespace reprise
