// SPDX-License-Identifier: Apache-2.0
/// Choose operators of a checkpointed region whose results are kept instead of computed again.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace reprise {

/// One operator call of a region's forward pass, as a policy sees it.
struct SaveCandidate {
  std::string_view name;                   ///< without overload: "aten::mm"
  std::string_view overload;               ///< "" or for example "Tensor"
  const std::vector<at::Tensor>& results;  ///< to look at: sizes, types
};

/// Which results of a region are kept. Operators are those that LibTorch's kernels see: a linear
/// layer is `aten::addmm` (or `aten::mm`), attention `aten::_scaled_dot_product_...`, whatever
/// function of the C++ API called them; under autocast they are seen after the casts.
///
/// Only operators that make new tensors can be kept: a list that names a view or an in-place
/// operator is refused, and a callable is not asked about them.
class SavePolicy {
 public:
  using Predicate = std::function<bool(const SaveCandidate&)>;

  SavePolicy() = default;  ///< keeps nothing
  /// Keeps the results for which `predicate` is true. It is called once for each operator, in
  /// forward. Throws `OptionError` for an empty one.
  explicit SavePolicy(Predicate predicate);
  /// Keeps the results of these operators, named with or without overload. Throws `OptionError`
  /// for a name that LibTorch does not have and for operators that cannot be kept.
  explicit SavePolicy(const std::vector<std::string>& operators);

  static SavePolicy matmuls();       ///< mm, addmm, bmm, baddbmm, addmv, mv, dot, linear
  static SavePolicy attention();     ///< every fused scaled dot product attention
  static SavePolicy convolutions();  ///< aten::convolution and the kernels behind it
  /// The three together: what costs time rather than memory.
  static SavePolicy compute_heavy();

  bool keeps_anything() const { return predicate_ != nullptr; }
  bool keeps(const SaveCandidate& candidate) const { return (*predicate_)(candidate); }

 private:
  std::shared_ptr<const Predicate> predicate_;  // shared: every region copies its options
};

}  // namespace reprise
