// SPDX-License-Identifier: Apache-2.0
/// Compare the gradients of two passes of a model, parameter by parameter.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace reprise {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// The parameters of `module`, then its buffers, with their full names.
NamedTensors named_tensors(const torch::nn::Module& module);

/// One parameter's gradients in the two passes.
struct GradientComparison {
  std::string name;
  bool has_plain_gradient = false;
  bool has_checkpointed_gradient = false;
  bool is_equal = false;          ///< both absent, or equal bytes
  double largest_difference = 0;  ///< of two elements; infinite where only one pass has a gradient
                                  ///< or only one value is not a number
};

/// What `verify_gradients` found.
struct GradientReport {
  std::vector<GradientComparison> parameters;
  std::vector<std::string> differing_buffers;  ///< left with other values by the second pass
  bool has_equal_outputs = false;              ///< the two functions returned equal bytes
  bool has_equal_random_stream = false;        ///< the generators were left in equal states
  /// False when a difference was found and the plain pass does not even agree with itself.
  bool is_plain_repeatable = true;

  bool is_equal() const;
  /// Parameters that get no gradient in either pass: no difference, but rarely what is wanted.
  std::vector<std::string> without_gradient() const;
  /// One line per parameter that differs or gets no gradient, then what else differs, then the
  /// verdict.
  std::string to_text() const;
};

/// Runs forward and backward of both functions from the same state and compares what they leave.
///
/// Each function runs a forward pass and returns a floating-point tensor, the loss or an output of
/// any shape, whose sum is differentiated. Entries of `parameters` that need no gradient are
/// buffers: their values after the passes are compared. Parameters, buffers, `.grad` and the
/// default random number generators are left as they were before the call, after an exception too.
/// Bitwise: equal means equal bytes.
///
/// Neither function has to use this library: a home-made substitute that cuts the gradient, such as
/// a `detach()` on a layer's input, is found by the parameters that get no gradient or another one.
/// Throws c10::ValueError when nothing needs a gradient or an output has none.
[[nodiscard]] GradientReport verify_gradients(const NamedTensors& parameters,
                                              const std::function<at::Tensor()>& plain,
                                              const std::function<at::Tensor()>& checkpointed);

}  // namespace reprise
