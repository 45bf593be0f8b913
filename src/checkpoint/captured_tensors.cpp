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
    captured_.push_back({.storage = weak_storage_of(tensor),
                         .versions = {},
                         .requires_grad = effective.requires_grad(),
                         .bytes_before = {}});
  }
  auto& versions = captured_[static_cast<std::size_t>(known->second)].versions;
  const bool is_counted = std::ranges::any_of(
      versions, [&](const auto& version) { return version.counts_for(effective); });
  if (!is_counted) versions.emplace_back(effective);
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

std::optional<CapturedTensors::Changed> CapturedTensors::changed(const at::Tensor& tensor) const {
  const auto* captured = find(identity_of(tensor));
  if (captured == nullptr || !captured->bytes_before.defined()) return std::nullopt;
  return Changed{.identity = identity_of(tensor),
                 .sizes = tensor.sizes().vec(),
                 .strides = tensor.strides().vec(),
                 .storage_offset = tensor.storage_offset(),
                 .options = tensor.options(),
                 .is_conj = tensor.is_conj(),
                 .is_neg = tensor.is_neg(),
                 // What became part of a graph by being changed was none before.
                 .requires_grad = captured->requires_grad && tensor.requires_grad()};
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
    const auto* captured = captured_.find(identity_of(tensor));
    if (captured == nullptr || captured->bytes_before.defined()) return;
    const auto changed = std::ranges::find_if_not(captured->versions, &TensorVersion::is_current);
    if (changed == captured->versions.end()) return;
    throw_checkpoint_error(captured_.region_name_, TensorMetadata(tensor), ", argument ",
                           call.info.arguments[index], " of ", call.info.name,
                           ", was modified by an inplace operation after forward: it is at "
                           "version ",
                           changed->current(), ", expected version ", changed->expected());
  });
}

}  // namespace reprise::detail
