// SPDX-License-Identifier: Apache-2.0
/// The tensors from outside that a region's function reads or changes.
#pragma once

#include "autograd/operator_observer.h"
#include "autograd/tensor_version.h"
#include "checkpoint/tensor_metadata.h"

#include <ATen/core/Tensor.h>
#include <c10/util/flat_hash_map.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace reprise::detail {

/// Filled by the operators of the forward pass. Tensors are known by their memory: all that lie in
/// it count as one.
class CapturedTensors {
 public:
  explicit CapturedTensors(const std::string& region_name) : region_name_(region_name) {}

  /// Notes an input of the region.
  void add_input(const at::Tensor& input);
  /// Notes what the operator reads, and keeps the value of what it is about to change for the first
  /// time. Throws `CheckpointError` where that is no input and needs a gradient.
  void before_operator(const OperatorCall& call);
  /// Notes the tensors that were made inside. Throws `CheckpointError` where the operator has given
  /// another shape to a tensor from outside.
  void after_operator(const OperatorInfo& info, std::span<const c10::IValue> results);
  /// Forgets what was made inside.
  void end_forward();

  /// A tensor of which the function changed the memory: all but its value, as it was before.
  struct Changed {
    const void* identity;
    c10::SmallVector<std::int64_t, 5> sizes;
    c10::SmallVector<std::int64_t, 5> strides;
    std::int64_t storage_offset = 0;
    at::TensorOptions options;
    bool is_conj = false;
    bool is_neg = false;
    bool requires_grad;

    explicit Changed(const at::Tensor& tensor);
  };
  /// Nothing where the function did not change `tensor`, nor memory that it shares.
  std::optional<Changed> changed(const at::Tensor& tensor) const;

  class Replay;

 private:
  /// One tensor that lies in captured memory, as it was when it was first read.
  struct Seen {
    // Pinned, so that no other tensor can get its address.
    c10::weak_intrusive_ptr<c10::TensorImpl> impl;
    TensorVersion version;
    Changed shape;
  };
  struct Captured {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // pinned likewise
    std::vector<Seen> tensors;
    bool is_input = false;
    at::Tensor bytes_before;  // the whole storage before the first change; undefined: only read
  };
  static constexpr int kMadeInside = -1;

  void note_read(const at::Tensor& tensor, const at::Tensor& effective);
  void note_write(const OperatorInfo& info, const at::Tensor& tensor, const at::Tensor& effective);
  const Captured* find(const void* identity) const;
  const Seen* find_seen(const Captured& captured, const at::Tensor& tensor) const;

  const std::string& region_name_;
  std::vector<Captured> captured_;
  struct Written {
    at::Tensor tensor;
    std::vector<std::int64_t> sizes;
  };
  std::vector<Written> being_written_;          // by the running operator
  ska::flat_hash_map<const void*, int> known_;  // by memory: index into captured_, or kMadeInside
  ska::flat_hash_map<const c10::TensorImpl*, int> seen_;  // the captured tensors themselves
};

/// The captured tensors during one recomputation: those that forward only read must be as they
/// were, those that it changed are replaced by copies of their earlier values.
class CapturedTensors::Replay {
 public:
  explicit Replay(const CapturedTensors& captured) : captured_(captured) {}

  /// The copy that stands for `tensor`; undefined where the function did not change it.
  at::Tensor replacement(const at::Tensor& tensor);
  /// The copy that stands for an input.
  at::Tensor copy_of(const Changed& changed);
  /// Throws `CheckpointError` naming the argument that was changed since forward.
  void check(const OperatorCall& call) const;

 private:
  const CapturedTensors& captured_;
  std::unordered_map<const Captured*, at::Tensor> bytes_;  // of the copies
  struct Replacement {
    at::Tensor original;  // keeps the address from being used again
    at::Tensor copy;
  };
  std::unordered_map<const c10::TensorImpl*, Replacement> replacements_;
};

}  // namespace reprise::detail
