// SPDX-License-Identifier: Apache-2.0
/// Everything of a tensor but its memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Storage.h>
#include <c10/util/SmallVector.h>
#include <c10/util/typeid.h>

#include <cstddef>
#include <cstdint>

namespace reprise::detail {

/// The shape, type and place of a tensor in a storage: makes the same tensor over another one.
class TensorMold {
 public:
  TensorMold() = default;
  explicit TensorMold(const at::Tensor& tensor);

  /// False for tensors that are more than a strided piece of a storage: sparse, nested, quantised,
  /// functional ones, and those of inference mode.
  static bool fits(const at::Tensor& tensor);

  /// The tensor over `storage`, outside every graph.
  at::Tensor over(c10::Storage storage) const;

  c10::Device device() const { return device_; }
  bool requires_grad() const { return requires_grad_; }
  /// Whether the tensor is all of a storage of so many bytes, without gaps.
  bool covers(std::size_t bytes) const;
  bool operator==(const TensorMold& other) const = default;

 private:
  c10::SmallVector<std::int64_t, 4> sizes_;
  c10::SmallVector<std::int64_t, 4> strides_;
  std::int64_t storage_offset_ = 0;
  c10::DispatchKeySet keys_;
  caffe2::TypeMeta dtype_;
  c10::Device device_ = c10::Device(c10::kCPU);
  bool requires_grad_ = false;
};

}  // namespace reprise::detail
