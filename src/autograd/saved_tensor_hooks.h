// SPDX-License-Identifier: Apache-2.0
/// Saved-tensor hooks in C++: decide what autograd keeps of each tensor it saves for backward.
///
/// LibTorch asks its engine for the default hooks of every tensor it saves. The Python engine
/// answers with Python hooks; ours answers with the innermost handler of the thread, and leaves
/// everything else to LibTorch's own engine.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace reprise::detail {

/// Has LibTorch ask our engine for hooks from now on. Besides, a backward pass that fails then
/// leaves nothing of its graph in the thread, whose next pass would otherwise be the first to free
/// it.
void install_engine();

/// What is kept of one saved tensor. Destroyed when autograd lets go of the tensor.
class PackedTensor : public torch::autograd::SavedVariableHooks {
 public:
  /// Called once, when autograd saves `tensor`. It may carry its gradient history: who keeps it
  /// keeps `without_history(tensor)`, or makes a cycle.
  virtual void pack(const at::Tensor& tensor) = 0;
  /// The tensor's value. Called when backward needs it: any number of times, from any thread.
  virtual at::Tensor unpack() = 0;

 private:
  void call_pack_hook(const at::Tensor& tensor) final { pack(tensor); }
  at::Tensor call_unpack_hook() final { return unpack(); }
};

class SavedTensorHandler {
 public:
  virtual ~SavedTensorHandler() = default;
  /// Called for each tensor that autograd saves in the handler's scope, before it packs it.
  virtual std::unique_ptr<PackedTensor> next() = 0;
};

/// The tensor itself, with its version counter, outside every graph.
inline at::Tensor without_history(const at::Tensor& tensor) {
  return tensor.tensor_data();
}

/// Makes `handler` the innermost handler of this thread for as long as it lives.
class SavedTensorScope {
 public:
  explicit SavedTensorScope(SavedTensorHandler& handler);
  ~SavedTensorScope();
  SavedTensorScope(const SavedTensorScope&) = delete;
  SavedTensorScope& operator=(const SavedTensorScope&) = delete;
};

/// One tensor saved as an operator saves its input: by the innermost handler if there is one, else
/// kept itself, and refused at `unpack` if it was changed in place since.
class SavedInput {
 public:
  explicit SavedInput(const at::Tensor& tensor);
  ~SavedInput();
  SavedInput(SavedInput&&) noexcept;
  SavedInput(const SavedInput&) = delete;

  at::Tensor unpack() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reprise::detail
