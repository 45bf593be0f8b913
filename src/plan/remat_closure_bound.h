// SPDX-License-Identifier: Apache-2.0
/// A bound that knows that what is run again needs its inputs.
///
/// At one moment of the backward pass, each value that is needed later is kept or its operation
/// runs again later, and of an operation that runs again each input is kept or its own operation
/// runs again. With a price on kept bytes the cheapest such choice is a minimum cut, and any flow
/// is a bound of it from below: values are ready to pay for their bytes, operations take up to
/// their time, what is left goes on to the inputs.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/remat_index.h"

namespace reprise::detail {

class ClosureBound {
 public:
  /// Right after the event; -1: at the end of forward.
  ClosureBound(const RematIndex& index, std::int32_t event);

  /// With so many bytes for values that wait, and such a price (ms for each byte) on them. Every
  /// price gives a bound; none is below that of each operation by itself.
  double least_replay_ms(std::int64_t waiting_bytes, double price);

 private:
  const RematIndex& index_;
  std::vector<char> is_waiting_;  // per value: needed later, not in use, and can be made again
  std::vector<char> can_charge_;  // per value: not needed, but kept or made again where it is read
  std::vector<double> offered_ms_;  // per value: what readers are left with
};

}  // namespace reprise::detail
