// SPDX-License-Identifier: Apache-2.0
/// The seam through which every layer of a forward pass runs: to checkpoint it, to measure it, or,
/// in a test, to break it.
#pragma once

#include "reprise/tft.h"

#include <functional>
#include <string>
#include <vector>

namespace reprise::detail {

/// A layer as a function of its input tensors, of which some may be undefined. It owns what it
/// needs of the model.
using LayerFunction =
    std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>& inputs)>;

/// Runs the layer of that name (one of `layer_names`) and returns what `function` returns.
using LayerRunner = std::function<std::vector<torch::Tensor>(
    const std::string& layer, const LayerFunction& function,
    const std::vector<torch::Tensor>& inputs)>;

/// Runs a layer as a checkpointed region where `options` say so, else plainly.
LayerRunner checkpointing_runner(const TftOptions& options);

/// As `interpret`, every layer run by `runner`, in the order of `layer_names`.
TftOutput interpret_with(TemporalFusionTransformerImpl& model, const TftInput& input,
                         const LayerRunner& runner);

}  // namespace reprise::detail
