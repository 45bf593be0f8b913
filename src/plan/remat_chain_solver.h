// SPDX-License-Identifier: Apache-2.0
/// The optimal schedule of a chain of stages, for every number of bytes at once.
///
/// The dynamic program of Beaumont et al. 2019 ("Optimal checkpointing for heterogeneous chains",
/// RR-9302), with several options per stage. Bytes are rounded up to slots, so that no solution
/// takes more than it says.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/remat_chain.h"

namespace reprise::detail {

class ChainSolver {
 public:
  /// Solves for up to `needed_bytes` beside those that are in use whatever the plan, in slots that
  /// are fine enough for `most_bytes`: the schedules do not depend on `needed_bytes`.
  ChainSolver(const RematIndex& index, const Chain& chain, const ChainCosts& costs,
              std::int64_t most_bytes, std::int64_t needed_bytes);

  std::int64_t needed_bytes() const { return needed_bytes_; }

  /// None: no schedule of the chain fits.
  std::optional<Schedule> schedule(std::int64_t bytes) const;

  /// Steps of the inner loop that a chain takes.
  static double work(const RematIndex& index, const Chain& chain);

 private:
  using Costs = std::vector<float>;  // per number of slots, never rising

  struct Segment {
    Costs costs;
    std::int32_t least = 0;   ///< slots from which on it is possible
    std::int32_t enough = 0;  ///< slots from which on more do not help
    float least_ms = 0.0F;    ///< with those
  };

  /// The best of a segment with a number of slots: a cut or an option, or neither.
  struct Choice {
    float cost = 0.0F;
    std::int32_t cut = kNone;
    std::int32_t option = kNone;
  };

  void choose_slot(std::int64_t most_bytes);
  std::int32_t slots(std::int64_t bytes) const;
  std::int32_t fine_slots(std::int64_t bytes) const;
  void number_segments();
  const Segment& segment(std::int32_t first, std::int32_t end) const;
  Segment solve_segment(std::int32_t first, std::int32_t end) const;
  void add_options(std::int32_t first, std::int32_t end, float* costs) const;
  void add_cuts(std::int32_t first, std::int32_t end, float* costs) const;
  static void find_range(Segment& segment);
  void solve_forward(std::int32_t first);
  std::int32_t least_forward_slots(std::int32_t first, std::int32_t end_cut,
                                   const StageOption& option) const;
  Choice segment_choice(std::int32_t first, std::int32_t end, std::int32_t slots) const;
  Choice forward_choice(std::int32_t first, std::int32_t fine_slots) const;
  std::int32_t segment_slots(std::int32_t end_cut, std::int32_t fine_slots) const;
  void write_segment(std::int32_t first, std::int32_t end, std::int32_t slots,
                     Schedule& schedule) const;
  void write_option(const StageOption& option, Schedule& schedule) const;

  const RematIndex& index_;
  const Chain& chain_;
  const ChainCosts& costs_;
  std::int64_t needed_bytes_ = 0;
  std::int64_t slot_bytes_ = 1;
  double slots_per_byte_ = 1.0;
  std::int32_t most_slots_ = 0;
  std::int32_t fineness_ = 1;                 // fine slots per slot
  std::vector<std::int32_t> segment_number_;  // per pair of cuts
  std::vector<Segment> segments_;
  std::vector<const Segment*> ending_;    // per cut: from there to the end that is being solved
  std::vector<std::int32_t> held_slots_;  // per pair of cuts
  std::vector<Costs> forward_;            // per cut: from there to the end, in fine slots
};

}  // namespace reprise::detail
