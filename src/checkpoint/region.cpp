// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/region.h"

#include "checkpoint/checksum.h"
#include "checkpoint/region_runs.h"
#include "memory/thread_labels.h"

#include <c10/util/ScopeExit.h>

#include <mutex>
#include <utility>

namespace reprise::detail {
namespace {

/// Bytes that no kernel fills: gaps in the workspace of a recurrent layer and in the tables of
/// ctc_loss, and the noise that rrelu saves when it draws none.
bool has_unfilled_bytes(const OperatorInfo* saved_by, const at::Tensor& tensor) {
  if (saved_by == nullptr) return false;
  const auto is_of = [&](const char* name) {
    return saved_by->name.find(name) != std::string::npos;
  };
  return is_of("rrelu") || is_of("ctc_loss") ||
         (tensor.scalar_type() == at::kByte && (is_of("rnn") || is_of("lstm") || is_of("gru")));
}

}  // namespace

Region::Input::Input(const at::Tensor& tensor)
    : version_(tensor), requires_grad_(tensor.requires_grad()) {
  if (tensor.is_inference()) {
    kept_ = tensor;  // autograd refuses to save it; it counts no changes
  } else {
    // Without its history: the graph leads there where it has to.
    saved_.emplace(without_history(tensor));
  }
}

void Region::Input::set_changed(CapturedTensors::Changed changed) {
  changed_ = std::move(changed);
  saved_.reset();
  kept_.reset();
}

at::Tensor Region::Input::again(CapturedTensors::Replay& replay, const std::string& message_start,
                                std::size_t index) const {
  if (changed_) return replay.copy_of(*changed_);
  if (kept_.defined()) return kept_;
  if (!version_.is_current()) {
    throw_checkpoint_error(message_start, "input ", index, " was modified by an inplace operation ",
                           "after forward: it is at version ", version_.current(),
                           ", expected version ", version_.expected());
  }
  return saved_->unpack().detach().requires_grad_(requires_grad_);
}

Region::Region(const CheckpointOptions& options, RegionFunction function,
               const std::vector<at::Tensor>& inputs)
    : options_(options),
      message_start_("checkpoint" + (options.name.empty() ? "" : " " + options.name) + ": "),
      function_(std::move(function)),
      captured_(message_start_),
      kept_results_(options.save_policy, message_start_) {
  for (const auto& input : inputs) {
    inputs_.push_back(input.defined() ? std::optional<Input>(input) : std::nullopt);
    if (input.defined()) captured_.add_input(input);
  }
}

ObservedOperators Region::observed_operators() const {
  return kept_results_.is_active() ? ObservedOperators::kLeaves : ObservedOperators::kOutermost;
}

void Region::run_forward(const std::vector<at::Tensor>& inputs, void* result) {
  ForwardRun run(shared_from_this());
  const SavedTensorScope hooks(run);
  const OperatorObserverScope operators(run, observed_operators());
  is_running_forward_ = true;
  observes_leaves_ = are_leaves_observed();
  try {
    function_(inputs, result);
    run.throw_refusal();
  } catch (...) {
    end_forward(inputs);
    throw;
  }
  end_forward(inputs);
}

void Region::end_forward(const std::vector<at::Tensor>& inputs) {
  const UnobservedScope unobserved;
  is_running_forward_ = false;
  forget_recomputed();  // by a backward pass inside the function
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs_[i]) continue;
    if (auto changed = captured_.changed(inputs[i])) inputs_[i]->set_changed(std::move(*changed));
  }
  layer_ = thread_labels().layer;
  context_.end_forward();
  captured_.end_forward();
  kept_results_.end_forward();
}

at::Tensor Region::take(std::size_t index) {
  const auto generators = context_.lock_generators();
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  auto& slot = slots_[index];
  if (!slot.recomputed.defined()) recompute();
  if (version_of(slot.recomputed) != slot.recomputed_version) {
    throw_checkpoint_error(
        message_start_, describe_slot(index),
        ", was modified by an inplace operation inside the function after it was "
        "saved");
  }
  return std::exchange(slot.recomputed, at::Tensor());
}

void Region::release(Slot& slot) {
  slot.set_unwanted();
  // Never waits: this is a destructor, and its thread may hold another region's lock. Whoever holds
  // this one forgets the value.
  const std::unique_lock<std::recursive_mutex> lock(mutex_, std::try_to_lock);
  if (lock) slot.recomputed.reset();
}

