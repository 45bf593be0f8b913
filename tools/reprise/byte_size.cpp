// SPDX-License-Identifier: Apache-2.0
#include "byte_size.h"

#include "data/text_internal.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace reprise {
namespace {

struct Unit {
  std::string_view name;
  std::int64_t bytes;
};

// Largest first. "k" or "M" alone is none of them: it means 1000 to some and 1024 to others.
constexpr std::array<Unit, 9> kUnits = {{{"TiB", std::int64_t{1} << 40},
                                         {"TB", 1'000'000'000'000},
                                         {"GiB", std::int64_t{1} << 30},
                                         {"GB", 1'000'000'000},
                                         {"MiB", std::int64_t{1} << 20},
                                         {"MB", 1'000'000},
                                         {"KiB", std::int64_t{1} << 10},
                                         {"kB", 1'000},
                                         {"B", 1}}};

constexpr std::string_view kDigits = "0123456789";

// 0 for what is no unit; 1 for none.
std::int64_t unit_bytes(std::string_view name) {
  if (name.empty()) {
    return 1;
  }
  const std::string wanted = detail::lower_case(name);
  const auto* found = std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& unit) {
    return detail::lower_case(unit.name) == wanted;
  });
  return found == kUnits.end() ? 0 : found->bytes;
}

// The digits at the beginning of `text`, which they are taken from.
std::string_view take_digits(std::string_view& text) {
  const std::size_t end = std::min(text.find_first_not_of(kDigits), text.size());
  const std::string_view digits = text.substr(0, end);
  text.remove_prefix(end);
  return digits;
}

// 0.`digits` of a unit, cut off below one byte. From the last digit on, so that cutting at each is
// the same as cutting once: no rounding of a double makes 4.35 MB one byte less.
std::int64_t fraction_bytes(std::string_view digits, std::int64_t unit) {
  std::int64_t bytes = 0;
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit) {
    bytes = ((*digit - '0') * unit + bytes) / 10;
  }
  return bytes;
}

}  // namespace

const char* const kByteSizeForm =
    "bytes, or a number with B, kB, MB, GB, TB (of 1000), KiB, MiB, GiB or TiB (of 1024), such as "
    "512MiB or 1.5GB; at least 1 byte and below 2^63";

std::optional<std::int64_t> parse_byte_size(std::string_view text) {
  const std::string_view whole = take_digits(text);
  std::string_view fraction;
  const bool has_point = !text.empty() && text.front() == '.';
  if (has_point) {
    text.remove_prefix(1);
    fraction = take_digits(text);
  }
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const std::int64_t unit = unit_bytes(text);
  const bool is_fraction_wrong = has_point && (fraction.empty() || unit == 1);
  std::int64_t bytes = 0;
  const auto read = std::from_chars(whole.data(), whole.data() + whole.size(), bytes);
  if (whole.empty() || unit == 0 || is_fraction_wrong || read.ec != std::errc{} ||
      __builtin_mul_overflow(bytes, unit, &bytes) ||
      __builtin_add_overflow(bytes, fraction_bytes(fraction, unit), &bytes) || bytes < 1) {
    return std::nullopt;
  }
  return bytes;
}

std::string byte_size_text(std::int64_t bytes) {
  const auto* unit = std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& candidate) {
    return bytes % candidate.bytes == 0;
  });
  return std::to_string(bytes / unit->bytes) + std::string(unit->name);
}

}  // namespace reprise
