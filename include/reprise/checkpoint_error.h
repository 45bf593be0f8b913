// SPDX-License-Identifier: Apache-2.0
/// The error of a region that cannot be recomputed exactly.
#pragma once

#include <c10/util/Exception.h>

namespace reprise {

/// Thrown where a region cannot be recomputed exactly. It names the tensor or the operator.
class CheckpointError : public c10::Error {
 public:
  using c10::Error::Error;
};

}  // namespace reprise
