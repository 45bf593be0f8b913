// SPDX-License-Identifier: Apache-2.0
/// Takes one checkpointed gradient with the installed library; prints "gradient: 4 10".
#include <ATen/ATen.h>
#include <reprise/reprise.h>

#include <cstdio>

int main() {
  const auto x = at::tensor({2.0, 5.0}).requires_grad_();
  const auto square = [](const at::Tensor& value) {
    return value * value;
  };
  reprise::checkpoint(square, x).sum().backward();
  std::printf("gradient: %g %g\n", x.grad()[0].item<double>(), x.grad()[1].item<double>());  // 2x
}
