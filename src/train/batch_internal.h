// SPDX-License-Identifier: Apache-2.0
/// Move a batch to the device of the model, and take a part of it.
#pragma once

#include "reprise/dataset.h"

#include <array>

namespace reprise::detail {

inline std::array<torch::Tensor*, 9> tensors_of(Batch& batch) {
  auto& input = batch.input;
  return {&input.static_real,   &input.static_categorical,
          &input.observed_real, &input.observed_categorical,
          &input.known_real,    &input.known_categorical,
          &batch.target,        &batch.center,
          &batch.scale};
}

inline Batch to_device(Batch batch, const torch::Device& device) {
  if (device.is_cpu()) return batch;
  for (auto* tensor : tensors_of(batch)) {
    if (tensor->defined()) *tensor = tensor->to(device);
  }
  return batch;
}

/// Windows [first, first + count) of a batch, in the same memory.
inline Batch part_of(Batch batch, std::int64_t first, std::int64_t count) {
  for (auto* tensor : tensors_of(batch)) {
    if (tensor->defined()) *tensor = tensor->narrow(0, first, count);
  }
  return batch;
}

}  // namespace reprise::detail
