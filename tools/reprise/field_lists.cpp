// SPDX-License-Identifier: Apache-2.0
#include "fields.h"

#include <iterator>
#include <utility>

namespace reprise {
namespace {

void append(std::vector<Field>& fields, std::vector<Field> more) {
  fields.insert(fields.end(), std::make_move_iterator(more.begin()),
                std::make_move_iterator(more.end()));
}

}  // namespace

std::vector<Field> data_fields(DataOptions& data) {
  return {
      {"time", "COL", "timestamp, date or integer step; inferred when not given", &data.time},
      {"id", "COL,..", "columns that together name a series; inferred when not given", &data.id},
      {"target", "COL,..", "what to forecast; several become series of their own", &data.target},
      {"static", "COL,..", "columns that are constant within a series", &data.static_columns},
      {"known", "COL,..", "columns known for the future too", &data.known},
      {"observed", "COL,..", "columns known for the past only", &data.observed},
      {"infer", "", "give a role to the columns that are not named", &data.infer},
      {"calendar",
       "NAME,..",
       "calendar features: hour, weekday, monthday, month, auto or none",
       &data.calendar,
       {"hour", "weekday", "monthday", "month", "auto", "none"}},
      {"lags", "N,..",
       "the target this many samples earlier as an input; each at least the horizon", &data.lags},
      {"normalize",
       "HOW",
       "scale the target per series, window, global or none",
       &data.normalize,
       {"series", "window", "global", "none"}},
      {"encoder", "N", "past samples that the model sees", &data.encoder_length},
      {"horizon", "N", "future samples to forecast", &data.horizon},
      {"valid_fraction", "F", "part of each series' rows for validation, before the test rows",
       &data.valid_fraction},
      {"test_fraction", "F", "part of each series' rows for the test, at the end",
       &data.test_fraction},
      {"train_until", "TIME",
       "first time that is not a training row (with valid-until, instead of fractions)",
       &data.train_until},
      {"valid_until", "TIME", "first time that is not a validation row", &data.valid_until},
      {"test_until", "TIME", "first time that is not a test row", &data.test_until},
  };
}

std::vector<Field> model_fields(Settings& settings) {
  TftOptions& model = settings.model;
  return {
      {"hidden", "N", "width of every layer; divisible by heads", &model.hidden_size},
      {"heads", "N", "attention heads", &model.attention_heads},
      {"lstm_layers", "N", "layers of the LSTM encoder and decoder", &model.lstm_layers},
      {"dropout", "F", "share of activations dropped, in [0, 1)", &model.dropout},
      {"quantiles", "F,..", "quantiles to forecast, ascending, in (0, 1)", &model.quantiles},
      {"variable_width", "N", "embedding width of real variables; 0: hidden",
       &model.variable_width},
      {"encoder_grn", "", "a gated residual network after each temporal selection",
       &model.encoder_grn},
      {"checkpointing",
       "TIER",
       "activations kept (off) or recomputed: LSTMs (minimal), encoders and attention too "
       "(aggressive), what the memory budget asks for (auto); auto with a budget, else off",
       &settings.checkpointing,
       {"off", "minimal", "aggressive", "auto"}},
      {"checkpoint_layer", "NAME=on|off,..", "a layer recomputed or not, whatever the tier says",
       &model.checkpoint_layers},
      {"precision", "TYPE", "of the arithmetic: fp32", &settings.precision, {"fp32"}, {"bf16"}},
  };
}

std::vector<Field> train_fields(TrainOptions& train) {
  return {
      {"epochs", "N", "passes over the training windows", &train.epochs},
      {"batch_size",
       "N|auto",
       "windows per step; auto: as many as fit into memory and leave an epoch 20 steps",
       &train.batch_size,
       {},
       {},
       true,
       NumberForm::kAuto},
      {"micro_batch_size", "N",
       "windows per forward and backward pass, whose gradients are added up; 0: all of a step",
       &train.micro_batch_size},
      {"memory_budget",
       "SIZE",
       "most memory that all tensors may take (600MB, 1.5GiB); a step that needs more is started "
       "again with checkpointing auto, then in smaller micro-batches; no limit where not given",
       &train.memory_budget_bytes,
       {},
       {},
       true,
       NumberForm::kBytes},
      {"lr", "F", "Adam's step size at its highest", &train.lr},
      {"schedule",
       "NAME",
       "of the step size: constant or cosine",
       &train.schedule,
       {"constant", "cosine"}},
      {"clip_norm", "F", "largest norm of all gradients together; 0: no clipping",
       &train.clip_norm},
      {"weight_decay", "F", "of Adam, per step", &train.weight_decay},
      {"unknown_rate", "F", "share of categories that training reads as unknown, in [0, 1)",
       &train.unknown_rate},
      {"average_decay", "F", "of the averaged weights that are kept; 0: no averaging",
       &train.average_decay},
      {"patience", "N", "evaluations without improvement before training stops", &train.patience},
      {"max_steps", "N", "steps at most; 0: as many as the epochs have", &train.max_steps},
      {"validate_every", "N", "steps between two evaluations; 0: once per epoch",
       &train.validate_every},
      {"loader_threads", "N", "threads that prepare batches", &train.loader_threads},
  };
}

std::vector<Field> common_fields(Settings& settings) {
  return {
      {"seed", "N", "of every random number", &settings.train.seed},
      {"threads", "N", "threads of LibTorch; 0: one per core", &settings.threads},
      {"device", "NAME", "cpu or cuda[:N]", &settings.train.device},
      {"json",
       "",
       "one JSON document on stdout, everything else on stderr",
       &settings.is_json,
       {},
       {},
       false},
  };
}

Field config_field(Settings& settings) {
  return {
      "config", "FILE", "TOML file with the same names; flags win over it", &settings.config, {},
      {},       false};
}

std::vector<Field> with_common(std::vector<Field> fields, Settings& settings) {
  append(fields, common_fields(settings));
  return fields;
}

std::vector<Field> run_fields(Settings& settings) {
  std::vector<Field> fields = {{"parquet_file", "FILE",
                                "the table: Parquet, or CSV by its extension",
                                &settings.parquet_file}};
  append(fields, data_fields(settings.data));
  append(fields, model_fields(settings));
  append(fields, train_fields(settings.train));
  return fields;
}

std::vector<Field> training_fields(Settings& settings) {
  std::vector<Field> fields = run_fields(settings);
  fields.push_back({"use_gradient_checkpointing",
                    "",
                    "the same as --checkpointing aggressive",
                    &settings.use_gradient_checkpointing,
                    {},
                    {},
                    false});
  fields.push_back(config_field(settings));
  return with_common(std::move(fields), settings);
}

}  // namespace reprise
