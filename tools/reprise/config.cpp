// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "reprise/errors.h"
#include "text.h"

#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace reprise {
namespace {

std::string node_text(const toml::node& node, const std::string& label) {
  if (const auto* text = node.as_string()) {
    return text->get();
  }
  if (const auto* number = node.as_floating_point()) {
    return format_exact(number->get());
  }
  if (const auto* number = node.as_integer()) {
    return std::to_string(number->get());
  }
  if (const auto* truth = node.as_boolean()) {
    return truth->get() ? "true" : "false";
  }
  if (node.is_date() || node.is_time() || node.is_date_time()) {
    std::ostringstream text;
    node.visit([&](const auto& value) {
      if constexpr (toml::is_chronological<decltype(value)>) {
        text << value.get();
      }
    });
    return text.str();
  }
  throw OptionError(label, label + ": tables and nested lists have no meaning here");
}

std::vector<std::string> node_texts(const toml::node& node, const std::string& label) {
  std::vector<std::string> texts;
  if (const auto* list = node.as_array()) {
    for (const toml::node& item : *list) {
      texts.push_back(node_text(item, label));
    }
  } else {
    texts.push_back(node_text(node, label));
  }
  return texts;
}

toml::table parse_file(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream || std::filesystem::is_directory(file)) {
    throw DataError(file.string() + ": cannot be read; --config takes a TOML file");
  }
  try {
    return toml::parse(stream, file.string());
  } catch (const toml::parse_error& error) {
    throw DataError(file.string() + ":" + std::to_string(error.source().begin.line) + ": " +
                    std::string(error.description()));
  }
}

}  // namespace

void read_config(const std::filesystem::path& file, const std::vector<Field>& fields,
                 const std::set<std::string>& given) {
  const toml::table table = parse_file(file);
  std::vector<std::string> known;
  for (const Field& field : fields) {
    if (field.is_recorded) {
      known.push_back(field.name);
    }
  }
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const auto field = std::find_if(fields.begin(), fields.end(), [&](const Field& candidate) {
      return candidate.is_recorded && candidate.name == name;
    });
    if (field == fields.end()) {
      const std::string nearest = nearest_name(name, known);
      throw OptionError(name, file.string() + ": unknown key '" + name + "'" +
                                  (nearest.empty() ? "" : "; did you mean '" + nearest + "'?") +
                                  "; known: " + join(known));
    }
    if (given.count(name) == 0) {
      const std::string label = file.string() + ": " + name;
      set_field(*field, node_texts(node, label), label);
    }
  }
}

std::string config_text(const std::vector<Field>& fields) {
  std::string text;
  for (const Field& field : fields) {
    const std::string value = field.is_recorded ? toml_value(field) : "";
    if (!value.empty()) {
      text += field.name + " = " + value + "\n";
    }
  }
  return text;
}

}  // namespace reprise
