// SPDX-License-Identifier: Apache-2.0
/// Hear of every gradient that backward adds to a parameter.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace reprise::detail {

/// Calls `hook(parameter)` after each accumulation into `parameter.grad()`, for the life of the
/// parameter; after a hook that is there already. In the thread of the backward pass.
void add_gradient_hook(const at::Tensor& parameter, std::function<void(const at::Tensor&)> hook);

}  // namespace reprise::detail
