// SPDX-License-Identifier: Apache-2.0
#include "data/column_values_internal.h"

#include "data/text_internal.h"

#include <arrow/api.h>
#include <arrow/util/utf8.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <limits>
#include <unordered_map>

namespace reprise::detail {
namespace {

/// Gives each distinct text a code.
class Interner {
 public:
  std::int32_t code(std::string_view text) {
    const auto found = codes_.find(text);
    if (found != codes_.end()) return found->second;
    TORCH_INTERNAL_ASSERT(values_.size() <
                          static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()));
    const auto next = static_cast<std::int32_t>(values_.size());
    values_.emplace_back(text);
    codes_.emplace(values_.back(), next);
    return next;
  }

  std::vector<std::string> take() { return std::move(values_); }
  const std::vector<std::string>& values() const { return values_; }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };
  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> codes_;
  std::vector<std::string> values_;
};

template <typename ArrayType>
void intern_texts(const arrow::Array& chunk, Interner& interner, std::int32_t* out) {
  const auto& values = static_cast<const ArrayType&>(chunk);
  for (std::int64_t i = 0; i < values.length(); ++i) {
    out[i] = values.IsNull(i) ? -1 : interner.code(values.GetView(i));
  }
}

/// Bytes of a fixed length are seldom text (UUIDs, hashes): they are named by their hexadecimal
/// digits.
void intern_fixed(const arrow::Array& chunk, Interner& interner, std::int32_t* out) {
  const auto& values = static_cast<const arrow::FixedSizeBinaryArray&>(chunk);
  constexpr const char* kDigits = "0123456789abcdef";
  for (std::int64_t i = 0; i < values.length(); ++i) {
    if (values.IsNull(i)) {
      out[i] = -1;
      continue;
    }
    std::string text;
    for (const char byte : values.GetView(i)) {
      text += kDigits[static_cast<unsigned char>(byte) >> 4];
      text += kDigits[static_cast<unsigned char>(byte) & 15];
    }
    out[i] = interner.code(text);
  }
}

template <typename ArrayType>
void intern_integers(const arrow::Array& chunk, Interner& interner, std::int32_t* out) {
  const auto& values = static_cast<const ArrayType&>(chunk);
  for (std::int64_t i = 0; i < values.length(); ++i) {
    out[i] = values.IsNull(i) ? -1 : interner.code(std::to_string(values.Value(i)));
  }
}

bool intern(const arrow::Array& chunk, Interner& interner, std::int32_t* out);

bool intern_dictionary(const arrow::Array& chunk, Interner& interner, std::int32_t* out) {
  const auto& values = static_cast<const arrow::DictionaryArray&>(chunk);
  std::vector<std::int32_t> codes(static_cast<std::size_t>(values.dictionary()->length()));
  if (!intern(*values.dictionary(), interner, codes.data())) return false;
  for (std::int64_t i = 0; i < values.length(); ++i) {
    out[i] = values.IsNull(i) ? -1 : codes[static_cast<std::size_t>(values.GetValueIndex(i))];
  }
  return true;
}

bool intern_numbers(const arrow::Array& chunk, Interner& interner, std::int32_t* out) {
  std::vector<double> numbers(static_cast<std::size_t>(chunk.length()));
  if (!fill_reals(chunk, numbers.data())) return false;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    out[i] = std::isnan(numbers[i]) ? -1 : interner.code(number_text(numbers[i]));
  }
  return true;
}

/// False where the type cannot be named as text.
bool intern(const arrow::Array& chunk, Interner& interner, std::int32_t* out) {
  switch (chunk.type_id()) {
    case arrow::Type::STRING:
      intern_texts<arrow::StringArray>(chunk, interner, out);
      return true;
    case arrow::Type::BINARY:
      intern_texts<arrow::BinaryArray>(chunk, interner, out);
      return true;
    case arrow::Type::LARGE_STRING:
      intern_texts<arrow::LargeStringArray>(chunk, interner, out);
      return true;
    case arrow::Type::LARGE_BINARY:
      intern_texts<arrow::LargeBinaryArray>(chunk, interner, out);
      return true;
    case arrow::Type::STRING_VIEW:
      intern_texts<arrow::StringViewArray>(chunk, interner, out);
      return true;
    case arrow::Type::BINARY_VIEW:
      intern_texts<arrow::BinaryViewArray>(chunk, interner, out);
      return true;
    case arrow::Type::FIXED_SIZE_BINARY:
      intern_fixed(chunk, interner, out);
      return true;
    case arrow::Type::INT64:
      intern_integers<arrow::Int64Array>(chunk, interner, out);
      return true;
    case arrow::Type::UINT64:
      intern_integers<arrow::UInt64Array>(chunk, interner, out);
      return true;
    case arrow::Type::DICTIONARY:
      return intern_dictionary(chunk, interner, out);
    case arrow::Type::BOOL: {
      const auto& values = static_cast<const arrow::BooleanArray&>(chunk);
      for (std::int64_t i = 0; i < values.length(); ++i) {
        out[i] = values.IsNull(i) ? -1 : interner.code(values.Value(i) ? "true" : "false");
      }
      return true;
    }
    default:
      return intern_numbers(chunk, interner, out);
  }
}

}  // namespace

Categories read_categories(const TableFile& file, const std::string& name) {
  const auto& info = file.column(name, "a category");
  if (info.kind == ColumnKind::kTime || info.kind == ColumnKind::kUnusable) {
    fail_column(file, name,
                "holds " + info.type->ToString() +
                    ", which cannot be a category; leave it out or convert it");
  }
  Categories result;
  result.codes.resize(static_cast<std::size_t>(file.row_count()));
  Interner interner;
  file.read({name}, [&](std::size_t, std::int64_t row, const arrow::Array& chunk) {
    if (!intern(chunk, interner, result.codes.data() + row)) {
      fail_column(file, name,
                  "holds " + info.type->ToString() +
                      ", which cannot be a category; leave it out or convert it");
    }
  });
  arrow::util::InitializeUTF8();
  for (const auto& value : interner.values()) {
    if (!arrow::util::ValidateUTF8(reinterpret_cast<const std::uint8_t*>(value.data()),
                                   static_cast<std::int64_t>(value.size()))) {
      fail_column(file, name, "holds bytes that are not UTF-8 text; leave it out or convert it");
    }
  }
  result.values = interner.take();
  return result;
}

}  // namespace reprise::detail
