// SPDX-License-Identifier: Apache-2.0
#include "reprise/checkpoint_modules.h"

#include "reprise/errors.h"

#include <iterator>
#include <string>
#include <vector>

namespace reprise {
namespace {

using Modules = std::vector<torch::nn::AnyModule>;

at::Tensor forward(Modules& modules, at::Tensor value) {
  for (auto& module : modules) value = module.forward(std::move(value));
  return value;
}

}  // namespace

at::Tensor checkpoint_sequential(const torch::nn::Sequential& modules, std::int64_t segments,
                                 const at::Tensor& input, const CheckpointOptions& options) {
  const auto count = static_cast<std::int64_t>(modules->size());
  if (segments < 1 || segments > count) {
    throw OptionError("segments", "checkpoint_sequential: segments is " + std::to_string(segments) +
                                      ", must be between 1 and the number of modules, " +
                                      std::to_string(count));
  }
  auto value = input;
  for (std::int64_t i = 0; i < segments; ++i) {
    const auto begin = modules->begin() + i * count / segments;
    const auto end = modules->begin() + (i + 1) * count / segments;
    Modules segment(begin, end);
    if (i + 1 == segments) return forward(segment, std::move(value));
    value = checkpoint(
        options,
        [segment](at::Tensor& segment_input) mutable { return forward(segment, segment_input); },
        std::move(value));
  }
  return value;
}

}  // namespace reprise
