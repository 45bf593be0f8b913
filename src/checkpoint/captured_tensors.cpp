// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/captured_tensors.h"

#include "autograd/stand_in.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

namespace reprise::detail {
namespace {

/// All bytes of the memory that `tensor` lies in, shared.
at::Tensor bytes_of(const at::Storage& storage) {
  const auto bytes = static_cast<std::int64_t>(storage.nbytes());
  auto tensor = at::empty({0}, at::TensorOptions(at::kByte).device(storage.device()));
  return tensor.set_(storage, 0, {bytes}, {1});
}

}  // namespace

void CapturedTensors::add_input(const at::Tensor& input) {
  note_read(input, input);
  const auto index = known_[identity_of(input)];
  captured_[static_cast<std::size_t>(index)].is_input = true;
}

void CapturedTensors::note_read(const at::Tensor& tensor, const at::Tensor& effective) {
  const auto next = static_cast<int>(captured_.size());
  const auto [known, is_new] = known_.emplace(identity_of(tensor), next);
  if (known->second == kMadeInside) return;
  if (is_new) {
    captured_.push_back(
        {.storage = weak_storage_of(tensor), .tensors = {}, .is_input = false, .bytes_before = {}});
  }
  if (!seen_.emplace(tensor.unsafeGetTensorImpl(), known->second).second) return;
  captured_[static_cast<std::size_t>(known->second)].tensors.push_back(
      {c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr()), TensorVersion(effective),
       Changed(effective)});
}

void CapturedTensors::note_write(const OperatorInfo& info, const at::Tensor& tensor,
                                 const at::Tensor& effective) {
  const int index = known_[identity_of(tensor)];
  if (index == kMadeInside) return;
  auto& captured = captured_[static_cast<std::size_t>(index)];
  const bool is_differentiated = effective.requires_grad() && at::GradMode::is_enabled();
  const char* reason = info.changes_metadata_in_place ? " is to keep its shape and its history"
                       : !effective.has_storage()     ? " has no storage of its own"
                       : is_differentiated && !captured.is_input
                           ? " needs a gradient and is no input of the region"
                           : nullptr;
  if (reason != nullptr) {
    throw_checkpoint_error(region_name_, info.name, " would change ", TensorMetadata(effective),
                           " in place, which comes from outside the region and", reason,
                           "; use the operator that is not in place, or clone the tensor inside "
                           "the function first");
  }
  being_written_.push_back({effective, effective.sizes().vec()});
  if (captured.bytes_before.defined()) return;
  const at::NoGradGuard no_grad;
  captured.bytes_before = bytes_of(effective.storage()).clone();
}

void CapturedTensors::before_operator(const OperatorCall& call) {
  being_written_.clear();
  visit_arguments(call, [&](std::size_t /*index*/, const at::Tensor& tensor,
                            const at::Tensor& effective) { note_read(tensor, effective); });
  if (call.info.written.empty()) return;
  visit_arguments(call,
                  [&](std::size_t index, const at::Tensor& tensor, const at::Tensor& effective) {
                    if (std::ranges::count(call.info.written, index) > 0)
                      note_write(call.info, tensor, effective);
                  });
}

void CapturedTensors::after_operator(const OperatorInfo& info,
                                     std::span<const c10::IValue> results) {
  for (const auto& [tensor, sizes] : std::exchange(being_written_, {})) {
    if (tensor.sizes() == sizes) continue;
    throw_checkpoint_error(region_name_, info.name, " has given the shape ", tensor.sizes(),
                           " to a tensor from outside the region, which had ",
                           at::IntArrayRef(sizes), "; give it its shape before");
  }
  for (const auto& result : results) {
    // Not pinned: what may be taken for it later was born inside the region as well.
    visit_tensors_of(result, [&](const at::Tensor& tensor) {
      known_.emplace(identity_of(tensor), kMadeInside);
    });
  }
}

void CapturedTensors::end_forward() {
  decltype(known_) kept;
  for (const auto& [identity, index] : known_) {
    if (index != kMadeInside) kept.emplace(identity, index);
  }
  known_ = std::move(kept);
}

