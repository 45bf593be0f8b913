// SPDX-License-Identifier: Apache-2.0
#include "autograd/saved_tensor_hooks.h"

#include "autograd/operator_observer.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <mutex>
#include <vector>

namespace reprise::detail {
namespace {

using torch::autograd::Engine;
using torch::autograd::SavedVariableHooks;

thread_local std::vector<SavedTensorHandler*> handlers;

/// Runs every backward pass on LibTorch's own engine: device threads start once per process, so an
/// engine installed after the first backward pass would have no queues of its own.
class HookedEngine : public Engine {
 public:
  ~HookedEngine() override { stop(); }

  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots,
                                         const torch::autograd::variable_list& inputs,
                                         bool keep_graph, bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    ++depth;
    try {
      auto gradients = get_base_engine().execute(roots, inputs, keep_graph, create_graph,
                                                 accumulate_grad, outputs);
      --depth;
      return gradients;
    } catch (...) {
      if (--depth == 0) drop_tasks_left_behind();
      throw;
    }
  }

  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<torch::autograd::GraphTask>& graph_task,
      c10::intrusive_ptr<torch::autograd::Node> graph_root,
      torch::autograd::InputBuffer&& input_buffer) override {
    return get_base_engine().execute_with_graph_task(graph_task, std::move(graph_root),
                                                     std::move(input_buffer));
  }

  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (handlers.empty()) return nullptr;
    return handlers.back()->next();
  }

  /// A backward pass that fails leaves its next tasks in the thread's queue, and with them the
  /// graph and all that it saved. The next pass of the thread drops them: here is one.
  static void drop_tasks_left_behind() {
    try {
      const UnobservedScope unobserved;
      const at::AutoGradMode with_gradients(true);
      const auto leaf = at::zeros({}).requires_grad_(true);
      const auto root = leaf * 2;
      get_base_engine().execute({torch::autograd::impl::gradient_edge(root)}, {at::ones({})},
                                /*keep_graph=*/false, /*create_graph=*/false,
                                /*accumulate_grad=*/true, {});
    } catch (const std::exception&) {  // of what went wrong, the first error says more
    }
  }

  static Engine& get() {
    // Never destroyed: backward may still run while static objects go.
    static auto* engine = new HookedEngine;
    return *engine;
  }

 private:
  static inline thread_local int depth = 0;  // of backward passes inside each other
};

}  // namespace

void install_engine() {
  static std::once_flag once;
  std::call_once(once, [] { torch::autograd::set_default_engine_stub(&HookedEngine::get); });
}

SavedTensorScope::SavedTensorScope(SavedTensorHandler& handler) {
  install_engine();
  handlers.push_back(&handler);
}

SavedTensorScope::~SavedTensorScope() {
  handlers.pop_back();
}

struct SavedInput::Impl {
  torch::autograd::SavedVariable variable;
};

SavedInput::SavedInput(const at::Tensor& tensor)
    : impl_(std::make_unique<Impl>(
          Impl{torch::autograd::SavedVariable(tensor, /*is_output=*/false)})) {}
SavedInput::~SavedInput() = default;
SavedInput::SavedInput(SavedInput&&) noexcept = default;

at::Tensor SavedInput::unpack() const {
  return impl_->variable.unpack();
}

}  // namespace reprise::detail
