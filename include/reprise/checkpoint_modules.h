// SPDX-License-Identifier: Apache-2.0
/// Checkpointing for modules: a wrapper for one module, segments of a sequential one.
#pragma once

#include "reprise/checkpoint.h"

#include <torch/nn/modules/container/sequential.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace reprise {

namespace detail {

/// `Result(Arguments...)` of a module's `forward`; void where that is a template, overloaded or has
/// default arguments.
template <typename Module>
struct ForwardSignature {
  template <typename Result, typename Class, typename... Arguments>
  static auto of(Result (Class::*)(Arguments...)) -> Result (*)(Arguments...);
  template <typename Result, typename Class, typename... Arguments>
  static auto of(Result (Class::*)(Arguments...) const) -> Result (*)(Arguments...);

  /// `forward` takes fewer arguments as well.
  template <typename Result, typename... Arguments>
  static constexpr bool has_defaults(Result (*)(Arguments...)) {
    if constexpr (sizeof...(Arguments) == 0) {
      return false;
    } else {
      return []<std::size_t... I>(std::index_sequence<I...>) {
        using All = std::tuple<Arguments...>;
        return requires(Module& module) {
          module.forward(std::declval<std::tuple_element_t<I, All>>()...);
        };
      }(std::make_index_sequence<sizeof...(Arguments) - 1>());
    }
  }

  static auto find() {
    if constexpr (requires { of(&Module::forward); }) {
      using Pointer = decltype(of(&Module::forward));
      if constexpr (!has_defaults(Pointer{})) return Pointer{};
    }
  }
  using Type = std::remove_pointer_t<decltype(find())>;
};

/// What all checkpointed modules share.
template <typename Module, typename Derived>
class CheckpointedBase : public Module {
 public:
  using Module::Module;
  /// A checkpointed module that shares the parameters of `module`.
  explicit CheckpointedBase(const Module& module) : Module(module) {}

  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override {
    auto copy = std::make_shared<Derived>(dynamic_cast<const Module&>(*Module::clone(device)));
    copy->checkpoint_options = checkpoint_options;
    return copy;
  }

  CheckpointOptions checkpoint_options = {};

 protected:
  template <typename... Inputs>
  auto run(Inputs... inputs) {
    // The graph must keep the parameters, as it does for a plain module; one that no shared_ptr
    // owns has to outlive the backward pass.
    auto owner = this->weak_from_this().lock();
    return checkpoint(
        checkpoint_options,
        [this, owner = std::move(owner)](Inputs&... values) { return Module::forward(values...); },
        std::move(inputs)...);
  }
};

}  // namespace detail

/// `Module` whose forward pass is a checkpointed region. It is a `Module` in every other respect:
/// names of parameters, saving, loading, `train()`, `to()`, as a part of others.
template <typename Module, typename Forward = typename detail::ForwardSignature<Module>::Type>
class CheckpointedImpl
    : public detail::CheckpointedBase<Module, CheckpointedImpl<Module, Forward>> {
 public:
  using detail::CheckpointedBase<Module, CheckpointedImpl>::CheckpointedBase;

  template <typename... Inputs>
  auto forward(Inputs... inputs) {
    return this->run(std::move(inputs)...);
  }
};

/// The same where `forward` has one signature: such a module may be put into a `Sequential`.
template <typename Module, typename Result, typename... Arguments>
class CheckpointedImpl<Module, Result(Arguments...)>
    : public detail::CheckpointedBase<Module, CheckpointedImpl<Module, Result(Arguments...)>> {
 public:
  using detail::CheckpointedBase<Module, CheckpointedImpl>::CheckpointedBase;

  Result forward(Arguments... arguments) {
    return this->run(std::decay_t<Arguments>(arguments)...);
  }
};

/// The wrapper as a module holder: `Checkpointed<torch::nn::Linear> layer(8, 16);`
template <typename Holder>
using Checkpointed = torch::nn::ModuleHolder<CheckpointedImpl<typename Holder::ContainedType>>;

/// Runs `modules` on `input` in `segments` regions of as equal a number of modules as possible. The
/// last one runs plainly: its backward pass comes first, so it would be computed again at once.
/// Keeps the inputs of the segments and the inside of one at a time: about 2 sqrt(n) of n equal
/// activations with sqrt(n) segments (Chen et al. 2016, "Training Deep Nets with Sublinear Memory
/// Cost"). Throws `OptionError` unless 1 <= segments <= number of modules.
at::Tensor checkpoint_sequential(const torch::nn::Sequential& modules, std::int64_t segments,
                                 const at::Tensor& input, const CheckpointOptions& options = {});

}  // namespace reprise
