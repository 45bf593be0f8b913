// SPDX-License-Identifier: Apache-2.0
/// Writes a tape while a thread runs a forward pass.
#pragma once

#include "autograd/operator_observer.h"
#include "autograd/saved_tensor_hooks.h"
#include "remat/tape.h"

#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace reprise::detail {

/// What autograd holds in place of a saved tensor.
class TapedTensor : public PackedTensor {
 public:
  explicit TapedTensor(std::shared_ptr<Tape> tape) : tape_(std::move(tape)) {}
  ~TapedTensor() override {
    if (is_packed_) tape_->release(slot_);
  }

  void pack(const at::Tensor& tensor) override {
    slot_ = tape_->add_slot(without_history(tensor));
    is_packed_ = true;
  }
  at::Tensor unpack() override { return tape_->take(slot_); }

 private:
  std::shared_ptr<Tape> tape_;
  std::size_t slot_ = 0;
  bool is_packed_ = false;
};

/// The operators and the saved tensors of this thread go to the tape as long as it lives.
class Recorder : private OperatorObserver, private SavedTensorHandler {
 public:
  explicit Recorder(std::shared_ptr<Tape> tape)
      : tape_(std::move(tape)),
        saved_tensors_(*this),
        operators_(*this, ObservedOperators::kLeaves) {}
  ~Recorder() override { tape_->end_forward(); }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

 private:
  bool before_operator(const OperatorCall& call, std::vector<c10::IValue>& /*results*/) override {
    tape_->begin_operation(call);
    return false;
  }
  void after_operator(const OperatorInfo& /*info*/, std::span<const c10::IValue> results) override {
    tape_->end_operation(results);
  }
  bool hears_casts() const override { return true; }
  std::unique_ptr<PackedTensor> next() override { return std::make_unique<TapedTensor>(tape_); }

  std::shared_ptr<Tape> tape_;
  SavedTensorScope saved_tensors_;
  OperatorObserverScope operators_;
};

}  // namespace reprise::detail
