// SPDX-License-Identifier: Apache-2.0
/// A forecaster and a random batch for it.
#pragma once

#include "reprise/quantile_loss.h"
#include "reprise/tft.h"

#include <torch/torch.h>

#include <cstdint>

namespace reprise::bench {

/// Of real variables alone.
class TftPass {
 public:
  TftPass(const TftOptions& options, std::int64_t batch)
      : model_(options), target_(torch::randn({batch, options.horizon})) {
    const auto steps = options.encoder_length + options.horizon;
    if (options.static_reals > 0) input_.static_real = torch::randn({batch, options.static_reals});
    input_.observed_real = torch::randn({batch, options.encoder_length, options.observed_reals});
    if (options.known_reals > 0)
      input_.known_real = torch::randn({batch, steps, options.known_reals});
  }

  torch::Tensor loss() {
    return quantile_loss(model_->forward(input_), target_, model_->options().quantiles);
  }
  TemporalFusionTransformer& model() { return model_; }

 private:
  TemporalFusionTransformer model_;
  TftInput input_;
  torch::Tensor target_;
};

}  // namespace reprise::bench
