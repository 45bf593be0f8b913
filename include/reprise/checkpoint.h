// SPDX-License-Identifier: Apache-2.0
/// Run part of a model without keeping its activations; its backward pass computes them again.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace reprise {

/// What `checkpoint` runs: any code that maps tensors to tensors. It runs once in forward and once
/// more in backward.
using CheckpointFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// Runs `function(inputs)` without keeping the tensors that autograd saves in it.
///
/// The first saved tensor that backward asks for runs `function` once more, up to the last saved
/// tensor ("early stop"), with the default random number generators, the autocast state and the
/// gradient mode of forward. The generators are put back afterwards, so the random stream goes on
/// as if nothing had been recomputed. Gradients are bitwise those of a plain call where the kernels
/// are deterministic. Nothing is kept but `inputs`, what `function` captures, and the generators'
/// states (5 KB).
///
/// Throws c10::Error in backward, naming the tensor, when the recomputation differs from forward
/// (number, shape, type or device of the saved tensors) or when an input was changed in place in
/// between. A change of a captured tensor is noticed only where autograd saves the tensor. What
/// `function` does to buffers or other state is done twice; see `in_recompute`. It must let
/// exceptions through. Regions may be nested.
std::vector<at::Tensor> checkpoint(CheckpointFunction function, std::vector<at::Tensor> inputs);

/// The same for one tensor in, one tensor out.
at::Tensor checkpoint(std::function<at::Tensor(const at::Tensor&)> function,
                      const at::Tensor& input);

/// True while a region's function runs for the second time: for code with side effects that must
/// happen once.
bool in_recompute();

}  // namespace reprise
