// SPDX-License-Identifier: Apache-2.0
#include "store/safetensors_header.h"

#include "reprise/errors.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <set>
#include <tuple>

namespace reprise::detail {
namespace {

using nlohmann::json;

constexpr const char* kMetadataKey = "__metadata__";

struct ElementTypeFacts {
  std::string_view name;
  std::int64_t bytes;
};

constexpr std::array<ElementTypeFacts, 10> kElementTypes = {{
    {"I64", 8},
    {"F64", 8},
    {"F32", 4},
    {"I32", 4},
    {"BF16", 2},
    {"F16", 2},
    {"I16", 2},
    {"I8", 1},
    {"U8", 1},
    {"BOOL", 1},
}};

const ElementTypeFacts& facts(ElementType type) {
  return kElementTypes.at(static_cast<std::size_t>(type));
}

ElementType element_type_of(const json& value) {
  std::string known;
  for (std::size_t i = 0; i < kElementTypes.size(); ++i) {
    if (value.is_string() && value.get_ref<const std::string&>() == kElementTypes[i].name) {
      return static_cast<ElementType>(i);
    }
    known += (i == 0 ? "" : ", ") + std::string(kElementTypes[i].name);
  }
  throw DataError("dtype is " + value.dump() + "; known are " + known);
}

/// `value` as a list of integers in [0, 2^63).
std::vector<std::int64_t> integers_of(const json& value, const char* key) {
  constexpr auto kLargest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!value.is_array()) throw DataError(std::string(key) + " is no list");
  std::vector<std::int64_t> integers;
  integers.reserve(value.size());
  for (const auto& item : value) {
    if (!item.is_number_unsigned() || item.get<std::uint64_t>() > kLargest) {
      throw DataError(std::string(key) + " holds " + item.dump() +
                      ", which is no integer from 0 to 2^63 - 1");
    }
    integers.push_back(item.get<std::int64_t>());
  }
  return integers;
}

/// Bytes of a contiguous tensor. Zero sizes count as one in the check: strides are products of the
/// others.
std::uint64_t storage_bytes(const std::vector<std::int64_t>& shape, std::int64_t bytes_each) {
  std::int64_t product = bytes_each;
  bool is_empty = false;
  for (const std::int64_t size : shape) {
    is_empty = is_empty || size == 0;
    if (__builtin_mul_overflow(product, std::max<std::int64_t>(size, 1), &product)) {
      throw DataError("the product of its shape is 2^63 bytes or more");
    }
  }
  return is_empty ? 0 : static_cast<std::uint64_t>(product);
}

TensorEntry entry_of(const std::string& name, const json& value) {
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") ||
      !value.contains("shape") || !value.contains("data_offsets")) {
    throw DataError("its entry is not {dtype, shape, data_offsets}");
  }
  TensorEntry entry;
  entry.name = name;
  entry.type = element_type_of(value["dtype"]);
  entry.shape = integers_of(value["shape"], "shape");
  const auto offsets = integers_of(value["data_offsets"], "data_offsets");
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    throw DataError("data_offsets is " + value["data_offsets"].dump() + ", not [begin, end]");
  }
  entry.begin = static_cast<std::uint64_t>(offsets[0]);
  entry.end = static_cast<std::uint64_t>(offsets[1]);
  const std::uint64_t needed_bytes = storage_bytes(entry.shape, element_bytes(entry.type));
  if (entry.end - entry.begin != needed_bytes) {
    throw DataError("its type and shape need " + std::to_string(needed_bytes) +
                    " bytes, data_offsets give it " + std::to_string(entry.end - entry.begin));
  }
  return entry;
}

std::map<std::string, std::string> metadata_of(const json& value) {
  if (!value.is_object()) throw DataError("__metadata__ is no object");
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) throw DataError("__metadata__ '" + key + "' is no string");
    metadata.emplace(key, text.get<std::string>());
  }
  return metadata;
}

/// Refuses what a JSON reader lets pass: a key given twice, of which only one value would be seen,
/// and deep nesting.
class JsonGuard {
 public:
  bool operator()(int /*depth*/, json::parse_event_t event, const json& value) {
    using Event = json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      keys_.emplace_back();
      if (keys_.size() > kDeepest) throw DataError("the header is nested more than 3 deep");
    } else if (event == Event::object_end || event == Event::array_end) {
      keys_.pop_back();
    } else if (event == Event::key && !keys_.back().insert(value.get<std::string>()).second) {
      throw DataError("the header has the key " + value.dump() + " twice");
    }
    return true;
  }

 private:
  static constexpr std::size_t kDeepest = 3;  // header, tensor, shape
  std::vector<std::set<std::string>> keys_;
};

