// SPDX-License-Identifier: Apache-2.0
#include "reprise/checkpoint.h"

#include "autograd/forward_context.h"
#include "checkpoint/region.h"

#include <ATen/core/grad_mode.h>

namespace reprise {

void detail::run_region(const CheckpointOptions& options, RegionFunction function,
                        const std::vector<at::Tensor>& inputs, void* result) {
  if (!at::GradMode::is_enabled()) return function(inputs, result);
  std::make_shared<Region>(options, std::move(function), inputs)->run_forward(inputs, result);
}

bool in_recompute() {
  return detail::RecomputeScope::is_active();
}

}  // namespace reprise