std::string Region::describe_slot(std::size_t index) const {
  const auto& slot = slots_[index];
  return c10::str("saved tensor ", index, ", ", slot.metadata, ", of ",
                  slot.saved_by == nullptr ? "a function" : slot.saved_by->name);
}

void Region::compare(std::size_t index, const at::Tensor& tensor,
                     const OperatorInfo* saved_by) const {
  if (index >= slots_.size()) {
    throw_checkpoint_error(message_start_, "the recomputation saves more tensors than forward (",
                           slots_.size(), "), the next is ", TensorMetadata(tensor),
                           "; the function must do the same in both runs");
  }
  const auto& slot = slots_[index];
  if (slot.saved_by != saved_by && observes_leaves_ == are_leaves_observed()) {
    throw_checkpoint_error(message_start_, describe_slot(index), ", is one of ",
                           saved_by == nullptr ? "a function" : saved_by->name,
                           " in the recomputation; the function must do the same in both runs");
  }
  if (options_.verification != Verification::kOff && !slot.metadata.describes(tensor)) {
    throw_checkpoint_error(message_start_, describe_slot(index), ", is ", TensorMetadata(tensor),
                           " in the recomputation; the function must do the same in both runs");
  }
  if (slot.is_wanted() && slot.version && !slot.version->is_current()) {
    throw_checkpoint_error(
        message_start_, describe_slot(index),
        ", was modified by an inplace operation after forward: it is at version ",
        slot.version->current(), ", expected version ", slot.version->expected());
  }
}

void Region::store(std::size_t index, const at::Tensor& tensor) {
  auto& slot = slots_[index];
  if (!slot.is_wanted() || slot.recomputed.defined()) return;
  slot.recomputed = tensor;
  slot.recomputed_version = version_of(tensor);
}

void Region::compare_values(std::size_t index, const at::Tensor& tensor) const {
  const auto& slot = slots_[index];
  if (!slot.is_wanted() || has_unfilled_bytes(slot.saved_by, tensor) ||
      checksum_of(tensor) == slot.checksum)
    return;
  throw_checkpoint_error(message_start_, describe_slot(index),
                         ", has other values in the recomputation; something that the function "
                         "reads has changed, or an operator is not deterministic");
}

void Region::forget_recomputed() {
  for (auto& slot : slots_) slot.recomputed.reset();
}

std::vector<at::Tensor> Region::inputs_again(CapturedTensors::Replay& replay) const {
  std::vector<at::Tensor> inputs;
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    inputs.push_back(inputs_[i] ? inputs_[i]->again(replay, message_start_, i) : at::Tensor());
  return inputs;
}

std::size_t Region::last_wanted() const {
  std::size_t last = 0;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].is_wanted()) last = i;
  }
  return last;
}

void Region::recompute() {
  const auto self = shared_from_this();  // the function may let go of the last saved tensor
  const auto end = c10::make_scope_exit([this] { is_recomputing_ = false; });
  is_recomputing_ = true;
  CapturedTensors::Replay replay(captured_);
  const RecomputationLabels labels(layer_);
  const auto inputs = inputs_again(replay);
  const RecomputeScope scope(context_);
  try {
    run_again(replay, inputs);
  } catch (...) {
    // The operator that failed may have saved a tensor that it never filled.
    forget_recomputed();
    throw;
  }
}

void Region::run_again(CapturedTensors::Replay& replay, const std::vector<at::Tensor>& inputs) {
  SecondRun run(*this, replay);
  const SavedTensorScope hooks(run);
  const OperatorObserverScope operators(run, observed_operators());
  try {
    function_(inputs, nullptr);
  } catch (const EarlyStop& stop) {
    if (stop.thrown_by == &run) return;
    throw;
  } catch (...) {
    // An interpreter inside the function may have made another exception of EarlyStop.
    if (run.has_stopped()) return;
    if (run.is_error_thrown()) run.throw_error();
    throw;
  }
  if (run.has_error()) run.throw_error();
  if (run.has_stopped()) {
    throw_checkpoint_error(message_start_,
                           "the function swallowed the exception that ends a "
                           "recomputation; let it through (catch the types you know, not ...), or "
                           "switch early_stop off");
  }
  if (!run.has_all()) {
    throw_checkpoint_error(message_start_, "the recomputation saved ", run.count(),
                           " tensors, forward saved ", slots_.size(), "; missing is ",
                           describe_slot(last_wanted()),
                           "; the function must do the same in both runs");
  }
}

}  // namespace reprise::detail
