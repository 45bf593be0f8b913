// SPDX-License-Identifier: Apache-2.0
#include "text.h"

#include "memory/byte_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <numeric>

namespace reprise {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

std::string padded(std::int64_t value) {
  char buffer[24];
  std::snprintf(buffer, sizeof buffer, "%02lld", static_cast<long long>(value));
  return buffer;
}

}  // namespace

std::string format_fixed(double value, int decimals) {
  if (!std::isfinite(value)) {
    return "-";
  }
  char buffer[400];
  std::snprintf(buffer, sizeof buffer, "%.*f", decimals, value);
  return buffer;
}

std::string format_count(std::int64_t value) {
  std::string digits = std::to_string(value);
  const std::size_t first_digit = value < 0 ? 1 : 0;
  for (std::size_t end = digits.size(); end > first_digit + 3; end -= 3) {
    digits.insert(end - 3, ",");
  }
  return digits;
}

std::string format_bytes(std::int64_t bytes) {
  return detail::byte_text(bytes);
}

std::string format_megabytes(double bytes, int decimals) {
  return format_fixed(bytes / 1e6, decimals);
}

std::string format_megabytes(std::int64_t bytes, int decimals) {
  return format_megabytes(static_cast<double>(bytes), decimals);
}

std::string format_windows(std::int64_t count) {
  return format_count(count) + (count == 1 ? " window" : " windows");
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) {
    return "-";
  }
  const std::int64_t total_s = std::llround(std::max(seconds, 0.0));
  const std::int64_t minutes = total_s / 60;
  if (minutes == 0) {
    return std::to_string(total_s) + " s";
  }
  if (minutes < 60) {
    return std::to_string(minutes) + " min " + padded(total_s % 60) + " s";
  }
  return std::to_string(minutes / 60) + " h " + padded(minutes % 60) + " min";
}

std::string format_quantile(double quantile) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "P%.6g", quantile * 100.0);
  return buffer;
}

std::string format_exact(double value) {
  char buffer[40];
  const auto written = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, written.ptr);
  const bool is_whole = text.find_first_of(".en") == std::string::npos;
  return is_whole ? text + ".0" : text;
}

std::string join(const std::vector<std::string>& items, std::string_view separator) {
  if (items.empty()) {
    return "none";
  }
  std::string text = items.front();
  for (std::size_t i = 1; i < items.size(); ++i) {
    text.append(separator).append(items[i]);
  }
  return text;
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> items;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    std::string_view item = text.substr(0, comma);
    const std::size_t first = item.find_first_not_of(' ');
    item = first == std::string_view::npos ? std::string_view{} : item.substr(first);
    item = item.substr(0, item.find_last_not_of(' ') + 1);
    if (!item.empty()) {
      items.emplace_back(item);
    }
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
  }
  return items;
}

std::string nearest_name(std::string_view wrong, const std::vector<std::string>& known) {
  std::string best;
  // A third of the letters wrong is still a slip of the fingers; more is another word.
  std::size_t best_distance = (wrong.size() + 2) / 3 + 1;
  for (const std::string& name : known) {
    const std::size_t distance = edit_distance(wrong, name);
    if (distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace reprise
