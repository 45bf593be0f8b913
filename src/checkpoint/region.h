// SPDX-License-Identifier: Apache-2.0
/// A checkpointed region between its forward pass and the end of its backward pass.
#pragma once

#include "autograd/forward_context.h"
#include "autograd/saved_tensor_hooks.h"
#include "autograd/tensor_version.h"
#include "checkpoint/captured_tensors.h"
#include "checkpoint/kept_results.h"
#include "checkpoint/tensor_metadata.h"
#include "reprise/checkpoint.h"

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace reprise::detail {

/// Owned by the tensors that autograd saved in it.
class Region : public std::enable_shared_from_this<Region> {
 public:
  Region(const CheckpointOptions& options, RegionFunction function,
         const std::vector<at::Tensor>& inputs);

  /// The first run.
  void run_forward(const std::vector<at::Tensor>& inputs, void* result);
  /// The value of saved tensor `index`, which is then forgotten.
  at::Tensor take(std::size_t index);

 private:
  class ForwardRun;
  class SecondRun;
  class SlotReference;
  class RecomputedTensor;

  /// One tensor that forward saved: not its value, only how to recognise it.
  struct Slot {
    TensorMetadata metadata;
    const OperatorInfo* saved_by;          // null: no operator, a function of the user's
    std::optional<TensorVersion> version;  // where no operator reads it: see CapturedTensors
    std::uint64_t checksum = 0;
    at::Tensor recomputed;  // between recomputation and use
    std::int64_t recomputed_version = 0;

    bool is_wanted() const { return wanted.load(std::memory_order_acquire); }
    void set_unwanted() { wanted.store(false, std::memory_order_release); }

    Slot(const at::Tensor& tensor, const OperatorInfo* saved_by_operator)
        : metadata(tensor), saved_by(saved_by_operator) {}

   private:
    std::atomic<bool> wanted = true;  // autograd still holds it
  };

  /// One input between the two runs.
  class Input {
   public:
    explicit Input(const at::Tensor& tensor);
    /// The function changed it: it gets a copy of what it was.
    void set_changed(CapturedTensors::Changed changed);
    at::Tensor again(CapturedTensors::Replay& replay, const std::string& message_start,
                     std::size_t index) const;

   private:
    TensorVersion version_;
    bool requires_grad_;
    std::optional<SavedInput> saved_;
    at::Tensor kept_;  // one of inference mode
    std::optional<CapturedTensors::Changed> changed_;
  };

  /// Autograd no longer holds the saved tensor.
  void release(Slot& slot);
  ObservedOperators observed_operators() const;
  void end_forward(const std::vector<at::Tensor>& inputs);
  std::string describe_slot(std::size_t index) const;
  void compare(std::size_t index, const at::Tensor& tensor, const OperatorInfo* saved_by) const;
  void store(std::size_t index, const at::Tensor& tensor);
  void compare_values(std::size_t index, const at::Tensor& tensor) const;
  void forget_recomputed();
  std::vector<at::Tensor> inputs_again(CapturedTensors::Replay& replay) const;
  std::size_t last_wanted() const;
  void recompute();
  void run_again(CapturedTensors::Replay& replay, const std::vector<at::Tensor>& inputs);

  CheckpointOptions options_;
  std::string message_start_;  // "checkpoint: ", with the region's name if it has one
  RegionFunction function_;
  std::int32_t layer_ = -1;                   ///< current at the end of forward
  std::vector<std::optional<Input>> inputs_;  // nothing: undefined
  ForwardContext context_;
  CapturedTensors captured_;
  KeptResults kept_results_;
  std::size_t operator_count_ = 0;  // of the forward pass
  bool observes_leaves_ = false;    // in the forward pass, for another region's sake perhaps
  bool is_running_forward_ = false;
  bool is_recomputing_ = false;
  std::deque<Slot> slots_;
  // Recursive: a backward pass inside the function may ask for saved tensors of the same region.
  std::recursive_mutex mutex_;
};

}  // namespace reprise::detail
