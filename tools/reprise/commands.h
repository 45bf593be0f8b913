// SPDX-License-Identifier: Apache-2.0
/// The subcommands of `reprise`, one function per file.
#pragma once

#include "command.h"

namespace reprise {

// Each returns the command; its fields point into `settings`.
Command demo_command(Settings& settings);
Command inspect_command(Settings& settings);
Command synthesize_command(Settings& settings);
Command train_command(Settings& settings);
Command profile_command(Settings& settings);
Command plan_command(Settings& settings);
Command verify_command(Settings& settings);
Command evaluate_command(Settings& settings);
Command predict_command(Settings& settings);
/// The one command of the program `train_tft_parquet`; sets its defaults in `settings`.
Command train_tft_parquet_command(Settings& settings);

}  // namespace reprise
