// SPDX-License-Identifier: Apache-2.0
/// Sizes of memory as people write them: "512MiB", "1.5GB", "500000000".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace reprise {

/// How a size is written, for messages: the units, and what is allowed.
extern const char* const kByteSizeForm;

/// The bytes that `text` names: a whole number of bytes, or a decimal number with a unit (B; kB,
/// MB, GB and TB of 1000; KiB, MiB, GiB and TiB of 1024; in any case of the letters, a blank before
/// it or not). What is less than a byte is cut off. None where `text` is no such size, is less than
/// one byte, or does not fit into 63 bits.
std::optional<std::int64_t> parse_byte_size(std::string_view text);

/// A positive number of bytes in the largest unit of which it is a whole multiple: reads back as
/// the same number.
std::string byte_size_text(std::int64_t bytes);

}  // namespace reprise
