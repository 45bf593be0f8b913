// SPDX-License-Identifier: Apache-2.0
/// See every operator that a thread calls.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace reprise::detail {

class OperatorObserver {
 public:
  virtual ~OperatorObserver() = default;
  /// Called when an operator has returned. What it throws comes out of the operator's call.
  virtual void after_operator() = 0;
};

/// Makes `observer` the one that hears of this thread's outermost operators for as long as it
/// lives.
class OperatorObserverScope {
 public:
  explicit OperatorObserverScope(OperatorObserver& observer);
  ~OperatorObserverScope();
  OperatorObserverScope(const OperatorObserverScope&) = delete;
  OperatorObserverScope& operator=(const OperatorObserverScope&) = delete;

 private:
  OperatorObserver* outer_;
  c10::impl::IncludeDispatchKeyGuard include_;
};

}  // namespace reprise::detail
