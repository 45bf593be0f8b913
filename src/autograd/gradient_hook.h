// SPDX-License-Identifier: Apache-2.0
/// Hear of every gradient that backward adds to a parameter.
#pragma once

#include <ATen/core/Tensor.h>

namespace reprise::detail {

using GradientHook = void (*)(const at::Tensor& parameter);

/// Calls `hook` after each accumulation into `parameter.grad()`, for the life of the parameter;
/// after a hook that is there already. In the thread of the backward pass. The same hook is added
/// once.
void add_gradient_hook(const at::Tensor& parameter, GradientHook hook);

}  // namespace reprise::detail
