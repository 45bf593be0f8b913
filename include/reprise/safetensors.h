// SPDX-License-Identifier: Apache-2.0
/// Read and write safetensors files: named tensors, no code.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>

namespace reprise {

struct SafetensorsFile {
  std::map<std::string, at::Tensor> tensors;    ///< on the CPU, contiguous
  std::map<std::string, std::string> metadata;  ///< the header's `__metadata__`
};

/// Writes the file beside `path`, flushes it, and renames it into place: a reader sees the old file
/// or the new one.
///
/// Tensors may be on any device and need not be contiguous. Throws `DataError` naming the file.
void save_safetensors(const std::filesystem::path& path, const SafetensorsFile& file);

/// Reads and checks a file: header size, JSON, types, and that the tensors cover the data without
/// gap or overlap.
///
/// Throws `DataError` naming the file and what is wrong with it.
SafetensorsFile load_safetensors(const std::filesystem::path& path);

}  // namespace reprise
