// SPDX-License-Identifier: Apache-2.0
/// A tensor that stands for the result of an operator that was not run again.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace reprise::detail {

/// A tensor over the memory of `value` that needs a gradient, as if an operator had computed it
/// from `arguments`. A backward pass that goes through it throws `CheckpointError` with `message`.
at::Tensor stand_in(const at::Tensor& value, const std::vector<at::Tensor>& arguments,
                    std::string message);

}  // namespace reprise::detail
