// SPDX-License-Identifier: Apache-2.0
#include "commands.h"

int main(int argc, char** argv) {
  reprise::Settings settings;
  const reprise::Program program = {
      .name = "reprise",
      .summary =
          "Forecast time series with a Temporal Fusion Transformer: tables in, models and "
          "forecasts out",
      .commands = {reprise::demo_command(settings), reprise::inspect_command(settings),
                   reprise::synthesize_command(settings), reprise::train_command(settings),
                   reprise::profile_command(settings), reprise::plan_command(settings),
                   reprise::verify_command(settings), reprise::evaluate_command(settings),
                   reprise::predict_command(settings)}};
  return reprise::run_program(program, settings, argc, argv);
}
