// SPDX-License-Identifier: Apache-2.0
/// The settings by name: one list from which flags, TOML keys and help are made.
#pragma once

#include "number_form.h"
#include "settings.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace reprise {

/// Layers by name: recomputed or not. As text each is "NAME=on" or "NAME=off".
using LayerChoices = std::map<std::string, bool>;

/// Where a field's value lies.
using FieldValue =
    std::variant<bool*, std::string*, std::int64_t*, std::uint64_t*, double*,
                 std::vector<std::string>*, std::vector<std::int64_t>*, std::vector<double>*,
                 Normalization*, std::optional<Checkpointing>*, LayerChoices*>;

/// One setting: `name` is the TOML key and, with dashes, the flag.
struct Field {
  std::string name;
  std::string value_name;  ///< of the value in help: COL, N, FILE
  std::string help;
  FieldValue value;
  std::vector<std::string> choices = {};  ///< the only values allowed, when not empty
  std::vector<std::string> later = {};    ///< values of later versions, refused as such
  bool is_recorded = true;                ///< part of a run's config.toml
  NumberForm form = NumberForm::kPlain;   ///< of whole numbers
};

/// "--batch-size" of "batch_size".
std::string flag_name(const std::string& field_name);
/// The flag for an `OptionError`'s field, whose name may be the one in the library's struct
/// (`hidden_size`).
std::string flag_of_option(const std::string& option_field);

/// Whether the field holds any number of values, which a flag may also give with commas between
/// them.
bool takes_list(const Field& field);

/// Sets `field` from texts. `label` ("--hidden" or "FILE: hidden") begins the message of an
/// `OptionError`.
void set_field(const Field& field, const std::vector<std::string>& texts, const std::string& label);
/// `text` in quotes, as TOML wants it.
std::string toml_string(const std::string& text);
/// The value as TOML; "" where there is nothing to say (an empty text or list).
std::string toml_value(const Field& field);
/// The value as help shows it; "" where there is none.
std::string default_text(const Field& field);

std::vector<Field> data_fields(DataOptions& data);
std::vector<Field> model_fields(Settings& settings);
std::vector<Field> train_fields(TrainOptions& train);
/// What every subcommand takes: seed, threads, device, json.
std::vector<Field> common_fields(Settings& settings);
/// The TOML file to read the others from.
Field config_field(Settings& settings);
/// `fields`, then the common ones.
std::vector<Field> with_common(std::vector<Field> fields, Settings& settings);
/// parquet_file, then all of the above but `common_fields`: what `train` takes and config.toml
/// holds.
std::vector<Field> run_fields(Settings& settings);
/// All that says how a training goes: `run_fields`, the alias of `--checkpointing aggressive`, the
/// config file, and the common ones.
std::vector<Field> training_fields(Settings& settings);

std::string to_string(Normalization normalization);
std::string to_string(Checkpointing checkpointing);
/// "NAME=on" or "NAME=off" of each, by name.
std::vector<std::string> layer_choice_texts(const LayerChoices& choices);

}  // namespace reprise
