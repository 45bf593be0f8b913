// SPDX-License-Identifier: Apache-2.0
#include "retries.h"

#include "fields.h"
#include "text.h"

#include <nlohmann/json.hpp>

namespace reprise {
namespace {

std::string needed_text(const MemoryRetry& retry) {
  // Without a budget the system may not say where its limit is.
  if (retry.needed_bytes <= retry.allowed_bytes) {
    return "";
  }
  const std::string needed = format_bytes(retry.needed_bytes);
  // Less than 0.1 MB too much would read as none.
  const bool is_close = needed == format_bytes(retry.allowed_bytes);
  return " (at least " + (is_close ? format_count(retry.needed_bytes) + " bytes" : needed) +
         " needed)";
}

}  // namespace

std::string retry_text(const MemoryRetry& retry, const TrainOptions& options) {
  const std::string where = options.memory_budget_bytes > 0
                                ? "the budget of " + format_bytes(options.memory_budget_bytes)
                                : std::string("memory");
  const bool is_split = retry.micro_batch_size > 0 && retry.micro_batch_size < options.batch_size;
  return "step " + format_count(retry.step) + " did not fit into " + where + needed_text(retry) +
         ": it was started again with --checkpointing " + to_string(retry.checkpointing) +
         (is_split ? " and micro-batches of " + format_windows(retry.micro_batch_size) : "");
}

std::string overshoot_text(std::int64_t step, std::int64_t peak_bytes,
                           const TrainOptions& options) {
  const std::int64_t budget = options.memory_budget_bytes;
  if (budget == 0 || peak_bytes <= budget) {
    return "";
  }
  return "step " + format_count(step) + " took " + format_count(peak_bytes) + " bytes on " +
         options.device + ", and the budget is " + format_count(budget) +
         ": on this device one operator, and what runs in backward, may pass it; leave room with a "
         "smaller --memory-budget";
}

nlohmann::ordered_json retry_json(const MemoryRetry& retry) {
  return {{"checkpointing", to_string(retry.checkpointing)},
          {"micro_batch_size", retry.micro_batch_size},
          {"needed_bytes", retry.needed_bytes},
          {"allowed_bytes", retry.allowed_bytes}};
}

nlohmann::ordered_json retries_json(const std::vector<MemoryRetry>& retries) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const MemoryRetry& retry : retries) {
    nlohmann::ordered_json entry = {{"step", retry.step}};
    entry.update(retry_json(retry));
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace reprise
