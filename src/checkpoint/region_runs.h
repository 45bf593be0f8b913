// SPDX-License-Identifier: Apache-2.0
/// The two runs of a region's function: what each of them hears of, and does.
#pragma once

#include "checkpoint/checksum.h"
#include "checkpoint/region.h"

#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace reprise::detail {

/// Thrown through the user's function when everything that backward needs has been recomputed. A
/// std::exception, so that a backward pass inside the function unwinds cleanly.
struct EarlyStop : std::exception {
  const void* thrown_by;  // which of several recomputations inside each other
  explicit EarlyStop(const void* run) : thrown_by(run) {}
  const char* what() const noexcept override { return "reprise: end of a recomputation"; }
};

/// What autograd holds in place of a tensor saved by the first run.
class Region::SlotReference : public PackedTensor {
 public:
  explicit SlotReference(ForwardRun& run) : run_(run) {}
  ~SlotReference() override {
    if (region_) region_->release(*slot_);
  }

  void pack(const at::Tensor& tensor) override;

  at::Tensor unpack() override { return region_->take(index_); }

 private:
  ForwardRun& run_;  // alive while tensors are packed
  std::shared_ptr<Region> region_;
  std::size_t index_ = 0;
  Slot* slot_ = nullptr;
};

/// Keeps a tensor of the second run as plain autograd does: the recomputed graph can be
/// differentiated inside the function itself.
class Region::RecomputedTensor : public PackedTensor {
 public:
  explicit RecomputedTensor(SecondRun& run) : run_(run) {}

  void pack(const at::Tensor& tensor) override;
  at::Tensor unpack() override { return tensor_; }

 private:
  SecondRun& run_;  // alive while tensors are packed
  at::Tensor tensor_;
};

/// Hears of the first run: which tensors are saved, which come from outside, which results and
/// generators are needed again.
class Region::ForwardRun : public SavedTensorHandler, public OperatorObserver {
 public:
  explicit ForwardRun(std::shared_ptr<Region> region) : region_(std::move(region)) {}

  std::unique_ptr<PackedTensor> next() override { return std::make_unique<SlotReference>(*this); }

  const std::shared_ptr<Region>& region() const { return region_; }

  std::size_t add(const at::Tensor& tensor) {
    auto& slots = region_->slots_;
    slots.emplace_back(tensor, running_);
    if (running_ == nullptr) slots.back().version.emplace(tensor);
    if (needs_values()) {
      if (running_ != nullptr) {
        saved_by_running_.push_back(without_history(tensor));
      } else if (region_->options_.verification == Verification::kValues) {
        slots.back().checksum = checksum_of(tensor);
      }
    }
    return slots.size() - 1;
  }

  void before_casts(const OperatorCall& call) override {
    if (!region_->is_recomputing_) note_arguments(call);
  }

  bool before_operator(const OperatorCall& call, std::vector<c10::IValue>& /*results*/) override {
    if (region_->is_recomputing_) return false;
    running_ = nullptr;  // of an operator that failed
    saved_by_running_.clear();
    note_arguments(call);
    region_->kept_results_.before_operator(call);
    note_random_numbers(call);
    ++region_->operator_count_;
    running_ = &call.info;
    return false;
  }

  void after_operator(const OperatorInfo& info, std::span<const c10::IValue> results) override {
    if (region_->is_recomputing_) return;
    running_ = nullptr;
    region_->captured_.after_operator(info, results);
    if (!needs_values()) return;
    region_->kept_results_.after_operator(info, results, saved_by_running_);
    if (region_->options_.verification == Verification::kValues) {
      auto slot = region_->slots_.end() - std::ssize(saved_by_running_);
      for (const auto& saved : saved_by_running_) (slot++)->checksum = checksum_of(saved);
    }
    saved_by_running_.clear();
  }

  /// Throws what was refused, should the function have caught it: its second run would do it.
  void throw_refusal() const {
    if (refusal_) std::rethrow_exception(refusal_);
  }

 private:
  void note_arguments(const OperatorCall& call) {
    try {
      region_->captured_.before_operator(call);
    } catch (const CheckpointError&) {
      refusal_ = std::current_exception();
      throw;
    }
  }

  void note_random_numbers(const OperatorCall& call) {
    if (!call.info.may_draw_random_numbers) return;
    region_->context_.note_random_numbers();
    for (const auto& argument : call.arguments) {
      if (argument.isGenerator()) region_->context_.add(argument.toGenerator());
    }
  }

  bool needs_values() const {
    return region_->options_.verification == Verification::kValues ||
           region_->kept_results_.is_active();
  }

  std::shared_ptr<Region> region_;
  std::exception_ptr refusal_;
  const OperatorInfo* running_ = nullptr;
  std::vector<at::Tensor> saved_by_running_;
};

