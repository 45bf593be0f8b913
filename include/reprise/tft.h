// SPDX-License-Identifier: Apache-2.0
/// The Temporal Fusion Transformer (Lim et al. 2021, "Temporal Fusion Transformers for
/// interpretable multi-horizon time series forecasting").
///
/// Letters: B batch, E encoder length, H horizon, N = E + H, V variables, D hidden width, A heads,
/// Q quantiles.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace reprise {

/// Which layers are recomputed in backward instead of keeping their activations: a tier. The
/// quantile layer is in none.
enum class Checkpointing {
  kOff,         ///< none: fastest
  kMinimal,     ///< LSTM encoder and decoder
  kAggressive,  ///< static, historical and future encoders, LSTM encoder and decoder, temporal
                ///< attention
  kAuto,        ///< none: `Rematerializer` decides in training, operator by operator
};

/// Shape of the model. Inputs of a kind that the data does not have count 0.
struct TftOptions {
  std::int64_t encoder_length = 168;  ///< past steps seen, in samples
  std::int64_t horizon = 24;          ///< future steps forecast, in samples
  std::int64_t hidden_size = 64;      ///< width D of every layer; divisible by `attention_heads`
  std::int64_t attention_heads = 4;
  std::int64_t lstm_layers = 1;
  double dropout = 0.1;                             ///< in [0, 1)
  std::vector<double> quantiles = {0.1, 0.5, 0.9};  ///< ascending, in (0, 1)
  std::int64_t variable_width = 0;  ///< embedding width of real variables; 0: `hidden_size`
  bool encoder_grn =
      false;  ///< a gated residual network after each temporal selection (not in the paper)
  double layer_norm_epsilon = 1e-5;
  Checkpointing checkpointing = Checkpointing::kOff;
  /// Layers by name (see `layer_names`) that are recomputed (true) or not (false) whatever the tier
  /// says.
  std::map<std::string, bool> checkpoint_layers = {};

  std::int64_t static_reals = 0;
  std::int64_t known_reals = 0;
  std::int64_t observed_reals = 1;  ///< past only; the past target is one of them
  std::vector<std::int64_t> static_cardinalities = {};  ///< categories of each variable
  std::vector<std::int64_t> known_cardinalities = {};
  std::vector<std::int64_t> observed_cardinalities = {};

  std::int64_t static_variables() const;  ///< reals, then categoricals
  /// Observed reals, known reals, observed categoricals, known categoricals.
  std::int64_t historical_variables() const;
  std::int64_t future_variables() const;  ///< known reals, then known categoricals

  /// Throws `OptionError` naming the first field out of range.
  void validate() const;
};

/// One batch of inputs. A tensor of a kind that the model does not have may be undefined.
struct TftInput {
  torch::Tensor static_real = {};           ///< [B, V] float
  torch::Tensor static_categorical = {};    ///< [B, V] int64
  torch::Tensor observed_real = {};         ///< [B, E, V] float
  torch::Tensor observed_categorical = {};  ///< [B, E, V] int64
  torch::Tensor known_real = {};            ///< [B, E + H, V] float
  torch::Tensor known_categorical = {};     ///< [B, E + H, V] int64
};

/// A forecast and what it was made of.
struct TftOutput {
  torch::Tensor quantiles;  ///< [B, H, Q]
  torch::Tensor attention;  ///< [B, A, H, E + H]; each row sums to 1; zero after the row's own step
  torch::Tensor static_weights;      ///< [B, V]; each sums to 1; undefined without static variables
  torch::Tensor historical_weights;  ///< [B, E, V]
  torch::Tensor future_weights;      ///< [B, H, V]; undefined without known variables
};

struct TftLayers;

/// Temporal Fusion Transformer as published: shared embedding of known inputs, selection softmax
/// after the layer norm, separate LSTMs for past and future, causal attention with a value
/// projection shared by the heads.
class TemporalFusionTransformerImpl : public torch::nn::Module {
 public:
  /// Throws `OptionError`. Parameters are drawn from LibTorch's default generator.
  explicit TemporalFusionTransformerImpl(TftOptions options);

  /// A model of its own with the same weights, on `device` if given.
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;

  /// The quantile forecast [B, H, Q] of a batch. Throws c10::ValueError naming the input whose
  /// shape is wrong.
  torch::Tensor forward(const TftInput& input);

  /// The forecast together with variable weights and attention.
  TftOutput interpret(const TftInput& input);

  const TftOptions& options() const { return options_; }
  void set_checkpointing(Checkpointing checkpointing) { options_.checkpointing = checkpointing; }
  /// Replaces `checkpoint_layers`. Throws `OptionError` for a layer that the model does not have.
  void set_checkpoint_layers(std::map<std::string, bool> layers);

 private:
  friend struct TftLayers;
  void make_layers();

  TftOptions options_;
  std::shared_ptr<TftLayers> layers_;
};

TORCH_MODULE(TemporalFusionTransformer);

/// Names of the layers that exist in a model of these options, in the order of a forward pass.
std::vector<std::string> layer_names(const TftOptions& options);

/// Whether `layer` is recomputed: as `checkpoint_layers` says, else as the tier does.
bool is_checkpointed(const TftOptions& options, const std::string& layer);

}  // namespace reprise
