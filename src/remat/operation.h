// SPDX-License-Identifier: Apache-2.0
/// What a tape records: operations, and the values that they read and make.
#pragma once

#include "autograd/operator_observer.h"
#include "autograd/tensor_mold.h"
#include "autograd/tensor_version.h"

#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace reprise::detail {

/// Index of a value of a tape.
using ValueId = std::int32_t;
constexpr std::int32_t kNone = -1;

using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;
inline WeakStorage no_storage() {
  return WeakStorage(c10::intrusive_ptr<c10::StorageImpl>());
}

/// The content of a storage from one change to the next; tensors are views of it. Made by
/// operations that can be run again, so that it can always be computed anew.
struct Value {
  std::int32_t made_by = kNone;  ///< operation; none: held as it was before forward changed it
  std::int64_t bytes = 0;
  WeakStorage storage = no_storage();    ///< where it was last
  std::optional<TensorVersion> version;  ///< of forward's storage; none: a replay's own
  bool is_overwritten = false;           ///< forward has changed `storage` since
  c10::Storage held;                     ///< the tape's own reference; none: evicted or not kept
  std::int32_t saves = 0;                ///< tensors of it that autograd still holds
  std::int64_t last_use = 0;             ///< by the tape's clock
};

/// A storage of which the content cannot be computed anew, and is kept: parameters, batches,
/// results of operators that cannot be run again, memory that was written through pointers.
struct External {
  c10::Storage storage;
  TensorVersion version;
  ValueId before = kNone;  ///< what it was before forward changed it
};

/// A tensor among the arguments of an operation: of a value, of an external storage, or of memory
/// that the operation fills whatever was there.
struct Read {
  std::int32_t argument = 0;
  std::int32_t element = kNone;  ///< of a list; none: the argument itself
  ValueId value = kNone;
  std::int32_t external = kNone;
  std::int64_t fresh_bytes = 0;
  bool is_written = false;
  TensorMold mold;
};

/// One run of an operator.
struct Operation {
  const OperatorInfo* info = nullptr;
  std::vector<c10::IValue> arguments;  ///< without their tensors
  std::vector<Read> reads;
  /// Values that it made: in memory of `reads[read]`, or of its result number `result`.
  struct Write {
    ValueId value = kNone;
    std::int32_t read = kNone;
    std::int32_t result = kNone;
  };
  std::vector<Write> writes;
  std::int32_t random_state = kNone;  ///< index; none: draws nothing
  std::int32_t layer = kNone;
  bool is_in_gradient_mode = false;
  double time_ms = 0.0;
};

}  // namespace reprise::detail
