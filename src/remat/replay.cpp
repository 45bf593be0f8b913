// SPDX-License-Identifier: Apache-2.0
/// The backward pass of a tape: values that are not there are computed again, and values that can
/// be are let go under pressure.
#include "checkpoint/tensor_metadata.h"
#include "memory/thread_labels.h"
#include "remat/elapsed.h"
#include "remat/storage_copy.h"
#include "remat/tape.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <set>
#include <utility>

namespace reprise::detail {
namespace {

/// The tensors of an operator's results, in order.
std::vector<at::Tensor> tensors_of(const std::vector<c10::IValue>& results) {
  std::vector<at::Tensor> tensors;
  for (const auto& result : results)
    visit_tensors_of(result, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

/// What a replay allocates is not what the planner has to know.
class Pause {
 public:
  explicit Pause(std::optional<StepProfile>& profile) : profile_(profile) {
    if (profile_) profile_->pause();
  }
  ~Pause() {
    if (profile_) profile_->resume();
  }
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;

 private:
  std::optional<StepProfile>& profile_;
};

}  // namespace

/// Runs operations again, in the order of forward.
class Tape::Replay {
 public:
  explicit Replay(Tape& tape) : tape_(tape) {}

  /// The value, with all that it takes.
  c10::Storage compute(ValueId wanted) {
    {
      const std::lock_guard lock(tape_.mutex_);
      there_[wanted].reads = 1;  // the caller's
      collect({wanted});
    }
    run_all();
    return std::move(there_.at(wanted).storage);
  }

  /// What these operations make, whoever needs it, and what they take.
  void run(const std::vector<std::int32_t>& operations) {
    {
      const std::lock_guard lock(tape_.mutex_);
      std::vector<ValueId> missing;
      for (const auto index : operations) add(index, missing);
      // All but what the operations read from each other.
      std::erase_if(missing, [&](ValueId id) {
        return operations_.contains(tape_.values_[static_cast<std::size_t>(id)].made_by);
      });
      for (const auto index : operations) {
        for (const auto& write : tape_.operations_[static_cast<std::size_t>(index)].writes) {
          if (there_.find(write.value) == there_.end()) kept_.insert(write.value);
        }
      }
      collect(std::move(missing));
    }
    run_all();
  }

 private:
  struct There {
    c10::Storage storage;
    std::int64_t reads = 0;  ///< that are still to come
  };

  /// Adds the operations that make the missing values, those that these take, and so on.
  void collect(std::vector<ValueId> missing) {
    while (!missing.empty()) {
      const auto made_by = tape_.values_[static_cast<std::size_t>(missing.back())].made_by;
      missing.pop_back();
      add(made_by, missing);
    }
  }

  void add(std::int32_t index, std::vector<ValueId>& missing) {
    if (!operations_.insert(index).second) return;
    for (const auto& read : tape_.operations_[static_cast<std::size_t>(index)].reads) {
      if (read.value == kNone) continue;
      auto [entry, is_new] = there_.try_emplace(read.value);
      ++entry->second.reads;
      if (!is_new) continue;
      entry->second.storage = tape_.find(tape_.values_[static_cast<std::size_t>(read.value)]);
      if (!entry->second.storage) missing.push_back(read.value);
    }
  }

  void run_all() {
    const UnobservedScope unobserved;
    const at::NoGradGuard no_grad;
    const auto outer_state = ExecutionState::now();
    tape_.execution_state_->restore(outer_state);
    const auto put_back =
        c10::make_scope_exit([&] { outer_state.restore(*tape_.execution_state_); });
    for (const auto index : operations_) run(tape_.operations_[static_cast<std::size_t>(index)]);
  }

  void run(const Operation& operation) {
    const auto begin = std::chrono::steady_clock::now();
    const RecomputationLabels labels(operation.layer);
    std::vector<c10::Storage> storages;
    auto stack = arguments_of(operation, storages);
    std::optional<RandomState> outer_state;
    if (operation.random_state != kNone) {
      const auto& state = tape_.random_states_[static_cast<std::size_t>(operation.random_state)];
      outer_state.emplace(state.now());
      state.restore();
    }
    try {
      const at::AutoGradMode gradient_mode(operation.is_in_gradient_mode);
      run_again(*operation.info, stack);
    } catch (...) {
      if (outer_state) outer_state->restore();
      throw;
    }
    if (outer_state) outer_state->restore();
    note_writes(operation, storages, stack, milliseconds_since(begin));
  }

  std::vector<c10::IValue> arguments_of(const Operation& operation,
                                        std::vector<c10::Storage>& storages) {
    auto stack = operation.arguments;
    for (auto& argument : stack) {
      if (argument.isList()) argument = argument.toList().copy();
    }
    for (const auto& read : operation.reads) {
      storages.push_back(storage_for(operation, read));
      auto tensor = read.mold.over(storages.back());
      if (read.mold.requires_grad()) tensor.unsafeGetTensorImpl()->set_requires_grad(true);
      auto& argument = stack[static_cast<std::size_t>(read.argument)];
      if (read.element == kNone) {
        argument = std::move(tensor);
      } else {
        argument.toList().set(static_cast<std::size_t>(read.element), std::move(tensor));
      }
    }
    return stack;
  }

  c10::Storage storage_for(const Operation& operation, const Read& read) {
    if (read.fresh_bytes > 0) return new_storage(read.fresh_bytes, read.mold.device());
    if (read.value == kNone) return external(operation, read);
    auto& there = there_.at(read.value);
    --there.reads;
    auto storage = there.reads == 0 ? std::move(there.storage) : there.storage;
    // What is written must be nobody else's.
    return read.is_written && storage.use_count() > 1 ? copy_of(storage) : storage;
  }

  c10::Storage external(const Operation& operation, const Read& read) {
    const auto& external = tape_.externals_[static_cast<std::size_t>(read.external)];
    if (external.before != kNone)
      return tape_.values_[static_cast<std::size_t>(external.before)].held;
    if (!external.version.is_current()) {
      throw_checkpoint_error(
          "rematerialiser: ", "an argument of ", operation.info->name,
          " was modified by an inplace operation after forward: it is at version ",
          external.version.current(), ", expected version ", external.version.expected());
    }
    return external.storage;
  }

  /// Keeps what later operations of this replay read, and what autograd will ask for.
  void note_writes(const Operation& operation, const std::vector<c10::Storage>& storages,
                   const std::vector<c10::IValue>& results, double time_ms) {
    const auto tensors = tensors_of(results);
    const std::lock_guard lock(tape_.mutex_);
    ++tape_.counters_->replayed_operations;
    tape_.counters_->replay_ns += static_cast<std::int64_t>(time_ms * 1e6);
    ++tape_.clock_;
    for (const auto& write : operation.writes) {
      auto& value = tape_.values_[static_cast<std::size_t>(write.value)];
      const auto& storage = write.read != kNone
                                ? storages[static_cast<std::size_t>(write.read)]
                                : tensors.at(static_cast<std::size_t>(write.result)).storage();
      const auto wanted = there_.find(write.value);
      const bool is_read = wanted != there_.end() && wanted->second.reads > 0;
      if (is_read && !wanted->second.storage) wanted->second.storage = storage;
      if ((value.saves > 0 || kept_.contains(write.value)) && !tape_.find(value))
        value.held = storage;
      if (tape_.is_profiled_) tape_.profile_->add_value(storage.data());
      if (is_read || value.held) tape_.move_to(value, storage);
    }
  }

  Tape& tape_;
  std::set<std::int32_t> operations_;
  std::unordered_map<ValueId, There> there_;
  std::set<ValueId> kept_;
};

/// From now on the value is found in the storage of a replay.
void Tape::move_to(Value& value, const c10::Storage& storage) {
  value.storage = storage.getWeakStorageImpl();
  value.version.reset();
  value.is_overwritten = false;
  value.last_use = clock_;
}

/// Where the value is; null where it has to be computed.
c10::Storage Tape::find(const Value& value) const {
  if (value.made_by == kNone) return value.held;
  if (value.is_overwritten || (value.version && !value.version->is_current())) return {};
  if (value.held) return value.held;
  auto storage = value.storage.lock();
  return storage ? c10::Storage(std::move(storage)) : c10::Storage();
}

at::Tensor Tape::take(std::size_t index) {
  // Written in forward alone.
  const auto generators =
      random_states_.empty() ? std::unique_lock<std::recursive_mutex>() : lock_generators();
  const std::lock_guard replays(replay_mutex_);
  std::unique_lock lock(mutex_);
  Slot& slot = slots_[index];
  if (!slot.version.is_current()) {
    throw_checkpoint_error("rematerialiser: ", "a tensor saved by ",
                           slot.saved_by == nullptr ? "a function" : slot.saved_by->name,
                           " was modified by an inplace operation: it is at version ",
                           slot.version.current(), ", expected version ", slot.version.expected());
  }
  if (slot.value == kNone) return slot.own;
  if (!std::exchange(slot.is_taken, true)) {
    note_event(/*is_need=*/true, slot.value);
    follows_plan(/*is_need=*/true, slot.value);
  }
  lock.unlock();
  run_planned();
  return slot.mold.over(storage_of(slot.value));
}

void Tape::run_operations(const std::vector<std::int32_t>& operations) {
  const Pause pause(profile_);
  Replay(*this).run(operations);
}

c10::Storage Tape::storage_of(ValueId id) {
  {
    const std::lock_guard lock(mutex_);
    auto& value = values_[static_cast<std::size_t>(id)];
    value.last_use = ++clock_;
    if (auto storage = find(value)) return storage;
  }
  const Pause pause(profile_);
  return Replay(*this).compute(id);
}

/// Time to compute the value anew, with the nearest of what it needs that is not there either.
double Tape::recomputation_ms(ValueId id) const {
  constexpr int kMostOperations = 32;  // a longer chain is dear enough
  double time_ms = 0.0;
  std::vector<ValueId> missing = {id};
  for (int i = 0; i < kMostOperations && !missing.empty(); ++i) {
    const auto made_by = values_[static_cast<std::size_t>(missing.back())].made_by;
    missing.pop_back();
    const auto& operation = operations_[static_cast<std::size_t>(made_by)];
    time_ms += operation.time_ms;
    for (const auto& read : operation.reads) {
      if (read.value != kNone && !find(values_[static_cast<std::size_t>(read.value)]))
        missing.push_back(read.value);
    }
  }
  return time_ms;
}

ValueId Tape::cheapest_to_evict() const {
  ValueId best = kNone;
  double best_score = 0.0;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const auto& value = values_[i];
    // Where others hold it too, nothing would be free.
    if (value.made_by == kNone || !value.held || value.bytes == 0 || value.held.use_count() > 1)
      continue;
    const auto id = static_cast<ValueId>(i);
    const auto staleness = static_cast<double>(clock_ - value.last_use + 1);
    const double score = recomputation_ms(id) / (static_cast<double>(value.bytes) * staleness);
    if (best == kNone || score < best_score) {
      best = id;
      best_score = score;
    }
  }
  return best;
}

double& Tape::eviction_ms() {
  thread_local double time_ms = 0.0;
  return time_ms;
}

std::optional<std::int64_t> Tape::evict(std::int64_t bytes) {
  std::vector<c10::Storage> freed;  // after the lock
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return std::nullopt;
  std::int64_t freed_bytes = 0;
  while (freed_bytes < bytes) {
    const ValueId id = cheapest_to_evict();
    if (id == kNone) break;
    auto& value = values_[static_cast<std::size_t>(id)];
    freed.push_back(std::move(value.held));
    freed_bytes += value.bytes;
    ++counters_->evictions;
    counters_->evicted_bytes += value.bytes;
  }
  return freed_bytes;
}

}  // namespace reprise::detail
