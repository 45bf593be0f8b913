// SPDX-License-Identifier: Apache-2.0
/// Run part of a model without keeping its activations; its backward pass computes them again.
#pragma once

#include "reprise/checkpoint_error.h"
#include "reprise/save_policy.h"
#include "reprise/tensor_fields.h"

#include <ATen/core/Tensor.h>

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace reprise {

/// What a recomputation is compared with, beyond the number of its saved tensors.
enum class Verification {
  kOff,       ///< nothing
  kMetadata,  ///< shape, type and device of each saved tensor
  kValues,    ///< and a checksum of its bytes: finds whatever else differs, at one more pass over
              ///< the saved tensors in forward and in backward
};

struct CheckpointOptions {
  std::string name = {};        ///< begins the messages of this region's errors
  SavePolicy save_policy = {};  ///< operators whose results are kept; the default keeps none
  Verification verification = Verification::kMetadata;
  bool early_stop = true;  ///< end the recomputation at the last tensor that backward needs;
                           ///< false: run the function to its end
};

namespace detail {

/// Calls the user's function on inputs whose tensors are replaced by `tensors`, and moves what it
/// returns to `*result` unless that is null.
using RegionFunction = std::function<void(const std::vector<at::Tensor>& tensors, void* result)>;

/// Calls `function` itself, or `forward` of the module that it holds.
template <typename Function, typename... Inputs>
auto call(Function& function, Inputs&... inputs) {
  if constexpr (std::is_invocable_v<Function&, Inputs&...>) {
    static_assert(!std::is_reference_v<std::invoke_result_t<Function&, Inputs&...>>,
                  "checkpoint: return values, not references");
    return std::invoke(function, inputs...);
  } else {
    return function->forward(inputs...);
  }
}

void run_region(const CheckpointOptions& options, RegionFunction function,
                const std::vector<at::Tensor>& inputs, void* result);

}  // namespace detail

/// Runs `function(inputs...)` without keeping the tensors that autograd saves in it, and returns
/// what it returns.
///
/// `function` is any callable or module holder. Inputs are copied; every tensor in them
/// (in optionals, vectors, arrays, pairs, tuples, maps, and structs with `TensorFields`) is an
/// input of the region. What it returns may be of any type.
///
/// The first saved tensor that backward asks for runs `function` once more, with the random number
/// generators it used, the autocast state, gradient mode, default type, current device, thread
/// count and other thread-local state of forward; all are put back afterwards, so the random stream
/// goes on as if nothing had been recomputed. Tensors from outside that `function` changes in place
/// (running statistics, counters, caches) are changed once: the second run works on copies of their
/// earlier values. Gradients are bitwise those of a plain call where the kernels are deterministic.
/// Kept are the inputs, what `function` captures, the results that the policy names, those earlier
/// values (the whole memory that such a tensor lies in), and the generators' states (2.5 KB, where
/// random numbers are drawn).
///
/// Throws `CheckpointError`
/// - in forward, naming the operator, before `function` changes in place, in gradient mode, a
///   tensor that needs a gradient and is captured instead of an input;
/// - in backward, naming the tensor, when an input or a captured tensor that the recomputation
///   reads was changed in place since forward, when a saved tensor is changed in place inside (as
///   plain autograd does), or when the recomputation saves other tensors than forward did; with a
///   save policy also when it runs other operators;
/// - in backward when `function` swallowed the exception that ends a recomputation.
/// After any exception the region is as before and backward may be tried again. Backward may be
/// partial, repeated (`retain_graph`), with respect to chosen inputs, and differentiated again.
///
/// Side effects other than on tensors happen twice; see `in_recompute`. What cannot be noticed
/// (writes through raw pointers, operators that `function` runs on other threads, members that it
/// replaces instead of changing in place, ...) is listed in docs/how-checkpointing-works.md.
/// Destructors that run operators must not be `noexcept(true)` where the recomputation may end in
/// them. Regions may be nested, and run backward from several threads.
template <typename Function, typename... Inputs>
auto checkpoint(const CheckpointOptions& options, Function function, Inputs... inputs) {
  using Result = decltype(detail::call(function, inputs...));
  std::vector<at::Tensor> tensors;
  std::tuple<Inputs...> rest(std::move(inputs)...);
  // The region keeps its tensors apart from the rest, to see whether they are changed.
  detail::visit_tensors(
      rest, [&](at::Tensor& tensor) { tensors.push_back(std::exchange(tensor, at::Tensor())); });
  // Shared, because a std::function wants to be copied and `function` may not allow it.
  auto call = [shared = std::make_shared<Function>(std::move(function)), rest = std::move(rest)](
                  const std::vector<at::Tensor>& values, void* result) {
    auto arguments = rest;
    auto next = values.begin();
    detail::visit_tensors(arguments, [&](at::Tensor& tensor) { tensor = *next++; });
    const auto run = [&](Inputs&... given) {
      return detail::call(*shared, given...);
    };
    if constexpr (std::is_void_v<Result>) {
      std::apply(run, arguments);
    } else if (result != nullptr) {
      static_cast<std::optional<Result>*>(result)->emplace(std::apply(run, arguments));
    } else {
      static_cast<void>(std::apply(run, arguments));
    }
  };
  if constexpr (std::is_void_v<Result>) {
    detail::run_region(options, std::move(call), tensors, nullptr);
  } else {
    std::optional<Result> result;
    detail::run_region(options, std::move(call), tensors, &result);
    return Result(std::move(*result));
  }
}

/// The same with default options.
template <typename Function, typename... Inputs>
  requires(!std::same_as<std::remove_cvref_t<Function>, CheckpointOptions>)
auto checkpoint(Function function, Inputs... inputs) {
  return checkpoint(CheckpointOptions{}, std::move(function), std::move(inputs)...);
}

/// True while a region's function runs for the second time: for code with side effects that must
/// happen once.
bool in_recompute();

}  // namespace reprise
