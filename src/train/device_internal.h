// SPDX-License-Identifier: Apache-2.0
/// Move a batch to the device of the model.
#pragma once

#include "reprise/dataset.h"

namespace reprise::detail {

inline Batch to_device(Batch batch, const torch::Device& device) {
  if (device.is_cpu()) return batch;
  for (auto* tensor :
       {&batch.input.static_real, &batch.input.static_categorical, &batch.input.observed_real,
        &batch.input.observed_categorical, &batch.input.known_real, &batch.input.known_categorical,
        &batch.target, &batch.center, &batch.scale}) {
    if (tensor->defined()) *tensor = tensor->to(device);
  }
  return batch;
}

}  // namespace reprise::detail
