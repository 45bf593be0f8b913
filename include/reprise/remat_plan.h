// SPDX-License-Identifier: Apache-2.0
/// Which values of a recorded training step to keep, and which to compute again in the backward
/// pass, and when: the graph, the plan, an exact simulator of its bytes, and the solver.
///
/// No LibTorch here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace reprise {

/// One step of the forward pass: an operator, with those after it that change its results in place.
struct RematOperation {
  std::string name;      ///< "aten::addmm"
  std::string layer;     ///< of `LayerScope`; empty: none
  double time_ms = 0.0;  ///< of one run
  /// Most that it takes besides its inputs and outputs, with what is no value's while forward runs
  /// it.
  std::int64_t temporary_bytes = 0;
  std::vector<std::int32_t> inputs;   ///< values that it reads, ascending
  std::vector<std::int32_t> outputs;  ///< values that it makes, ascending
  bool can_run_again = true;          ///< false: its outputs are kept, or are there no more
};

/// Memory that an operation fills once.
struct RematValue {
  std::int64_t bytes = 0;
  std::int32_t made_by = 0;  ///< operation
  /// The last operation during which forward itself holds it, at least `made_by`; the number of
  /// operations: it holds it to the end of the step, whatever the plan.
  std::int32_t held_until = 0;
  bool can_be_kept = true;  ///< false: forward overwrites it later
};

/// What the backward pass does with a value. Between a need and its release the pass holds the
/// value itself; the same value may be needed again later.
struct RematEvent {
  enum class Kind { kNeed, kRelease };
  Kind kind = Kind::kNeed;
  std::int32_t value = 0;
  double time_ms = 0.0;  ///< of the backward pass until the next event
  std::int64_t other_bytes =
      0;  ///< most that is no value's until the next event: gradients, scratch
};

/// A training step as it was recorded. What the operations read from outside, as parameters and
/// batches, is no value: it is part of `base_bytes`.
struct RematGraph {
  std::int64_t base_bytes = 0;   ///< in use before the step, and all through it
  std::int64_t first_bytes = 0;  ///< most that is no value's between forward and the first event
  std::vector<RematOperation> operations;  ///< in the order of the forward pass
  std::vector<RematValue> values;          ///< in the order in which they are made
  std::vector<RematEvent> events;          ///< in the order of the backward pass

  /// Throws `std::invalid_argument` naming what cannot be: an index out of range or order, a value
  /// read before it is made, a release without a need, negative or non-finite numbers.
  void validate() const;
  /// Of the structure, names, and bytes; not of times.
  std::uint64_t hash() const;
};

/// One thing to do in the backward pass.
struct RematAction {
  enum class Kind { kRun, kDrop };
  std::int32_t before_event = 0;  ///< done before that event
  Kind kind = Kind::kRun;
  std::int32_t index = 0;  ///< kRun: the operation, whose outputs are then there; kDrop: the value
};

/// What to keep, and what to do in the backward pass. Values are there until they are dropped.
struct RematPlan {
  std::vector<std::int32_t> kept;    ///< values that are there at the end of forward, ascending
  std::vector<RematAction> actions;  ///< in order; `before_event` never falls
};

/// What a plan costs.
struct RematForecast {
  std::int64_t peak_bytes = 0;  ///< with `base_bytes`
  std::int64_t kept_bytes = 0;  ///< of the values there at the end of forward
  double forward_ms = 0.0;
  double backward_ms = 0.0;  ///< without replayed operations
  double replay_ms = 0.0;
  std::int64_t replayed_operations = 0;
};

/// Goes through forward and backward, byte by byte.
///
/// Forward holds each value until `held_until`, and longer where it is kept; while an operation
/// runs, its inputs, its outputs and its temporary bytes are there together. Where an operation is
/// run again, all outputs are made, those that are there already included, and the duplicates are
/// dropped at once. A value that is dropped and made again while backward still holds it takes its
/// bytes twice. Actions count beside the most that is no value's in the gap before their event: an
/// upper bound, as its level at the end of the gap is not known. Throws `std::invalid_argument`
/// when the plan cannot be carried out: a value that is needed or read is not there, an operation
/// that cannot be run again is, ...
RematForecast simulate(const RematGraph& graph, const RematPlan& plan);

/// Keeps everything that backward needs.
RematPlan plan_without_replay(const RematGraph& graph);

struct RematSolution {
  bool is_feasible = false;  ///< false: `plan` is that of the smallest budget found
  RematPlan plan;
  RematForecast forecast;
  double least_replay_ms = 0.0;  ///< no plan within the budget replays less (a bound)
  /// Peak of the plan that takes least, of those found: where the budget is enough, no search is
  /// made for smaller ones.
  std::int64_t smallest_budget_bytes = 0;
  std::int64_t least_budget_bytes = 0;  ///< no plan takes less (a bound)
};

/// The plan with the least replayed time whose simulated peak is at most `budget_bytes`.
///
/// Deterministic: the same graph and budget give the same plan. Of two budgets the larger never
/// gets more replayed time. On chains of stages the plan is optimal up to the rounding of memory
/// (Beaumont et al. 2019, heterogeneous stages with several options each); on other graphs it is
/// the best that was found, of small ones (up to some 30 values) nearly always the optimum.
RematSolution plan_rematerialisation(const RematGraph& graph, std::int64_t budget_bytes);

/// One plan of the curve of budget against time.
struct RematPoint {
  std::int64_t budget_bytes = 0;  ///< peak of the plan
  double replay_ms = 0.0;
};

/// Budgets from the smallest found to that without any replay: ascending, replayed time falling.
std::vector<RematPoint> rematerialisation_curve(const RematGraph& graph);

/// Of the plan, its graph (without times), and its budget.
std::uint64_t plan_hash(const RematPlan& plan, const RematGraph& graph, std::int64_t budget_bytes);
/// 16 digits.
std::string hexadecimal(std::uint64_t hash);
/// The plan as JSON, with its hash, that of its graph, and its budget. The same input gives the
/// same text.
std::string to_json(const RematPlan& plan, const RematGraph& graph, std::int64_t budget_bytes);
/// Throws `std::invalid_argument` where the text is no plan, that of another graph, or was changed.
RematPlan plan_from_json(const std::string& text, const RematGraph& graph);
/// The hash of the graph that the plan is of. Throws `std::invalid_argument` where the text is no
/// plan.
std::uint64_t graph_hash_of_json(const std::string& text);

}  // namespace reprise
