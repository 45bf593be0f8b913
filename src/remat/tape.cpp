// SPDX-License-Identifier: Apache-2.0
#include "remat/tape.h"

#include "memory/thread_labels.h"
#include "remat/elapsed.h"
#include "remat/operator_kinds.h"
#include "remat/storage_copy.h"
#include "reprise/batch_plan.h"
#include "reprise/checkpoint_error.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/Allocator.h>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

namespace reprise::detail {
namespace {

using Clock = std::chrono::steady_clock;

const c10::StorageImpl* storage_key(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

std::int64_t block_bytes(const at::Tensor& tensor) {
  const auto bytes = static_cast<std::int64_t>(tensor.storage().nbytes());
  return (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
}

/// A list as it is, but without its tensors.
c10::IValue without_tensors(const c10::IValue& list) {
  auto copy = list.toList().copy();
  for (std::size_t i = 0; i < copy.size(); ++i) {
    if (copy.get(i).isTensor()) copy.set(i, at::Tensor());
  }
  return copy;
}

bool holds_tensors(const c10::IValue& value) {
  if (!value.isList()) return false;
  const auto elements = value.toListRef();
  return std::any_of(elements.begin(), elements.end(),
                     [](const c10::IValue& element) { return element.isTensor(); });
}

}  // namespace

Tape::Tape(std::shared_ptr<TapeCounters> counters, TapeOptions options)
    : plans_(std::move(options.plans)),
      plan_(std::move(options.plan)),
      is_profiled_(options.is_profiled),
      counters_(std::move(counters)) {
  if (plans_) profile_.emplace();
}

Tape::~Tape() {
  if (!plans_) return;
  try {
    end_step();
  } catch (const std::exception&) {  // no memory for a plan: the next step has none
  }
}

Tape::Buffer* Tape::find_buffer(const at::Tensor& tensor) {
  const auto found = buffers_.find(storage_key(tensor));
  return found == buffers_.end() ? nullptr : &found->second;
}

/// Memory that no operation of the tape made is external from its first use on.
Tape::Buffer& Tape::buffer_of(const at::Tensor& tensor) {
  auto& buffer = buffers_[storage_key(tensor)];
  if (!buffer.pin._unsafe_get_target()) buffer.pin = tensor.storage().getWeakStorageImpl();
  return buffer;
}

std::int32_t Tape::external_of(const at::Tensor& tensor) {
  auto& buffer = buffer_of(tensor);
  if (buffer.content != Content::kExternal) {
    buffer.content = Content::kExternal;
    buffer.index = static_cast<std::int32_t>(externals_.size());
    externals_.push_back({tensor.storage(), TensorVersion(tensor)});
  }
  return buffer.index;
}

void Tape::begin_operation(const OperatorCall& call) {
  const std::lock_guard lock(mutex_);
  if (!execution_state_) execution_state_ = ExecutionState::now();
  if (is_profiled_) note_drops();
  pending_.emplace();
  auto& operation = pending_->operation;
  operation.info = &call.info;
  operation.layer = thread_labels().layer;
  operation.is_in_gradient_mode = at::GradMode::is_enabled();
  pending_->is_replayable = reason_to_keep(call.info) == nullptr;
  add_arguments(call);
  note_random_state(call);
  if (is_profiled_) begin_other_bytes_ = profile_->take_most_other_bytes();
  pending_->begin_eviction_ms = eviction_ms();
  pending_->begin = Clock::now();
}

void Tape::add_arguments(const OperatorCall& call) {
  const auto& written = call.info.written;
  for (std::size_t i = 0; i < call.effective.size(); ++i) {
    const auto& argument = call.effective[i];
    const bool is_written = std::ranges::find(written, i) != written.end();
    auto& arguments = pending_->operation.arguments;
    if (argument.isTensor() && argument.toTensor().defined()) {
      arguments.emplace_back();
      add_argument(argument.toTensor(), i, kNone, is_written);
    } else if (holds_tensors(argument)) {
      arguments.push_back(without_tensors(argument));
      const auto elements = argument.toListRef();
      for (std::size_t j = 0; j < elements.size(); ++j) {
        if (elements[j].isTensor() && elements[j].toTensor().defined())
          add_argument(elements[j].toTensor(), i, static_cast<std::int32_t>(j), is_written);
      }
    } else {
      arguments.push_back(argument);
    }
  }
}

void Tape::add_argument(const at::Tensor& tensor, std::size_t argument, std::int32_t element,
                        bool is_written) {
  if (!TensorMold::fits(tensor)) pending_->is_replayable = false;
  if (!tensor.has_storage()) return;
  Read read;
  read.argument = static_cast<std::int32_t>(argument);
  read.element = element;
  read.is_written = is_written;
  if (TensorMold::fits(tensor)) read.mold = TensorMold(tensor);
  if (is_written) prepare_write(read, tensor);
  pending_->operation.reads.push_back(std::move(read));
  pending_->tensors.push_back(tensor);
}

/// What the operator is about to change is read first, unless it fills all of it.
void Tape::prepare_write(Read& read, const at::Tensor& tensor) {
  const auto& info = *pending_->operation.info;
  const auto bytes = tensor.storage().nbytes();
  if (overwrites(info, static_cast<std::size_t>(read.argument)) && read.mold.covers(bytes)) {
    read.fresh_bytes = static_cast<std::int64_t>(bytes);
    return;
  }
  if (info.changes_metadata_in_place && !replaces_memory(info)) return;
  auto* const buffer = find_buffer(tensor);
  if (buffer != nullptr && buffer->content == Content::kUnknown) {
    pending_->is_replayable = false;
  } else if (buffer != nullptr && buffer->content == Content::kValue) {
    read.value = buffer->index;
  } else if (buffer != nullptr || pending_->is_replayable) {
    read.value = keep_before(tensor);
  }
}

/// The content of external memory that is about to change.
ValueId Tape::keep_before(const at::Tensor& tensor) {
  auto& external = externals_[static_cast<std::size_t>(external_of(tensor))];
  Value before;
  before.bytes = block_bytes(tensor);
  before.held = copy_of(tensor.storage());
  external.before = static_cast<ValueId>(values_.size());
  values_.push_back(std::move(before));
  return external.before;
}

void Tape::set_overwritten(Value& value) {
  value.is_overwritten = true;
  value.held = {};
}

void Tape::note_random_state(const OperatorCall& call) {
  if (!pending_->is_replayable || !call.info.may_draw_random_numbers) return;
  auto state = RandomState();
  for (const auto& argument : call.arguments) {
    if (argument.isGenerator()) state.add(argument.toGenerator());
  }
  pending_->operation.random_state = static_cast<std::int32_t>(random_states_.size());
  random_states_.push_back(std::move(state));
}

void Tape::end_operation(std::span<const c10::IValue> results) {
  if (!pending_) return;
  const std::lock_guard lock(mutex_);
  auto& operation = pending_->operation;
  operation.time_ms = std::max(
      0.0, milliseconds_since(pending_->begin) - (eviction_ms() - pending_->begin_eviction_ms));
  ++counters_->operations;
  ++clock_;
  const bool is_view =
      operation.info->changes_metadata_in_place && !replaces_memory(*operation.info);
  if (!is_view && makes_values(results)) {
    resolve_reads();
    note_writes();
    note_results(results);
    if (!operation.writes.empty()) {
      operations_.push_back(std::move(operation));
      if (is_profiled_) note_operation();
      if (plans_) {
        follow_plan();
        hold_planned();
      }
    }
  }
  for (const auto slot : pending_->slots) settle(slots_[slot]);
  pending_.reset();
}

/// False for an operator that only gives other views of its arguments.
bool Tape::makes_values(std::span<const c10::IValue> results) const {
  if (!pending_->operation.info->written.empty()) return true;
  bool has_new = false;
  for (const auto& result : results) {
    visit_tensors_of(result, [&](const at::Tensor& tensor) {
      if (!tensor.has_storage()) return;
      const auto is_same_storage = [&](const at::Tensor& argument) {
        return storage_key(argument) == storage_key(tensor);
      };
      has_new |= std::ranges::none_of(pending_->tensors, is_same_storage) &&
                 buffers_.find(storage_key(tensor)) == buffers_.end();
    });
  }
  return has_new;
}

void Tape::resolve_reads() {
  if (!pending_->is_replayable) return;
  auto& reads = pending_->operation.reads;
  for (std::size_t i = 0; i < reads.size(); ++i) {
    auto& read = reads[i];
    if (read.value != kNone || read.fresh_bytes > 0) continue;
    const auto* const buffer = find_buffer(pending_->tensors[i]);
    if (buffer != nullptr && buffer->content == Content::kValue) {
      read.value = buffer->index;
    } else {
      read.external = external_of(pending_->tensors[i]);
    }
  }
}

void Tape::note_writes() {
  auto& operation = pending_->operation;
  const bool is_replayable = pending_->is_replayable && !replaces_memory(*operation.info);
  for (std::size_t i = 0; i < operation.reads.size(); ++i) {
    if (!operation.reads[i].is_written) continue;
    const auto& tensor = pending_->tensors[i];
    auto& buffer = buffer_of(tensor);
    if (buffer.content == Content::kValue)
      set_overwritten(values_[static_cast<std::size_t>(buffer.index)]);
    if (is_replayable) {
      const ValueId value = add_value(tensor);
      operation.writes.push_back({value, static_cast<std::int32_t>(i), kNone});
    } else {
      buffer.content = Content::kUnknown;
    }
  }
}

void Tape::note_results(std::span<const c10::IValue> results) {
  auto& operation = pending_->operation;
  const bool is_known = pending_->is_replayable && !makes_unfilled_memory(*operation.info);
  std::int32_t number = 0;
  for (const auto& result : results) {
    visit_tensors_of(result, [&](const at::Tensor& tensor) {
      const auto index = number++;
      if (!tensor.has_storage() || find_buffer(tensor) != nullptr) return;
      if (is_known && TensorMold::fits(tensor)) {
        operation.writes.push_back({add_value(tensor), kNone, index});
      } else {
        buffer_of(tensor).content = Content::kUnknown;
      }
    });
  }
}

/// The content that the running operation has given to the storage of `tensor`.
ValueId Tape::add_value(const at::Tensor& tensor) {
  auto& buffer = buffer_of(tensor);
  buffer.content = Content::kValue;
  buffer.index = static_cast<ValueId>(values_.size());
  Value value;
  value.made_by = static_cast<std::int32_t>(operations_.size());
  value.bytes = block_bytes(tensor);
  value.storage = tensor.storage().getWeakStorageImpl();
  value.version.emplace(tensor);
  value.last_use = clock_;
  values_.push_back(std::move(value));
  return buffer.index;
}

std::size_t Tape::add_slot(const at::Tensor& tensor) {
  const std::lock_guard lock(mutex_);
  slots_.push_back({kNone, tensor, TensorMold(), TensorVersion(tensor), nullptr});
  auto& slot = slots_.back();
  if (pending_) {
    // Its operator may fill it when it is saved already.
    slot.saved_by = pending_->operation.info;
    pending_->slots.push_back(slots_.size() - 1);
  } else {
    settle(slot);
  }
  return slots_.size() - 1;
}

/// A saved tensor is kept by its value, which may be evicted, or itself.
void Tape::settle(Slot& slot) {
  if (!slot.own.defined()) return;  // released already
  slot.version = TensorVersion(slot.own);
  if (!TensorMold::fits(slot.own)) return;
  const auto* const buffer = find_buffer(slot.own);
  if (buffer == nullptr || buffer->content != Content::kValue) return;
  auto& value = values_[static_cast<std::size_t>(buffer->index)];
  slot.mold = TensorMold(slot.own);
  slot.value = buffer->index;
  if (!value.held && is_kept(slot.value)) value.held = slot.own.storage();
  ++value.saves;
  if (is_profiled_) record_.is_saved[static_cast<std::size_t>(slot.value)] = true;
  value.last_use = clock_;
  slot.own.reset();
}

void Tape::end_forward() {
  const std::lock_guard lock(mutex_);
  pending_.reset();
  decltype(buffers_)().swap(buffers_);
  if (is_profiled_) note_drops();
  is_forward_ = false;
  if (plan_ && operations_.size() != plan_->step.signature.size()) drop_plan();
  if (!is_profiled_) return;
  for (const auto& value : values_) record_.is_overwritten.push_back(value.is_overwritten);
}

void Tape::release(std::size_t slot) {
  c10::Storage freed;  // after the lock
  at::Tensor own;
  const std::lock_guard lock(mutex_);  // goes first
  own = std::exchange(slots_[slot].own, at::Tensor());
  const auto id = std::exchange(slots_[slot].value, kNone);
  if (id == kNone) return;
  if (slots_[slot].is_taken) {
    note_event(/*is_need=*/false, id);
    if (follows_plan(/*is_need=*/false, id)) drop_planned();
  }
  auto& value = values_[static_cast<std::size_t>(id)];
  // A plan says itself when a value is no longer needed.
  if (--value.saves == 0 && !plan_) freed = std::move(value.held);
}

}  // namespace reprise::detail
