// SPDX-License-Identifier: Apache-2.0
/// Notice whether a tensor was changed in place.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace reprise::detail {

/// How often `tensor` was changed in place. Tensors made in inference mode do not count: 0.
inline std::int64_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<std::int64_t>(tensor._version());
}

/// The version of a tensor and of all that share its counter (its views, its base) at one moment.
/// Keeps the counter alive, not the tensor.
class TensorVersion {
 public:
  explicit TensorVersion(const at::Tensor& tensor)
      : counter_(tensor.unsafeGetTensorImpl()->version_counter()), expected_(current()) {}

  std::int64_t expected() const { return expected_; }
  std::int64_t current() const {
    return counter_.enabled() ? static_cast<std::int64_t>(counter_.current_version()) : 0;
  }
  bool is_current() const { return current() == expected_; }

 private:
  c10::VariableVersion counter_;
  std::int64_t expected_;
};

}  // namespace reprise::detail
