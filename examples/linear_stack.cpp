// SPDX-License-Identifier: Apache-2.0
/// Prints, for 1, 2, 10 and 100 layers, the activations stored without (layers + 1) and with
/// checkpointing (1), and that the gradients are bitwise equal: "yes" in every row.
#include <reprise/linear_stack.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstring>

using reprise::linear_stack::Layer;
using reprise::linear_stack::StackGradients;

static bool same_bytes(const torch::Tensor& a, const torch::Tensor& b) {
  return a.sizes() == b.sizes() && std::memcmp(a.contiguous().const_data_ptr(),
                                               b.contiguous().const_data_ptr(), a.nbytes()) == 0;
}

static bool same_bytes(const StackGradients& a, const StackGradients& b) {
  bool is_same = same_bytes(a.grad_input, b.grad_input);
  for (std::size_t i = 0; i < a.grad_weights.size(); ++i) {
    is_same = is_same && same_bytes(a.grad_weights[i], b.grad_weights[i]) &&
              same_bytes(a.grad_biases[i], b.grad_biases[i]);
  }
  return is_same;
}

int main() {
  namespace stack = reprise::linear_stack;
  torch::manual_seed(1);
  bool is_always_equal = true;
  std::printf("layers  stored without  stored with  bitwise equal\n");
  for (const std::int64_t depth : {1, 2, 10, 100}) {
    std::vector<Layer> layers;
    for (std::int64_t i = 0; i < depth; ++i) {
      layers.push_back({torch::randn({32, 32}) * 0.25, torch::randn({32}) * 0.1});
    }
    const auto x = torch::randn({8, 32});
    const auto grad_output = torch::randn({8, 32});

    const auto full = stack::forward_full(x, layers);
    const auto expected =
        stack::backward_full(grad_output, layers, full.activations, full.pre_activations);
    const auto output = stack::forward_checkpointed(x, layers);
    const auto recomputed = stack::backward_checkpointed(grad_output, x, layers);

    const bool is_equal = same_bytes(output, full.final_output) && same_bytes(expected, recomputed);
    is_always_equal = is_always_equal && is_equal;
    std::printf("%6ld  %14ld  %11ld  %s\n", depth, stack::count_stored_activations(depth, false),
                stack::count_stored_activations(depth, true), is_equal ? "yes" : "no");
  }
  return is_always_equal ? 0 : 1;
}
