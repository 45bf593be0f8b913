// SPDX-License-Identifier: Apache-2.0
/// Everything that the subcommands can be told, in one struct.
#pragma once

#include "reprise/schema.h"
#include "reprise/tft.h"
#include "reprise/trainer.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace reprise {

/// What `reprise synthesize` makes; counts < 0 take the preset's.
struct TableSettings {
  std::string preset = "tft-225";
  std::int64_t series = 10;
  std::int64_t steps = 500;  ///< per series
  std::int64_t static_columns = -1;
  std::int64_t observed_columns = -1;
  std::int64_t known_columns = -1;
  std::int64_t categorical_columns = -1;
};

struct Settings {
  DataOptions data;
  TftOptions model;    ///< lengths and checkpointing come from other fields, see `settle`
  TrainOptions train;  ///< `batch_size` 0: to be chosen, see batch_choice.h
  std::string precision = "fp32";

  std::string parquet_file;  ///< the table: Parquet, or CSV by its extension
  std::string demo_data;     ///< ETTh1.csv; empty: look for the copy that comes with the program
  std::string config;        ///< TOML file to read settings from
  std::string run;           ///< run folder to read
  std::string out;           ///< run folder or file to write
  std::string split = "test";
  std::int64_t stride = 0;  ///< samples between two forecasts; 0: the horizon
  TableSettings table;
  std::string trace;                        ///< file to write what a profile recorded to
  std::vector<std::int64_t> device_memory;  ///< bytes that tensors can have on further devices
  bool checks_batches = false;              ///< run the batches that a plan names

  std::int64_t threads = 0;  ///< of LibTorch; 0: one per core
  bool is_json = false;
  /// Of `model`, see `settle`; none: auto within a memory budget on the CPU for a given batch size,
  /// else off.
  std::optional<Checkpointing> checkpointing;
  bool use_gradient_checkpointing = false;  ///< as `checkpointing = "aggressive"`
};

/// Makes the parts agree (lengths, checkpointing) and checks every option that needs no
/// data: not which layers the model has.
///
/// Throws `OptionError` naming the first field that is out of range or contradicts another one.
void settle(Settings& settings);

/// Throws `OptionError` when the device is not the CPU, whose tensors are counted one by one. `who`
/// needs that.
void require_cpu(const Settings& settings, const std::string& who);

/// Throws `OptionError` when `device` is not cpu or cuda[:N], or is not on this machine.
void check_device(const std::string& device);

}  // namespace reprise
