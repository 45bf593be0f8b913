// SPDX-License-Identifier: Apache-2.0
/// The header of a safetensors file: parsed, checked and written without LibTorch, so that it can
/// be fuzzed alone.
///
/// A file is: 8 bytes little-endian length of the header, the header (a JSON object, padded with
/// spaces), the data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace reprise::detail {

/// Element types, ordered as files order them: by falling alignment.
enum class ElementType { kI64, kF64, kF32, kI32, kBf16, kF16, kI16, kI8, kU8, kBool };

std::string_view element_type_name(ElementType type);
std::int64_t element_bytes(ElementType type);

struct TensorEntry {
  std::string name;
  ElementType type = ElementType::kF32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;  ///< in bytes from the start of the data
  std::uint64_t end = 0;

  bool operator==(const TensorEntry&) const = default;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  ///< in the order of their data
  std::map<std::string, std::string> metadata;

  bool operator==(const SafetensorsHeader&) const = default;
};

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kLargestHeaderBytes = 100'000'000;

/// Length of the header from the first bytes of a file of `file_bytes`. Throws `DataError` when it
/// cannot be.
std::uint64_t read_header_length(std::string_view file_start, std::uint64_t file_bytes);

/// Parses and checks the JSON `text` of a file with `data_bytes` after it: types, shapes, and that
/// the tensors cover the data without gap or overlap. Throws `DataError` naming the tensor and what
/// is wrong, without the file's name.
SafetensorsHeader parse_header(std::string_view text, std::uint64_t data_bytes);

/// Orders the tensors by type and name, as the Python package does, and sets `begin` and `end`.
void lay_out(SafetensorsHeader& header);

/// The start of a file, length included; its size is a multiple of 8. The tensors must be laid out.
/// Throws `DataError` when a name is `__metadata__`, occurs twice or is not UTF-8.
std::string format_header(const SafetensorsHeader& header);

}  // namespace reprise::detail
