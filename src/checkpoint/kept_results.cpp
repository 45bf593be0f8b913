// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/kept_results.h"

#include "autograd/stand_in.h"
#include "checkpoint/tensor_metadata.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

namespace reprise::detail {
namespace {

bool is_same_view(const at::Tensor& a, const at::Tensor& b) {
  return identity_of(a) == identity_of(b) && a.scalar_type() == b.scalar_type() &&
         a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg() && a.sizes() == b.sizes() &&
         (!a.has_storage() ||
          (a.storage_offset() == b.storage_offset() && a.strides() == b.strides()));
}

std::vector<at::Tensor> tensors_of(std::span<const c10::IValue> values) {
  std::vector<at::Tensor> tensors;
  for (const auto& value : values) {
    visit_tensors_of(value, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  }
  return tensors;
}

KeptOperator::Result kept_result(const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return {.value = value, .version = {}};
  const auto& tensor = value.toTensor();
  return {.value = tensor.detach(),
          .version = TensorVersion(tensor),
          .requires_grad = tensor.requires_grad()};
}

}  // namespace

bool can_keep(const OperatorInfo& info) {
  return info.written.empty() && !info.makes_views && !info.is_composite;
}

void KeptResults::copy_before_change(const at::Tensor& written) {
  const auto found = kept_memory_.find(identity_of(written));
  if (found == kept_memory_.end()) return;
  for (auto& result : kept_.at(found->second).results) {
    if (!result.version || identity_of(result.value.toTensor()) != found->first) continue;
    const at::NoGradGuard no_grad;
    result.value = result.value.toTensor().clone();
    result.is_changed_later = true;
  }
  kept_memory_.erase(found);
}

void KeptResults::before_operator(const OperatorCall& call) {
  if (!is_active()) return;
  operators_.push_back(&call.info);
  for (const auto index : call.info.written) {
    visit_tensors_of(call.arguments[index],
                     [&](const at::Tensor& tensor) { copy_before_change(tensor); });
  }
  if (!can_keep(call.info)) return;
  arguments_ = tensors_of(call.arguments);
  random_state_before_ = call.info.may_draw_random_numbers ? RandomState() : RandomState::empty();
  for (const auto& argument : call.arguments) {
    if (argument.isGenerator()) random_state_before_.add(argument.toGenerator());
  }
}

void KeptResults::after_operator(const OperatorInfo& info, std::span<const c10::IValue> results,
                                 const std::vector<at::Tensor>& saved_tensors) {
  if (!is_active() || !can_keep(info)) return;
  const bool has_lists =
      std::ranges::any_of(results, [](const c10::IValue& result) { return result.isList(); });
  const auto tensors = tensors_of(results);
  // A result over an argument's memory, whatever the schema says, is none to keep.
  const bool has_views = std::ranges::any_of(tensors, [&](const at::Tensor& result) {
    return std::ranges::any_of(arguments_, [&](const at::Tensor& argument) {
      return identity_of(argument) == identity_of(result);
    });
  });
  if (!has_lists && !has_views && !tensors.empty() &&
      policy_.keeps({info.name, info.overload, tensors}))
    keep(info, results, saved_tensors);
  arguments_.clear();
}

SavedSource KeptResults::source_of(const at::Tensor& saved,
                                   std::span<const c10::IValue> results) const {
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    if (is_same_view(saved, arguments_[i])) return {SavedSource::Kind::kArgument, i, {}};
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i].isTensor() && results[i].toTensor().defined() &&
        is_same_view(saved, results[i].toTensor()))
      return {SavedSource::Kind::kResult, i, {}};
  }
  return {SavedSource::Kind::kOwn, 0, saved};
}

void KeptResults::keep(const OperatorInfo& info, std::span<const c10::IValue> results,
                       const std::vector<at::Tensor>& saved_tensors) {
  const std::size_t position = operators_.size() - 1;
  KeptOperator kept{
      .info = &info, .results = {}, .saved_tensors = {}, .random_state_after = std::nullopt};
  for (const auto& result : results) {
    kept.results.push_back(kept_result(result));
    if (kept.results.back().version) kept_memory_[identity_of(result.toTensor())] = position;
  }
  for (const auto& saved : saved_tensors) kept.saved_tensors.push_back(source_of(saved, results));
  auto random_state = random_state_before_.now();
  if (random_state != random_state_before_) kept.random_state_after = std::move(random_state);
  kept_.emplace(position, std::move(kept));
}

void KeptResults::end_forward() {
  arguments_.clear();  // of an operator that failed: they may hold the region itself
  kept_memory_.clear();
}

const KeptOperator* KeptResults::at(std::size_t index, const OperatorInfo& info) const {
  if (!is_active()) return nullptr;
  if (index >= operators_.size() || operators_[index] != &info) {
    throw_checkpoint_error(region_name_, "the recomputation runs ", info.name,
                           " where forward ran ",
                           index < operators_.size() ? operators_[index]->name : "nothing more",
                           "; with a save policy the function must run the same operators in both "
                           "runs");
  }
  const auto found = kept_.find(index);
  if (found == kept_.end()) return nullptr;
  // What was changed since forward (a result of the region that is changed in place) is lost.
  const bool is_lost = std::ranges::any_of(found->second.results, [](const auto& result) {
    return result.version && !result.is_changed_later && !result.version->is_current();
  });
  return is_lost ? nullptr : &found->second;
}

std::vector<c10::IValue> KeptResults::results_of(const KeptOperator& kept,
                                                 const std::vector<at::Tensor>& arguments) const {
  std::vector<c10::IValue> values;
  for (const auto& result : kept.results) {
    if (!result.version) {
      values.push_back(result.value);
      continue;
    }
    auto tensor = result.value.toTensor();
    const at::NoGradGuard no_grad;
    tensor = result.is_changed_later ? tensor.clone() : tensor.detach();
    if (result.requires_grad) {
      tensor = stand_in(tensor, arguments,
                        c10::str(region_name_, "the function differentiates through ",
                                 kept.info->name, ", whose result the save policy keeps"));
    }
    values.emplace_back(std::move(tensor));
  }
  return values;
}

}  // namespace reprise::detail
