// SPDX-License-Identifier: Apache-2.0
/// See every operator that a thread calls: before it runs, with its arguments, and after it has
/// returned.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace c10 {
class OperatorHandle;
}

namespace reprise::detail {

/// What is known of an operator from its schema. One object per operator for the life of the
/// process, so that addresses identify operators.
struct OperatorInfo {
  std::string name;                        ///< "aten::add"
  std::string overload;                    ///< "Tensor"
  std::vector<std::string> arguments;      ///< names
  std::vector<std::size_t> written;        ///< indices of arguments that it may change in place
  bool may_draw_random_numbers = false;    ///< true of every operator that is not LibTorch's own
  bool changes_metadata_in_place = false;  ///< t_, squeeze_, detach_, ...
  bool makes_views = false;                ///< a result may share memory with an argument
  bool is_composite = false;               ///< calls other operators instead of having kernels
  bool is_of_libtorch = false;             ///< one that comes with LibTorch
  bool is_deterministic = true;            ///< false: two runs may differ in bits
  bool has_out_argument = false;           ///< fills an argument that is given for its results
  std::shared_ptr<const c10::OperatorHandle> handle = {};
};

/// One call of an operator that has not run yet.
struct OperatorCall {
  const OperatorInfo& info;
  std::span<const c10::IValue> arguments;  ///< as the caller gave them
  std::span<const c10::IValue> effective;  ///< as the operator gets them: see `replacement`
};

/// Hears of the operators of one thread. Operators that an observer calls itself are not observed.
class OperatorObserver {
 public:
  virtual ~OperatorObserver() = default;

  /// The tensor that the operator gets in place of `argument`; undefined: `argument` itself.
  virtual at::Tensor replacement(const at::Tensor& /*argument*/) { return {}; }

  /// Called before autocast casts the arguments of an operator; the operator itself follows, with
  /// the casts. Only where leaves are observed.
  virtual void before_casts(const OperatorCall& /*call*/) {}

  /// Whether it hears of the casts too, as of any operator. Which ones are made depends on what was
  /// cast before.
  virtual bool hears_casts() const { return false; }

  /// Called before an operator runs; what it throws comes out of the operator's call. Returns true
  /// when it has put the operator's results into `results`: then the operator does not run.
  virtual bool before_operator(const OperatorCall& call, std::vector<c10::IValue>& results) = 0;

  /// Called when an operator has returned. What it throws comes out of the operator's call.
  virtual void after_operator(const OperatorInfo& info, std::span<const c10::IValue> results) = 0;
};

/// Calls `visit(const at::Tensor&)` for every defined tensor in an argument or a result.
template <typename Visit>
void visit_tensors_of(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    const auto& tensor = value.toTensor();
    if (tensor.defined()) visit(tensor);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isInt()) break;  // sizes and strides: most lists are
      visit_tensors_of(element, visit);
    }
  }
}

/// Calls `visit(index, argument, effective)` for every defined tensor in the arguments of `call`.
template <typename Visit>
void visit_arguments(const OperatorCall& call, Visit&& visit) {
  const auto visit_pair = [&](std::size_t index, const c10::IValue& argument,
                              const c10::IValue& effective, const auto& self) -> void {
    if (argument.isTensor()) {
      if (argument.toTensor().defined()) visit(index, argument.toTensor(), effective.toTensor());
    } else if (argument.isList()) {
      const auto elements = argument.toListRef();
      const auto effective_elements = effective.toListRef();
      for (std::size_t i = 0; i < elements.size() && !elements[i].isInt(); ++i)
        self(index, elements[i], effective_elements[i], self);
    }
  };
  for (std::size_t i = 0; i < call.arguments.size(); ++i)
    visit_pair(i, call.arguments[i], call.effective[i], visit_pair);
}

/// Which operators an observer hears of.
enum class ObservedOperators {
  kOutermost,  ///< those that the thread's code calls
  /// Those with kernels, which the composite ones call. Autocast's casts: see `hears_casts`.
  kLeaves,
};

/// Adds `observer` to those that hear of this thread's operators, for as long as it lives. Several
/// are called from the outermost to the innermost; all hear of leaves when one of them asks for it.
/// Inside an operator that others observe it is the only one: to them the operator is one step.
class OperatorObserverScope {
 public:
  OperatorObserverScope(OperatorObserver& observer, ObservedOperators observed);
  ~OperatorObserverScope();
  OperatorObserverScope(const OperatorObserverScope&) = delete;
  OperatorObserverScope& operator=(const OperatorObserverScope&) = delete;

 private:
  std::vector<OperatorObserver*> hidden_observers_;
  int outer_leaf_depth_;
  bool was_excluded_;
  c10::impl::IncludeDispatchKeyGuard include_;
};

/// True where this thread's observers hear of leaves.
bool are_leaves_observed();

/// Keeps the operators called in its lifetime from being observed.
class UnobservedScope {
 public:
  UnobservedScope();

 private:
  c10::impl::ExcludeDispatchKeyGuard exclude_;
};

/// Runs an operator once more, below autograd, autocast and all observers: the arguments on `stack`
/// are replaced by the results. Gradient mode and arguments must be those of the first run: some
/// operators choose their kernel by them.
void run_again(const OperatorInfo& info, std::vector<c10::IValue>& stack);

/// The operators that the dispatcher knows by this name: "aten::add" has several overloads,
/// "aten::add.Tensor" is one.
std::vector<const OperatorInfo*> find_operators(const std::string& name);

}  // namespace reprise::detail
