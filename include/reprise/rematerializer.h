// SPDX-License-Identifier: Apache-2.0
/// Trains any model within a number of bytes: what does not fit is computed again when backward
/// needs it.
#pragma once

#include "reprise/remat_plan.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace reprise {

struct RematerializerOptions {
  /// Most that the tensors of the process take, as `MemoryBudget` counts; 0: no limit.
  std::int64_t budget_bytes = 0;
  /// JSON of a plan (see `to_json`), for the step that it was made for: that one is not planned
  /// again where the plan fits. Other steps are planned as without it. Empty: none.
  std::string saved_plan = {};
};

/// A training step as it was recorded, and how it is run within the budget.
struct RematStep {
  RematGraph graph;
  RematSolution solution;
};

/// What a `Rematerializer` has done, in all its steps.
struct RematerializerStats {
  std::int64_t steps = 0;
  std::int64_t operations = 0;  ///< recorded
  std::int64_t evictions = 0;   ///< of values, to make room
  std::int64_t evicted_bytes = 0;
  std::int64_t replayed_operations = 0;
  double replay_ms = 0.0;
  double planning_ms = 0.0;
  std::int64_t saved_plan_uses = 0;  ///< steps that the saved plan was taken for
  // Of the last step that went by a plan; the first step never does.
  bool is_planned = false;
  std::int64_t predicted_peak_bytes = 0;
  std::int64_t measured_peak_bytes = 0;
  double predicted_replay_ms = 0.0;
  double least_replay_ms = 0.0;  ///< no plan within the budget replays less (a bound)
};

/// Runs forward passes so that the memory of their activations can be taken away and computed
/// again.
///
///     Rematerializer rematerializer({.budget_bytes = 2'000'000'000});
///     for (auto& batch : batches) {
///       auto loss = rematerializer.forward([&] { return loss_of(model->forward(batch)); });
///       loss.backward();
///       optimizer.step();
///     }
///
/// The operators of the forward pass are recorded, with what they read, the random numbers' state,
/// and what they change in place. When an allocation would pass the budget, values that autograd
/// saved are let go, those first that cost least per byte and per time since their last use; when
/// backward asks for one, the operators that made it are run again. The model's code runs once:
/// buffers are updated once, hooks run once. Gradients are bitwise those without a budget where the
/// kernels are deterministic; operators that are not, and unknown ones, are not run again: their
/// results are kept.
///
/// The budget holds from construction to destruction, in backward and in the optimizer's step too.
/// What does not fit even so throws `BudgetError`. Several threads may run forward passes of one
/// rematerialiser at the same time; a call inside another joins it.
class Rematerializer {
 public:
  /// Throws `OptionError` for a negative budget or a saved plan that is none, `BudgetError` where
  /// more is in use already.
  explicit Rematerializer(const RematerializerOptions& options = {});
  ~Rematerializer();
  Rematerializer(const Rematerializer&) = delete;
  Rematerializer& operator=(const Rematerializer&) = delete;

  /// Calls `function` and returns what it returns. Backward may run after the call, several times,
  /// in another thread, or never. Throws what `function` throws.
  template <typename Function>
  decltype(auto) forward(Function&& function) {
    const Recording recording(*this);
    return std::forward<Function>(function)();
  }

  RematerializerStats stats() const;
  /// The last step that went by a plan: its graph has the times that were measured. None before the
  /// second step, and without a budget.
  std::optional<RematStep> planned_step() const;

 private:
  class Recording {
   public:
    explicit Recording(Rematerializer& rematerializer);
    ~Recording();
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

   private:
    struct State;
    std::unique_ptr<State> state_;
  };
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reprise
