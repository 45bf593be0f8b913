// SPDX-License-Identifier: Apache-2.0
/// What the tests of rematerialisation share: training steps under budgets.
#pragma once

#include "reprise/errors.h"
#include "reprise/memory.h"
#include "reprise/rematerializer.h"

#include "tests/checkpoint_testing.h"
#include "tests/remat_models.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace reprise::testing {

/// Gradients, loss, buffers and next random numbers of a step.
inline Tensors outcome_of(const TrainingStep& step, Rematerializer* rematerializer = nullptr) {
  torch::manual_seed(7);
  torch::randn({1});  // leaves the generator with the other half of a pair
  for (const auto& leaf : step.leaves) leaf.mutable_grad() = at::Tensor();
  const auto loss = rematerializer == nullptr ? step.loss() : rematerializer->forward(step.loss);
  loss.backward();
  Tensors outcome = {loss.detach()};
  for (const auto& leaf : step.leaves)
    outcome.push_back(std::exchange(leaf.mutable_grad(), at::Tensor()));
  append(outcome, clones_of(step.buffers));
  append(outcome, next_random_numbers());
  return outcome;
}

/// What one step under a budget did.
struct BudgetedRun {
  bool is_feasible = false;
  RematerializerStats stats;
};

/// Runs steps within `share` of the memory that a plain one takes beyond what was there, and
/// compares them; without room for one it must say so.
inline BudgetedRun run_within(const TrainingStep& step, const Tensors& expected, double share,
                              std::int64_t plain_bytes, int steps = 1) {
  const Snapshot before(step.buffers);
  BudgetedRun run;
  const auto start = memory_stats().current_bytes;
  const auto budget = start + static_cast<std::int64_t>(share * static_cast<double>(plain_bytes));
  try {
    Rematerializer rematerializer({.budget_bytes = budget});
    for (int i = 0; i < steps; ++i) {
      before.restore();
      reset_peak_memory();
      expect_same_bytes(outcome_of(step, &rematerializer), expected);
      EXPECT_LE(memory_stats().peak_bytes, budget);
    }
    run.is_feasible = true;
    run.stats = rematerializer.stats();
    if (run.stats.is_planned) {
      EXPECT_LE(run.stats.measured_peak_bytes, run.stats.predicted_peak_bytes);
    }
  } catch (const BudgetError&) {
    for (const auto& leaf : step.leaves) leaf.mutable_grad() = at::Tensor();
  }
  before.restore();
  return run;
}

/// Bytes that a plain step takes beyond what is there before.
inline std::int64_t plain_bytes_of(const TrainingStep& step) {
  const Snapshot before(step.buffers);
  const auto start = memory_stats().current_bytes;
  reset_peak_memory();
  outcome_of(step);
  before.restore();
  return memory_stats().peak_bytes - start;
}

/// The smallest share of a plain step's memory, in twentieths, that a step still runs in. All
/// larger ones are tried too.
inline double expect_exact_within_budgets(const TrainingStep& step, int steps = 1) {
  const Snapshot before(step.buffers);
  const auto plain_bytes = plain_bytes_of(step);
  const auto expected = outcome_of(step);
  before.restore();
  double smallest = 1.0;
  for (int twentieths = 20; twentieths > 0; --twentieths) {
    SCOPED_TRACE(std::to_string(twentieths) + " twentieths");
    const double share = twentieths / 20.0;
    const auto run = run_within(step, expected, share, plain_bytes, steps);
    if (!run.is_feasible) break;
    smallest = share;
  }
  return smallest;
}

}  // namespace reprise::testing
