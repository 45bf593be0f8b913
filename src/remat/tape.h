// SPDX-License-Identifier: Apache-2.0
/// What a forward pass did: its operators, and the values that they made.
#pragma once

#include "autograd/forward_context.h"
#include "autograd/operator_observer.h"
#include "autograd/tensor_mold.h"
#include "autograd/tensor_version.h"
#include "remat/operation.h"
#include "remat/planned_step.h"
#include "remat/step_graph.h"
#include "remat/step_profile.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/util/flat_hash_map.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace reprise::detail {

/// A tensor that autograd saved.
struct Slot {
  ValueId value = kNone;
  at::Tensor own;  ///< where it is of no value
  TensorMold mold;
  TensorVersion version;
  const OperatorInfo* saved_by = nullptr;
  bool is_taken = false;
};

/// What tapes have done, in all threads.
struct TapeCounters {
  std::atomic<std::int64_t> operations = 0;
  std::atomic<std::int64_t> evictions = 0;
  std::atomic<std::int64_t> evicted_bytes = 0;
  std::atomic<std::int64_t> replayed_operations = 0;
  std::atomic<std::int64_t> replay_ns = 0;
};

/// Where a tape takes its plan from, and leaves what it has recorded.
class StepPlans {
 public:
  virtual ~StepPlans() = default;
  /// Another plan whose first operations are these; null: none.
  virtual std::shared_ptr<const PlannedStep> find(
      const std::vector<std::uint64_t>& signature) const = 0;
  /// A step did something else than its plan foresaw.
  virtual void note_miss() = 0;
  /// Called when the last saved tensor of a step is gone.
  virtual void add(StepGraph step) = 0;
  virtual void note_peak(std::shared_ptr<const PlannedStep> plan, std::int64_t peak_bytes) = 0;
};

/// How a tape is to run.
struct TapeOptions {
  std::shared_ptr<StepPlans> plans;         ///< null: none is made, none is carried out
  std::shared_ptr<const PlannedStep> plan;  ///< for steps that are the same; null: none
  bool is_profiled = false;                 ///< the step is to be planned
};

/// The tape of one forward pass. Written by its thread; afterwards any thread may ask for saved
/// tensors, which own it.
///
/// Without a plan all saved tensors are kept until memory runs out, as in Kirisame et al. 2021,
/// "Dynamic Tensor Rematerialization". With one, those that it names are, and what it runs again
/// in backward it runs again when it says. A step that turns out to be another one goes on without.
class Tape {
 public:
  Tape(std::shared_ptr<TapeCounters> counters, TapeOptions options);
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // The forward pass.
  void begin_operation(const OperatorCall& call);
  void end_operation(std::span<const c10::IValue> results);
  std::size_t add_slot(const at::Tensor& tensor);
  void end_forward();

  // The backward pass.
  /// The saved tensor. Throws `CheckpointError` where it, or what it is computed from, was changed
  /// since.
  at::Tensor take(std::size_t slot);
  void release(std::size_t slot);

  /// Time that this thread has spent in evictions: it is no operator's.
  static double& eviction_ms();
  /// Lets go of values that can be computed anew, those first that cost least per byte and per time
  /// since their last use, until `bytes` are free; returns how many are. None: another thread is
  /// busy with the tape.
  std::optional<std::int64_t> evict(std::int64_t bytes);

 private:
  class Replay;

  enum class Content { kValue, kExternal, kUnknown };
  struct Buffer {
    WeakStorage pin = no_storage();  ///< so that no other storage gets its address
    Content content = Content::kUnknown;
    std::int32_t index = kNone;  ///< of the value or the external
  };
  /// The operator that is running.
  struct Pending {
    Operation operation;
    std::vector<at::Tensor> tensors;  ///< those of operation.reads
    bool is_replayable = true;
    std::vector<std::size_t> slots;  ///< saved by it
    std::chrono::steady_clock::time_point begin;
    double begin_eviction_ms = 0.0;
  };

  Buffer* find_buffer(const at::Tensor& tensor);
  Buffer& buffer_of(const at::Tensor& tensor);
  std::int32_t external_of(const at::Tensor& tensor);
  void add_argument(const at::Tensor& tensor, std::size_t argument, std::int32_t element,
                    bool is_written);
  void add_arguments(const OperatorCall& call);
  void prepare_write(Read& read, const at::Tensor& tensor);
  ValueId keep_before(const at::Tensor& tensor);
  void set_overwritten(Value& value);
  void note_random_state(const OperatorCall& call);
  bool makes_values(std::span<const c10::IValue> results) const;
  void resolve_reads();
  void note_writes();
  void note_results(std::span<const c10::IValue> results);
  ValueId add_value(const at::Tensor& tensor);
  void settle(Slot& slot);
  void follow_plan();
  void note_drops();
  void note_operation();
  void note_event(bool is_need, ValueId value);
  bool follows_plan(bool is_need, ValueId value);
  bool is_kept(ValueId value) const;
  void drop_plan();
  void hold_planned();
  void note_overwritten(ValueId id);
  void end_step();
  void run_planned();
  void run_operations(const std::vector<std::int32_t>& operations);
  void drop_planned();

  void move_to(Value& value, const c10::Storage& storage);
  c10::Storage find(const Value& value) const;
  c10::Storage storage_of(ValueId id);
  double recomputation_ms(ValueId id) const;
  ValueId cheapest_to_evict() const;

  /// Of the state; not held while an operator of the tape runs. Recursive: an allocation may ask
  /// for values to be evicted.
  mutable std::recursive_mutex mutex_;
  std::recursive_mutex replay_mutex_;
  ska::flat_hash_map<const c10::StorageImpl*, Buffer> buffers_;  ///< of forward
  std::vector<External> externals_;
  std::vector<Value> values_;
  std::vector<Operation> operations_;
  std::vector<RandomState> random_states_;
  std::deque<Slot> slots_;
  std::optional<Pending> pending_;
  std::optional<ExecutionState> execution_state_;
  std::int64_t clock_ = 0;
  bool is_forward_ = true;

  std::shared_ptr<StepPlans> plans_;
  std::vector<std::uint64_t> signature_;  ///< of the operations so far; with plans
  std::shared_ptr<const PlannedStep> plan_;
  std::size_t next_event_ = 0;   ///< of the plan
  std::size_t next_action_ = 0;  ///< of the plan

  std::optional<StepProfile> profile_;  ///< of steps with plans
  bool is_profiled_ = false;
  StepRecord record_;
  std::vector<ValueId> young_;  ///< that forward itself still holds
  std::int64_t begin_other_bytes_ = 0;
  std::chrono::steady_clock::time_point last_event_;
  std::shared_ptr<TapeCounters> counters_;
};

}  // namespace reprise::detail
