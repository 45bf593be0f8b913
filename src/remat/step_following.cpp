// SPDX-License-Identifier: Apache-2.0
/// A tape and its plan: what the planner has to know of a step is noted, and what it has decided is
/// carried out.
#include "remat/tape.h"

#include <algorithm>

namespace reprise::detail {

void Tape::drop_plan() {
  plan_.reset();
  plans_->note_miss();
}

/// All saved tensors are gone.
void Tape::end_step() {
  if (plan_ && !is_forward_) plans_->note_peak(plan_, profile_->peak_bytes());
  if (!is_profiled_) return;
  if (!record_.is_linear || record_.events.empty()) return plans_->note_miss();
  record_.base_bytes = profile_->base_bytes();
  record_.events.back().other_bytes = profile_->take_most_other_bytes();
  plans_->add(graph_of(operations_, values_, record_));
}

/// Notes what forward let go of since the last operation.
void Tape::note_drops() {
  const auto last = static_cast<std::int32_t>(operations_.size()) - 1;
  std::erase_if(young_, [&](ValueId id) {
    const auto& value = values_[static_cast<std::size_t>(id)];
    const bool is_held_by_forward =
        value.held ? value.held.use_count() > 1 : value.storage.use_count() > 0;
    if (!is_held_by_forward) record_.held_until[static_cast<std::size_t>(id)] = last;
    return !is_held_by_forward;
  });
}

/// Notes the bytes of the operation that has just been added.
void Tape::note_operation() {
  record_.held_until.resize(values_.size(), INT32_MAX);
  record_.is_saved.resize(values_.size(), false);
  std::int64_t new_bytes = 0;
  for (const auto& write : operations_.back().writes) {
    const auto& value = values_[static_cast<std::size_t>(write.value)];
    young_.push_back(write.value);
    if (write.read != kNone)
      note_overwritten(operations_.back().reads[static_cast<std::size_t>(write.read)].value);
    if (write.result != kNone) new_bytes += value.bytes;
    if (const auto storage = value.storage.lock()) profile_->add_value(storage->data());
  }
  const std::int64_t most = profile_->take_most_other_bytes();
  record_.temporary_bytes.push_back(
      std::max<std::int64_t>(0, most - begin_other_bytes_ - new_bytes));
  record_.other_bytes.push_back(begin_other_bytes_);
}

/// What was in the memory that the last operation changed.
void Tape::note_overwritten(ValueId id) {
  if (id == kNone || std::erase(young_, id) == 0) return;
  record_.held_until[static_cast<std::size_t>(id)] =
      static_cast<std::int32_t>(operations_.size()) - 1;
}

void Tape::note_event(bool is_need, ValueId value) {
  if (!is_profiled_) return;
  if (is_forward_) {
    record_.is_linear = false;
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  const std::int64_t most = profile_->take_most_other_bytes();
  if (record_.events.empty()) {
    record_.first_bytes = most;
  } else {
    auto& last = record_.events.back();
    last.other_bytes = most;
    last.time_ms = std::chrono::duration<double, std::milli>(now - last_event_).count();
  }
  record_.events.push_back({is_need, value, 0.0, 0});
  last_event_ = now;
}

/// Compares the operation that has just been added with the plan; another plan may fit instead.
void Tape::follow_plan() {
  signature_.push_back(signature_of(operations_.back(), values_));
  const auto index = signature_.size() - 1;
  if (!plan_) return;
  const auto& planned = plan_->step.signature;
  if (index >= planned.size() || planned[index] != signature_[index]) {
    plan_ = plans_->find(signature_);
    if (!plan_) plans_->note_miss();
  }
}

/// Holds what the plan keeps, whether autograd saves it or not.
void Tape::hold_planned() {
  if (!plan_) return;
  for (const auto& write : operations_.back().writes) {
    auto& value = values_[static_cast<std::size_t>(write.value)];
    if (!is_kept(write.value)) continue;
    if (auto storage = value.storage.lock()) value.held = c10::Storage(std::move(storage));
  }
}

bool Tape::is_kept(ValueId value) const {
  if (!plan_) return true;
  const auto index = static_cast<std::size_t>(value);
  return index >= plan_->is_kept.size() || plan_->is_kept[index];
}

/// Whether backward does what the plan foresaw; if not, the tape goes on without it.
bool Tape::follows_plan(bool is_need, ValueId value) {
  if (!plan_) return false;
  const auto& step = plan_->step;
  const auto index = next_event_++;
  if (index < step.graph.events.size()) {
    const auto& event = step.graph.events[index];
    if ((event.kind == RematEvent::Kind::kNeed) == is_need &&
        step.values[static_cast<std::size_t>(event.value)] == value)
      return true;
  }
  drop_plan();
  return false;
}

/// Lets go of what the plan no longer needs at this event.
void Tape::drop_planned() {
  const auto& actions = plan_->solution.plan.actions;
  while (next_action_ < actions.size()) {
    const auto& action = actions[next_action_];
    if (action.before_event >= static_cast<std::int32_t>(next_event_)) return;
    if (action.kind != RematAction::Kind::kDrop) return;
    const auto value = plan_->step.values[static_cast<std::size_t>(action.index)];
    values_[static_cast<std::size_t>(value)].held = {};
    ++next_action_;
  }
}

/// Does what the plan has for this event. The lock is not held.
void Tape::run_planned() {
  while (true) {
    std::vector<std::int32_t> operations;
    {
      const std::lock_guard lock(mutex_);
      if (!plan_) return;
      drop_planned();
      const auto& actions = plan_->solution.plan.actions;
      if (next_action_ >= actions.size()) return;
      const auto& action = actions[next_action_];
      if (action.before_event >= static_cast<std::int32_t>(next_event_)) return;
      operations = plan_->step.operations[static_cast<std::size_t>(action.index)];
      ++next_action_;
    }
    run_operations(operations);
  }
}

}  // namespace reprise::detail
