// SPDX-License-Identifier: Apache-2.0
/// The batch size of `--batch-size auto`, and how much memory there is for tensors.
#pragma once

#include "prepare.h"
#include "reprise/errors.h"
#include "reprise/training_profile.h"

#include <cstdint>
#include <string>

namespace reprise {

/// With fewer steps an epoch, Adam does not get far in one, and what is left of the memory is
/// better left alone.
constexpr std::int64_t kLeastStepsPerEpoch = 20;

/// What tensors may take, and what sets that: "the budget".
struct MemoryLimit {
  std::int64_t bytes = 0;
  std::string what;
};

/// The budget where there is one, else 80 % of `tensor_memory_bytes`.
MemoryLimit memory_limit(const TrainOptions& options);

/// What the tensors of this process take now, and `percent` of what it can still get; the ledger's
/// free pages are given back first.
std::int64_t tensor_memory_bytes(std::int64_t percent);

/// Most windows of a batch that leaves an epoch of `train_windows` windows `kLeastStepsPerEpoch`
/// steps; at least 1.
std::int64_t most_windows(std::int64_t train_windows);

/// One line: what was chosen, and why.
std::string batch_size_text(const LargestBatch& chosen, std::int64_t train_windows,
                            const MemoryLimit& limit);

/// What to throw when not even one window fits; its step needs `needed_bytes`.
BudgetError no_window_fits(std::int64_t needed_bytes, const MemoryLimit& limit);

/// Gives `data` a batch size where it is still to be chosen: the largest that fits in the tier that
/// was asked for, found by running steps, and no larger than `most_windows`. What came of it as one
/// line, or "" where a size was given. Throws `BudgetError`, and as `measure_peaks` does.
std::string resolve_batch_size(PreparedData& data);

}  // namespace reprise