json parse_document(std::string_view text) {
  if (text.empty() || text.front() != '{') throw DataError("the header does not begin with '{'");
  JsonGuard guard;
  try {
    return json::parse(text, [&guard](int depth, json::parse_event_t event, json& value) {
      return guard(depth, event, value);
    });
  } catch (const json::exception& error) {
    throw DataError(std::string("the header is no JSON object: ") + error.what());
  }
}

/// `tensors` must be sorted by their data.
void check_coverage(const std::vector<TensorEntry>& tensors, std::uint64_t data_bytes) {
  std::uint64_t covered = 0;
  for (const auto& entry : tensors) {
    if (entry.begin != covered) {
      throw DataError(
          "tensor '" + entry.name + "' begins at byte " + std::to_string(entry.begin) +
          " of the data, " +
          (entry.begin < covered ? "before the end of the one before it, " : "after a gap from ") +
          std::to_string(covered));
    }
    covered = entry.end;
  }
  if (covered != data_bytes) {
    throw DataError("the header describes " + std::to_string(covered) +
                    " bytes of data, the file holds " + std::to_string(data_bytes) +
                    "; it is cut off or not a safetensors file");
  }
}

}  // namespace

std::string_view element_type_name(ElementType type) {
  return facts(type).name;
}

std::int64_t element_bytes(ElementType type) {
  return facts(type).bytes;
}

std::uint64_t read_header_length(std::string_view file_start, std::uint64_t file_bytes) {
  if (file_start.size() < kLengthBytes) {
    throw DataError("the file has " + std::to_string(file_bytes) + " bytes, too few for a header");
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= std::uint64_t{static_cast<unsigned char>(file_start[i])} << (8 * i);
  }
  if (length > kLargestHeaderBytes) {
    throw DataError("the header's length is " + std::to_string(length) +
                    " bytes, more than the 100 MB allowed; " +
                    "it is damaged or not a safetensors file");
  }
  if (length > file_bytes - kLengthBytes) {
    throw DataError("the header's length is " + std::to_string(length) +
                    " bytes, the file has only " + std::to_string(file_bytes - kLengthBytes) +
                    " after it; it is cut off or not a safetensors file");
  }
  return length;
}

SafetensorsHeader parse_header(std::string_view text, std::uint64_t data_bytes) {
  SafetensorsHeader header;
  const json document = parse_document(text);
  for (const auto& [name, value] : document.items()) {
    if (name == kMetadataKey) {
      header.metadata = metadata_of(value);
      continue;
    }
    try {
      header.tensors.push_back(entry_of(name, value));
    } catch (const DataError& error) {
      throw DataError("tensor '" + name + "': " + error.what());
    }
  }
  // Empty tensors share their begin with the next one, so the end decides.
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) {
              return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
            });
  check_coverage(header.tensors, data_bytes);
  return header;
}

void lay_out(SafetensorsHeader& header) {
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) {
              return std::tie(a.type, a.name) < std::tie(b.type, b.name);
            });
  std::uint64_t offset = 0;
  for (auto& entry : header.tensors) {
    entry.begin = offset;
    offset += storage_bytes(entry.shape, element_bytes(entry.type));
    entry.end = offset;
  }
}

std::string format_header(const SafetensorsHeader& header) {
  std::string text = "{";
  std::set<std::string_view> names = {kMetadataKey};
  try {
    if (!header.metadata.empty())
      text += json(kMetadataKey).dump() + ":" + json(header.metadata).dump();
    for (const auto& entry : header.tensors) {
      if (!names.insert(entry.name).second) {
        throw DataError("tensor '" + entry.name +
                        "': the name is reserved or given twice; choose another one");
      }
      if (text.size() > 1) text += ',';
      // The order of the keys is that of other writers, which the JSON library would sort.
      text += json(entry.name).dump() + R"(:{"dtype":")" +
              std::string(element_type_name(entry.type)) + R"(","shape":)" +
              json(entry.shape).dump() + R"(,"data_offsets":)" +
              json({entry.begin, entry.end}).dump() + "}";
    }
  } catch (const json::exception& error) {
    throw DataError(std::string("a name or the metadata is not UTF-8: ") + error.what());
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  if (text.size() > kLargestHeaderBytes) {
    throw DataError("the header needs " + std::to_string(text.size()) +
                    " bytes, more than the 100 MB allowed");
  }
  std::string length(kLengthBytes, '\0');
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    length[i] = static_cast<char>((text.size() >> (8 * i)) & 0xFF);
  return length + text;
}

}  // namespace reprise::detail
