// SPDX-License-Identifier: Apache-2.0
/// Hashes that are the same on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace reprise::detail {

/// FNV-1a, 64 bits (http://www.isthe.com/chongo/tech/comp/fnv). Integers go in as 8 bytes, the
/// lowest first, so that every machine finds the same.
class Fnv1a {
 public:
  void add(std::int64_t number) {
    const auto bits = static_cast<std::uint64_t>(number);
    for (unsigned shift = 0; shift < 64; shift += 8) add_byte((bits >> shift) & 0xFFU);
  }

  void add(const std::string& text) {
    add(static_cast<std::int64_t>(text.size()));
    for (const char letter : text) add_byte(static_cast<unsigned char>(letter));
  }

  void add(const std::vector<std::int32_t>& numbers) {
    add(static_cast<std::int64_t>(numbers.size()));
    for (const std::int32_t number : numbers) add(std::int64_t{number});
  }

  std::uint64_t value() const { return hash_; }

 private:
  void add_byte(std::uint64_t byte) { hash_ = (hash_ ^ byte) * 0x100000001B3U; }

  std::uint64_t hash_ = 0xCBF29CE484222325U;
};

}  // namespace reprise::detail
