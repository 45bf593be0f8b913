// SPDX-License-Identifier: Apache-2.0
#include "plan_check.h"

#include "text.h"

#include <nlohmann/json.hpp>

namespace reprise {
namespace {

bool is_as_foretold(const BatchCheck& check) {
  const LargestBatch& found = *check.found;
  return found.is_limited_by_most ? check.foretold_batch >= found.batch_size
                                  : check.foretold_batch == found.batch_size;
}

std::string taken_text(const BatchChoice& choice, std::int64_t usable_bytes) {
  return format_windows(choice.largest_batch) + (choice.largest_batch == 1 ? " takes " : " take ") +
         format_bytes(choice.total_bytes) + " of " + format_bytes(usable_bytes);
}

void correct_choice(BatchChoice& choice, const LargestBatch& found, std::int64_t usable_bytes) {
  choice.largest_batch = found.batch_size;
  if (found.batch_size > 0) {
    choice.total_bytes = found.peak_bytes;
  }
  choice.headroom_bytes = usable_bytes - choice.total_bytes;
  choice.reason = found.batch_size > 0 ? taken_text(choice, usable_bytes) + ", as run"
                                       : "not even one window fits, as run";
}

std::string recommendation(const BatchChoice& best, std::int64_t wanted_batch,
                           std::int64_t usable_bytes) {
  const std::string wanted = "batch " + format_count(wanted_batch);
  const std::string end =
      "with checkpointing " + best.tier + ": " + taken_text(best, usable_bytes) + ", as run";
  return best.largest_batch >= wanted_batch ? wanted + " fits " + end
                                            : wanted + " fits in no tier; the largest is " +
                                                  format_count(best.largest_batch) + " " + end;
}

void recommend(DevicePlan& plan, std::int64_t wanted_batch) {
  const std::size_t best = recommended_choice(plan.choices, wanted_batch);
  for (std::size_t i = 0; i < plan.choices.size(); ++i) {
    plan.choices[i].is_recommended = i == best;
  }
  plan.recommendation =
      best < plan.choices.size()
          ? recommendation(plan.choices[best], wanted_batch, plan.device.usable_bytes)
          : "not even one window fits, as run";
}

std::string verdict(const BatchCheck& check) {
  if (!check.found) {
    return "not run: " + check.not_run;
  }
  const LargestBatch& found = *check.found;
  const std::string end = is_as_foretold(check)
                              ? ", as foretold"
                              : "; foretold was " + format_count(check.foretold_batch);
  if (found.is_limited_by_most) {
    return "all " + format_count(found.batch_size) + " training windows fit" + end;
  }
  if (found.batch_size == 0) {
    return "not even one window fits" + end;
  }
  return format_windows(found.batch_size) + (found.batch_size == 1 ? " fits, " : " fit, ") +
         format_count(found.batch_size + 1) + " do not" + end;
}

}  // namespace

void correct_plan(DevicePlan& plan, const std::vector<BatchCheck>& checks,
                  std::int64_t wanted_batch) {
  bool is_changed = false;
  for (std::size_t i = 0; i < plan.choices.size(); ++i) {
    const BatchCheck& check = checks.at(i);
    if (check.found && !is_as_foretold(check)) {
      correct_choice(plan.choices[i], *check.found, plan.device.usable_bytes);
      is_changed = true;
    }
  }
  if (is_changed) {
    recommend(plan, wanted_batch);
  }
}

std::string checks_text(const std::vector<BatchCheck>& checks) {
  std::string text = "Run here, two steps of each batch within the bytes of the device\n";
  for (const BatchCheck& check : checks) {
    text += "  " + check.device + ", " + check.tier + ": " + verdict(check) + "\n";
  }
  return text;
}

nlohmann::ordered_json checks_json(const std::vector<BatchCheck>& checks) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const BatchCheck& check : checks) {
    nlohmann::ordered_json entry = {
        {"device", check.device}, {"tier", check.tier}, {"foretold_batch", check.foretold_batch}};
    if (check.found) {
      entry["largest_batch"] = check.found->batch_size;
      entry["peak_bytes"] = check.found->peak_bytes;
      entry["is_all_windows"] = check.found->is_limited_by_most;
      entry["as_foretold"] = is_as_foretold(check);
    } else {
      entry["not_run"] = check.not_run;
    }
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace reprise
