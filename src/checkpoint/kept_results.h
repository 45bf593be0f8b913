// SPDX-License-Identifier: Apache-2.0
/// The operators of a region whose results are kept, so that its recomputation skips them.
#pragma once

#include "autograd/forward_context.h"
#include "autograd/operator_observer.h"
#include "autograd/tensor_version.h"
#include "reprise/save_policy.h"

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace reprise::detail {

/// True for operators that make new tensors, and nothing else.
bool can_keep(const OperatorInfo& info);

/// Where a skipped operator's saved tensor comes from.
struct SavedSource {
  enum class Kind { kArgument, kResult, kOwn };
  Kind kind;
  std::size_t index;  // of the argument's tensor or of the result
  at::Tensor own;     // kept itself: neither argument nor result
};

/// One operator whose results are kept.
struct KeptOperator {
  struct Result {
    c10::IValue value;  // a detached tensor, or what else the operator returned
    std::optional<TensorVersion> version;
    bool requires_grad = false;
    bool is_changed_later = false;  // in place, in the region: the value is a copy
  };

  const OperatorInfo* info;
  std::vector<Result> results;
  std::vector<SavedSource> saved_tensors;  // what autograd saved in it, in order
  std::optional<RandomState> random_state_after;
};

/// Filled by the operators of the forward pass.
class KeptResults {
 public:
  KeptResults(SavePolicy policy, const std::string& region_name)
      : policy_(std::move(policy)), region_name_(region_name) {}

  bool is_active() const { return policy_.keeps_anything(); }

  void before_operator(const OperatorCall& call);
  /// `saved_tensors` are those that autograd saved for this region while the operator ran.
  void after_operator(const OperatorInfo& info, std::span<const c10::IValue> results,
                      const std::vector<at::Tensor>& saved_tensors);
  void end_forward();

  /// The operator that forward ran as number `index`, if its results are kept and nobody has
  /// changed them since. Throws
  /// `CheckpointError` where forward ran another operator there.
  const KeptOperator* at(std::size_t index, const OperatorInfo& info) const;
  /// The results of `kept` as the operator would return them for the tensors in `arguments`.
  std::vector<c10::IValue> results_of(const KeptOperator& kept,
                                      const std::vector<at::Tensor>& arguments) const;

 private:
  void keep(const OperatorInfo& info, std::span<const c10::IValue> results,
            const std::vector<at::Tensor>& saved_tensors);
  SavedSource source_of(const at::Tensor& saved, std::span<const c10::IValue> results) const;
  void copy_before_change(const at::Tensor& written);

  SavePolicy policy_;
  const std::string& region_name_;
  std::vector<const OperatorInfo*> operators_;                // of the forward pass, in order
  std::unordered_map<std::size_t, KeptOperator> kept_;        // by position in operators_
  std::unordered_map<const void*, std::size_t> kept_memory_;  // position by memory
  // Of the running operator, where it may be kept:
  std::vector<at::Tensor> arguments_;
  RandomState random_state_before_ = RandomState::empty();
};

}  // namespace reprise::detail
