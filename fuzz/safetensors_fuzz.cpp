// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file: refused with a DataError, or read into a header that says the
// same when written. Start it with the small files of tests/golden: safetensors_fuzz corpus
// tests/golden -max_len=4096
#include "reprise/errors.h"
#include "store/safetensors_header.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace {

using reprise::detail::SafetensorsHeader;

SafetensorsHeader parse(std::string_view file) {
  const auto length =
      static_cast<std::size_t>(reprise::detail::read_header_length(file, file.size()));
  const std::string_view text = file.substr(reprise::detail::kLengthBytes, length);
  return reprise::detail::parse_header(text, file.size() - reprise::detail::kLengthBytes - length);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  SafetensorsHeader header;
  try {
    header = parse({reinterpret_cast<const char*>(data), size});
  } catch (const reprise::DataError&) {
    return 0;
  }
  const std::uint64_t data_bytes = header.tensors.empty() ? 0 : header.tensors.back().end;
  std::string written = reprise::detail::format_header(header);
  written.resize(written.size() + static_cast<std::size_t>(data_bytes));
  if (parse(written) != header) std::abort();
  return 0;
}