/// Fills the slots, and ends the run when the last of them is there. Not before its operator has
/// returned: an operator may save a buffer first and have its kernel fill it then.
class Region::SecondRun : public SavedTensorHandler, public OperatorObserver {
 public:
  SecondRun(Region& region, CapturedTensors::Replay& replay)
      : region_(region), replay_(replay), last_wanted_(region.last_wanted()) {}

  std::unique_ptr<PackedTensor> next() override {
    return std::make_unique<RecomputedTensor>(*this);
  }

  void pack(const at::Tensor& tensor) {
    if (is_over()) return;
    or_fail([&] {
      add(tensor);
      if (running_ == nullptr) compare_values();
    });
  }

  at::Tensor replacement(const at::Tensor& argument) override {
    return replay_.replacement(argument);
  }

  void before_casts(const OperatorCall& call) override {
    if (!is_over()) or_fail([&] { replay_.check(call); });
  }

  bool before_operator(const OperatorCall& call, std::vector<c10::IValue>& results) override {
    if (is_over()) return false;
    saved_by_running_.clear();
    running_ = &call.info;
    const KeptOperator* kept = nullptr;
    or_fail([&] {
      replay_.check(call);
      kept = region_.kept_results_.at(operator_count_++, call.info);
      if (kept != nullptr) results = skip(call, *kept);
    });
    return kept != nullptr;
  }

  void after_operator(const OperatorInfo& /*info*/,
                      std::span<const c10::IValue> /*results*/) override {
    running_ = nullptr;
    if (is_over()) return;
    or_fail([&] { compare_values(); });
    if (!has_all() || !may_stop() || is_unwinding()) return;
    has_stopped_ = true;
    throw EarlyStop(this);
  }

  bool has_stopped() const { return has_stopped_; }
  bool has_error() const { return error_ != nullptr; }
  /// The function got the error of this run, whatever it threw then.
  bool is_error_thrown() const { return is_error_thrown_; }
  void throw_error() const { std::rethrow_exception(error_); }
  bool has_all() const { return count_ > last_wanted_; }
  std::size_t count() const { return count_; }

 private:
  bool is_over() const { return has_stopped_ || error_; }

  /// While the function unwinds, nothing may throw: its destructors may run operators.
  bool is_unwinding() const { return std::uncaught_exceptions() > uncaught_exceptions_; }

  /// Does `step`; an error ends this run, whatever the function makes of it.
  template <typename Step>
  void or_fail(Step step) {
    try {
      step();
    } catch (...) {
      error_ = std::current_exception();
      is_error_thrown_ = !is_unwinding();
      if (is_error_thrown_) throw;
    }
  }

  bool may_stop() const {
    // A backward pass inside the function asks for what forward has saved so far.
    if (region_.is_running_forward_) return true;
    // Unwinding costs more than returning when nothing is left to do.
    return region_.options_.early_stop && operator_count_ != region_.operator_count_;
  }

  void add(const at::Tensor& tensor) {
    region_.compare(count_, tensor, running_);
    region_.store(count_++, tensor);
    if (region_.options_.verification == Verification::kValues) saved_by_running_.push_back(tensor);
  }

  void compare_values() {
    std::size_t index = count_ - saved_by_running_.size();
    for (const auto& tensor : std::exchange(saved_by_running_, {}))
      region_.compare_values(index++, tensor);
  }

  /// The results of an operator that is not run, after what it would have saved and drawn.
  std::vector<c10::IValue> skip(const OperatorCall& call, const KeptOperator& kept) {
    std::vector<at::Tensor> arguments;
    visit_arguments(call, [&](std::size_t, const at::Tensor&, const at::Tensor& effective) {
      arguments.push_back(effective);
    });
    auto results = region_.kept_results_.results_of(kept, arguments);
    for (const auto& [kind, index, own] : kept.saved_tensors) {
      add(kind == SavedSource::Kind::kArgument ? without_history(arguments.at(index))
          : kind == SavedSource::Kind::kResult ? without_history(results.at(index).toTensor())
                                               : own);
    }
    if (kept.random_state_after) kept.random_state_after->restore();
    return results;
  }

  Region& region_;
  CapturedTensors::Replay& replay_;
  std::size_t last_wanted_;
  std::size_t count_ = 0;  // saved tensors so far
  std::size_t operator_count_ = 0;
  const OperatorInfo* running_ = nullptr;
  bool has_stopped_ = false;
  std::exception_ptr error_;
  bool is_error_thrown_ = false;
  int uncaught_exceptions_ = std::uncaught_exceptions();
  std::vector<at::Tensor> saved_by_running_;
};

inline void Region::SlotReference::pack(const at::Tensor& tensor) {
  index_ = run_.add(tensor);
  slot_ = &run_.region()->slots_[index_];
  region_ = run_.region();
}

inline void Region::RecomputedTensor::pack(const at::Tensor& tensor) {
  tensor_ = without_history(tensor);
  run_.pack(tensor_);
}

}  // namespace reprise::detail
