// SPDX-License-Identifier: Apache-2.0
/// The detach bug, reproduced: a home-made substitute for checkpointing that cuts the gradient.
/// Test code only.
#pragma once

#include "reprise/tft.h"

#include <string>
#include <utility>
#include <vector>

namespace reprise::testing {

/// How the layers of the aggressive tier are run.
enum class Variant {
  kBaseline,  ///< plainly
  kBroken,    ///< on detached inputs: what they compute is not kept upstream, nor differentiated
  kCorrect,   ///< as checkpointed regions
};

/// The loss of one batch, its layers run as `variant` says.
torch::Tensor loss_of(TemporalFusionTransformer& model, const TftInput& input,
                      const torch::Tensor& target, Variant variant);

/// A small model with every kind of layer, and a batch that it can learn.
struct DetachBugCase {
  TemporalFusionTransformer model{nullptr};
  TftInput input;
  torch::Tensor target;
};
DetachBugCase detach_bug_case();

/// One part of the model after a training.
struct WeightChange {
  std::string part;         ///< "static_vsn", ...
  double relative_change;   ///< norm of the weights' change, divided by the norm of the weights
  std::int64_t gradients;   ///< parameters that got a gradient that is not zero
  std::int64_t parameters;  ///< of the part
};

struct TrainedVariant {
  double first_loss;
  double last_loss;
  std::vector<WeightChange> changes;
  std::vector<torch::Tensor> weights;
};

/// Trains a `detach_bug_case` for `steps` steps from the same weights and random numbers.
TrainedVariant train_variant(Variant variant, int steps);

}  // namespace reprise::testing
