// SPDX-License-Identifier: Apache-2.0
/// JSON as the program prints it.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace reprise {

/// Indented; bytes that are not UTF-8 (a file's name may hold any) are replaced rather than
/// refused.
inline std::string json_text(const nlohmann::ordered_json& document) {
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace reprise
