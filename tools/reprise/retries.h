// SPDX-License-Identifier: Apache-2.0
/// Steps that did not fit into memory or their budget, as a warning and as JSON.
#pragma once

#include "reprise/trainer.h"

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace reprise {

/// One sentence: which step, what it needed, and how it was started again. `options` are those of
/// the training.
std::string retry_text(const MemoryRetry& retry, const TrainOptions& options);

/// One sentence where the peak is above the budget, which holds to the byte on the CPU only
/// (`MemoryBudget`); else empty.
std::string overshoot_text(std::int64_t step, std::int64_t peak_bytes, const TrainOptions& options);

/// `retry` but for its step.
nlohmann::ordered_json retry_json(const MemoryRetry& retry);
/// A list; each with its step first.
nlohmann::ordered_json retries_json(const std::vector<MemoryRetry>& retries);

}  // namespace reprise
