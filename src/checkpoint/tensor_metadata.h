// SPDX-License-Identifier: Apache-2.0
/// What a recomputed tensor is compared by, and how messages name it.
#pragma once

#include "reprise/checkpoint_error.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <ostream>
#include <utility>

namespace reprise::detail {

struct TensorMetadata {
  c10::SmallVector<std::int64_t, 5> sizes;
  at::ScalarType dtype;
  at::Device device;

  explicit TensorMetadata(const at::Tensor& tensor)
      : sizes(tensor.sizes()), dtype(tensor.scalar_type()), device(tensor.device()) {}

  bool describes(const at::Tensor& tensor) const {
    return tensor.sizes() == sizes && tensor.scalar_type() == dtype && tensor.device() == device;
  }
};

inline std::ostream& operator<<(std::ostream& out, const TensorMetadata& metadata) {
  return out << metadata.dtype << at::IntArrayRef(metadata.sizes) << " on " << metadata.device;
}

/// Throws `CheckpointError` with the parts of its message written one after the other.
template <typename... Parts>
[[noreturn]] void throw_checkpoint_error(const Parts&... parts) {
  throw CheckpointError({__func__, __FILE__, __LINE__}, c10::str(parts...));
}

/// The memory of a tensor, by which views of it are recognised; the tensor itself where it has none
/// of its own (a sparse one).
inline const void* identity_of(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return tensor.unsafeGetTensorImpl();
  return tensor.storage().unsafeGetStorageImpl();
}

/// Null where the tensor has no storage.
inline c10::weak_intrusive_ptr<c10::StorageImpl> weak_storage_of(const at::Tensor& tensor) {
  if (!tensor.has_storage())
    return c10::weak_intrusive_ptr<c10::StorageImpl>(c10::intrusive_ptr<c10::StorageImpl>());
  return tensor.storage().getWeakStorageImpl();
}

}  // namespace reprise::detail
