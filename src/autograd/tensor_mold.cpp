// SPDX-License-Identifier: Apache-2.0
#include "autograd/tensor_mold.h"

#include <c10/core/TensorImpl.h>

#include <utility>

namespace reprise::detail {
namespace {

/// The keys of a strided tensor, which a mold can make again.
constexpr c10::DispatchKeySet kPlainKeys =
    c10::DispatchKeySet(c10::BackendComponent::CPUBit) |
    c10::DispatchKeySet(c10::BackendComponent::CUDABit) |
    c10::DispatchKeySet({c10::DispatchKey::Dense, c10::DispatchKey::AutogradFunctionality,
                         c10::DispatchKey::ADInplaceOrView, c10::DispatchKey::Conjugate,
                         c10::DispatchKey::Negative}) |
    c10::autocast_dispatch_keyset;

}  // namespace

bool TensorMold::fits(const at::Tensor& tensor) {
  return tensor.has_storage() && !tensor.is_inference() && kPlainKeys.has_all(tensor.key_set());
}

TensorMold::TensorMold(const at::Tensor& tensor)
    : sizes_(tensor.sizes()),
      strides_(tensor.strides()),
      storage_offset_(tensor.storage_offset()),
      keys_(tensor.key_set()),
      dtype_(tensor.dtype()),
      device_(tensor.device()),
      requires_grad_(tensor.requires_grad()) {}

at::Tensor TensorMold::over(c10::Storage storage) const {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys_, dtype_);
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(sizes_, strides_, storage_offset_);
  return tensor;
}

bool TensorMold::covers(std::size_t bytes) const {
  // Without gaps or overlaps the largest index is the number of elements less one.
  std::int64_t numel = 1;
  std::int64_t largest_index = 0;
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    numel *= sizes_[i];
    largest_index += (sizes_[i] - 1) * strides_[i];
  }
  if (storage_offset_ != 0 || largest_index + 1 != numel) return false;
  if (static_cast<std::size_t>(numel) * dtype_.itemsize() != bytes) return false;
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    if (strides_[i] <= 0 && sizes_[i] > 1) return false;
  }
  return true;
}

}  // namespace reprise::detail