const CapturedTensors::Captured* CapturedTensors::find(const void* identity) const {
  const auto found = known_.find(identity);
  if (found == known_.end() || found->second == kMadeInside) return nullptr;
  return &captured_[static_cast<std::size_t>(found->second)];
}

CapturedTensors::Changed::Changed(const at::Tensor& tensor)
    : identity(identity_of(tensor)),
      options(tensor.options()),
      requires_grad(tensor.requires_grad()) {
  if (!tensor.has_storage()) return;
  sizes = tensor.sizes();
  strides = tensor.strides();
  storage_offset = tensor.storage_offset();
  is_conj = tensor.is_conj();
  is_neg = tensor.is_neg();
}

const CapturedTensors::Seen* CapturedTensors::find_seen(const Captured& captured,
                                                        const at::Tensor& tensor) const {
  const auto found = std::ranges::find_if(captured.tensors, [&](const Seen& seen) {
    return seen.impl._unsafe_get_target() == tensor.unsafeGetTensorImpl();
  });
  return found == captured.tensors.end() ? nullptr : &*found;
}

std::optional<CapturedTensors::Changed> CapturedTensors::changed(const at::Tensor& tensor) const {
  const auto* captured = find(identity_of(tensor));
  if (captured == nullptr || !captured->bytes_before.defined()) return std::nullopt;
  if (const auto* seen = find_seen(*captured, tensor)) {
    auto changed = seen->shape;
    changed.identity = identity_of(tensor);
    return changed;
  }
  return Changed(tensor);
}

at::Tensor CapturedTensors::Replay::replacement(const at::Tensor& tensor) {
  const auto changed = captured_.changed(tensor);
  if (!changed) return {};
  auto& replacement = replacements_[tensor.unsafeGetTensorImpl()];
  if (!replacement.copy.defined()) replacement = {tensor, copy_of(*changed)};
  return replacement.copy;
}

at::Tensor CapturedTensors::Replay::copy_of(const Changed& changed) {
  const at::NoGradGuard no_grad;
  const auto* captured = captured_.find(changed.identity);
  auto& bytes = bytes_[captured];
  if (!bytes.defined()) bytes = captured->bytes_before.clone();
  auto copy = at::empty({0}, changed.options);
  copy.set_(bytes.storage(), changed.storage_offset, changed.sizes, changed.strides);
  copy._set_conj(changed.is_conj);
  copy._set_neg(changed.is_neg);
  // One counter for all of them: a change through one is a change of the others.
  copy.unsafeGetTensorImpl()->set_version_counter(bytes.unsafeGetTensorImpl()->version_counter());
  if (!changed.requires_grad) return copy;
  // Not a leaf: those may not be changed in place.
  return stand_in(copy, {},
                  captured_.region_name_ +
                      "the function runs backward through a tensor that it "
                      "changes in place");
}

void CapturedTensors::Replay::check(const OperatorCall& call) const {
  visit_arguments(call, [&](std::size_t index, const at::Tensor& tensor, const at::Tensor&) {
    const auto describe = [&] {
      return c10::str(captured_.region_name_, TensorMetadata(tensor), ", argument ",
                      call.info.arguments[index], " of ", call.info.name);
    };
    const auto* captured = captured_.find(identity_of(tensor));
    if (captured == nullptr) {
      if (captured_.seen_.count(tensor.unsafeGetTensorImpl()) > 0)
        throw_checkpoint_error(describe(), ", was given other memory after forward");
      return;
    }
    if (captured->bytes_before.defined()) return;
    const auto changed = std::ranges::find_if_not(
        captured->tensors, [](const Seen& seen) { return seen.version.is_current(); });
    if (changed == captured->tensors.end()) return;
    throw_checkpoint_error(describe(),
                           ", was modified by an inplace operation after forward: it "
                           "is at version ",
                           changed->version.current(), ", expected version ",
                           changed->version.expected());
  });
}

}  // namespace reprise::detail
