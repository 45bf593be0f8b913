// SPDX-License-Identifier: Apache-2.0
#include "commands.h"
#include "training.h"

namespace reprise {
namespace {

std::vector<Field> train_command_fields(Settings& settings) {
  std::vector<Field> fields = training_fields(settings);
  fields.push_back({"out",
                    "RUN",
                    "run folder to write; default: runs/<file>-<date-time>",
                    &settings.out,
                    {},
                    {},
                    false});
  return fields;
}

}  // namespace

Command train_command(Settings& settings) {
  return {.name = "train",
          .summary = "Train a Temporal Fusion Transformer on a table",
          .example =
              "reprise train --parquet-file sales.parquet --target sales --horizon 28 "
              "--memory-budget 2GB "
              "--out runs/sales",
          .fields = train_command_fields(settings),
          .positionals = {},
          .required = {"parquet_file"},
          .run = run_train};
}

Command train_tft_parquet_command(Settings& settings) {
  settings.data.encoder_length = 50;
  settings.data.horizon = 10;
  settings.model.hidden_size = 128;
  settings.model.encoder_grn = true;
  return {
      .name = "train_tft_parquet",
      .summary = "Train a Temporal Fusion Transformer on a Parquet file",
      .example =
          "train_tft_parquet --parquet-file table.parquet --epochs 50 --use-gradient-checkpointing",
      .fields = train_command_fields(settings),
      .positionals = {},
      .required = {"parquet_file"},
      .run = run_train};
}

}  // namespace reprise
