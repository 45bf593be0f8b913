// SPDX-License-Identifier: Apache-2.0
/// Settings as a TOML file: the same names as the flags, with underscores.
#pragma once

#include "fields.h"

#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace reprise {

/// Sets the recorded `fields` that `file` holds, except those named in `given` (flags win over the
/// file).
///
/// Throws `OptionError` naming the file and the key that is unknown (with the known ones) or has a
/// wrong value, and `DataError` when the file cannot be read or is not TOML (with the line).
void read_config(const std::filesystem::path& file, const std::vector<Field>& fields,
                 const std::set<std::string>& given);

/// The recorded `fields` as TOML, one a line.
std::string config_text(const std::vector<Field>& fields);

}  // namespace reprise
