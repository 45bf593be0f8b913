// SPDX-License-Identifier: Apache-2.0
#include "commands.h"

int main(int argc, char** argv) {
  reprise::Settings settings;
  const reprise::Program program = {
      .name = "train_tft_parquet",
      .summary = "Train a Temporal Fusion Transformer on a Parquet file",
      .commands = {reprise::train_tft_parquet_command(settings)},
      .has_subcommands = false};
  return reprise::run_program(program, settings, argc, argv);
}
