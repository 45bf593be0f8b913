// SPDX-License-Identifier: Apache-2.0
#include "autograd/operator_observer.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace reprise::detail {
namespace {

// A key that LibTorch reserves for modes of this kind; it sits above autograd and autocast.
constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local OperatorObserver* current_observer = nullptr;

void observe(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/,
             torch::jit::Stack* stack) {
  {
    const c10::impl::ExcludeDispatchKeyGuard exclude(kKey);
    op.callBoxed(stack);
  }
  if (current_observer != nullptr) current_observer->after_operator();
}

c10::DispatchKey registered_key() {
  // From a function: a static registration in an archive may be dropped by the linker. Never
  // destroyed: see Engine.
  static auto* library = [] {
    auto* made = new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    made->fallback(torch::CppFunction::makeFromBoxedFunction<&observe>());
    return made;
  }();
  static_cast<void>(library);
  return kKey;
}

}  // namespace

OperatorObserverScope::OperatorObserverScope(OperatorObserver& observer)
    : outer_(current_observer), include_(registered_key()) {
  current_observer = &observer;
}

OperatorObserverScope::~OperatorObserverScope() {
  current_observer = outer_;
}

}  // namespace reprise::detail
