// SPDX-License-Identifier: Apache-2.0
/// Label what autograd saves.
#pragma once

#include "autograd/saved_tensor_hooks.h"

namespace reprise::detail {

/// Keeps every saved tensor as autograd itself does, and counts its memory as a saved activation of
/// the thread's layer for as long.
class SavedActivations : public SavedTensorHandler {
 public:
  std::unique_ptr<PackedTensor> next() override;
};

}  // namespace reprise::detail
