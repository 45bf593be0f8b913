// SPDX-License-Identifier: Apache-2.0
#include "reprise/safetensors.h"

#include "reprise/errors.h"
#include "store/atomic_file.h"
#include "store/safetensors_header.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <bit>
#include <fstream>
#include <utility>

namespace reprise {
namespace {

using detail::ElementType;
using detail::SafetensorsHeader;
using detail::TensorEntry;

static_assert(std::endian::native == std::endian::little,
              "safetensors data is little-endian and is not converted");

constexpr std::array<std::pair<ElementType, at::ScalarType>, 10> kScalarTypes = {{
    {ElementType::kI64, at::kLong},
    {ElementType::kF64, at::kDouble},
    {ElementType::kF32, at::kFloat},
    {ElementType::kI32, at::kInt},
    {ElementType::kBf16, at::kBFloat16},
    {ElementType::kF16, at::kHalf},
    {ElementType::kI16, at::kShort},
    {ElementType::kI8, at::kChar},
    {ElementType::kU8, at::kByte},
    {ElementType::kBool, at::kBool},
}};

at::ScalarType scalar_type_of(ElementType type) {
  return kScalarTypes.at(static_cast<std::size_t>(type)).second;
}

ElementType element_type_of(const std::string& name, const at::Tensor& tensor) {
  for (const auto& [element_type, scalar_type] : kScalarTypes) {
    if (tensor.scalar_type() == scalar_type) return element_type;
  }
  throw DataError("tensor '" + name + "': its type " +
                  std::string(c10::toString(tensor.scalar_type())) +
                  " cannot be stored; convert it first");
}

/// `tensor` as plain bytes in memory: on the CPU, contiguous.
at::Tensor to_host(const at::Tensor& tensor) {
  return tensor.detach().to(at::kCPU).resolve_neg().contiguous();
}

std::string_view bytes_of(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

SafetensorsHeader describe(const SafetensorsFile& file) {
  SafetensorsHeader header;
  header.metadata = file.metadata;
  for (const auto& [name, tensor] : file.tensors) {
    if (!tensor.defined() || tensor.layout() != at::kStrided || tensor.is_meta()) {
      throw DataError("tensor '" + name +
                      "': it is undefined, sparse or without data and cannot be stored");
    }
    header.tensors.push_back(
        TensorEntry{name, element_type_of(name, tensor), tensor.sizes().vec()});
  }
  lay_out(header);
  return header;
}

void read_exactly(std::ifstream& input, char* bytes, std::uint64_t count) {
  input.read(bytes, static_cast<std::streamsize>(count));
  if (!input) throw DataError("reading failed, or the file was changed meanwhile");
}

/// Any other byte than 0 or 1 is undefined behaviour in a bool.
void check_bools(const std::string& name, const at::Tensor& tensor) {
  for (const char byte : bytes_of(tensor)) {
    if (byte != 0 && byte != 1) throw DataError("tensor '" + name + "': a BOOL is neither 0 nor 1");
  }
}

SafetensorsFile load_checked(const std::filesystem::path& path) {
  std::error_code error;
  const std::uint64_t file_bytes = std::filesystem::file_size(path, error);
  if (error) throw DataError("cannot read it: " + error.message());
  std::ifstream input(path, std::ios::binary);
  if (!input) throw DataError("cannot open it; check its permissions");
  std::string text(std::min(file_bytes, detail::kLengthBytes), '\0');
  read_exactly(input, text.data(), text.size());
  text.resize(detail::read_header_length(text, file_bytes));
  read_exactly(input, text.data(), text.size());
  SafetensorsHeader header =
      detail::parse_header(text, file_bytes - detail::kLengthBytes - text.size());

  SafetensorsFile file;
  file.metadata = std::move(header.metadata);
  for (const auto& entry : header.tensors) {
    const at::Tensor tensor =
        at::empty(entry.shape, at::TensorOptions().dtype(scalar_type_of(entry.type)));
    read_exactly(input, static_cast<char*>(tensor.mutable_data_ptr()), tensor.nbytes());
    if (entry.type == ElementType::kBool) check_bools(entry.name, tensor);
    file.tensors.emplace(entry.name, tensor);
  }
  return file;
}

}  // namespace

void save_safetensors(const std::filesystem::path& path, const SafetensorsFile& file) {
  SafetensorsHeader header;
  std::string start;
  try {
    header = describe(file);
    start = detail::format_header(header);
  } catch (const DataError& error) {
    throw DataError("cannot write " + path.string() + ": " + error.what());
  }
  AtomicFile output(path);
  output.write(start);
  for (const auto& entry : header.tensors) {
    // One tensor at a time, so that at most one copy exists.
    const at::Tensor tensor = to_host(file.tensors.at(entry.name));
    output.write(bytes_of(tensor));
  }
  output.commit();
}

SafetensorsFile load_safetensors(const std::filesystem::path& path) {
  try {
    return load_checked(path);
  } catch (const DataError& error) {
    throw DataError("cannot load " + path.string() + ": " + error.what());
  }
}

}  // namespace reprise
