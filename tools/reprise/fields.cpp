// SPDX-License-Identifier: Apache-2.0
#include "fields.h"

#include "reprise/errors.h"
#include "text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <type_traits>

namespace reprise {
namespace {

const std::map<std::string, Normalization> kNormalizations = {{"series", Normalization::kSeries},
                                                              {"window", Normalization::kWindow},
                                                              {"global", Normalization::kGlobal},
                                                              {"none", Normalization::kNone}};
const std::map<std::string, Checkpointing> kCheckpointings = {
    {"off", Checkpointing::kOff},
    {"minimal", Checkpointing::kMinimal},
    {"aggressive", Checkpointing::kAggressive},
    {"auto", Checkpointing::kAuto}};

template <typename T>
constexpr bool kIsList = false;
template <typename T>
constexpr bool kIsList<std::vector<T>> = true;
template <>
constexpr bool kIsList<LayerChoices> = true;

template <typename T>
const char* kind_of() {
  if constexpr (std::is_same_v<T, double>) {
    return "a number";
  } else {
    return std::is_unsigned_v<T> ? "a whole number of at least 0" : "a whole number";
  }
}

template <typename T>
bool is_finite(T value) {
  return std::isfinite(static_cast<double>(value));
}

// The numbers are parsed here rather than by CLI11, so that flags and TOML refuse the same texts in
// the same words.
template <typename T>
void parse(const std::string& text, const std::string& label, T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    value = text;
  } else if constexpr (std::is_same_v<T, bool>) {
    if (text != "true" && text != "false") {
      throw OptionError(label, label + ": '" + text + "' is not true or false");
    }
    value = text == "true";
  } else if constexpr (std::is_same_v<T, Normalization>) {
    value = kNormalizations.at(text);
  } else if constexpr (std::is_same_v<T, std::optional<Checkpointing>>) {
    value = kCheckpointings.at(text);
  } else {
    const char* end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, value);
    if (read.ec != std::errc{} || read.ptr != end || !is_finite(value)) {
      throw OptionError(label, label + ": '" + text + "' is not " + kind_of<T>());
    }
  }
}

template <typename T>
std::string value_text(const T& value, bool is_quoted) {
  if constexpr (std::is_same_v<T, std::string>) {
    return is_quoted ? toml_string(value) : value;
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, Normalization>) {
    return value_text(to_string(value), is_quoted);
  } else if constexpr (std::is_same_v<T, std::optional<Checkpointing>>) {
    return value ? value_text(to_string(*value), is_quoted) : "";
  } else if constexpr (std::is_same_v<T, double>) {
    return format_exact(value);
  } else {
    return std::to_string(value);
  }
}

template <typename T>
std::vector<std::string> value_texts(const std::vector<T>& values, bool is_quoted) {
  std::vector<std::string> texts;
  for (const auto& value : values) {
    texts.push_back(value_text(value, is_quoted));
  }
  return texts;
}

std::vector<std::string> value_texts(const LayerChoices& choices, bool is_quoted) {
  return value_texts(layer_choice_texts(choices), is_quoted);
}

void check_choice(const Field& field, const std::string& text, const std::string& label) {
  if (std::find(field.later.begin(), field.later.end(), text) != field.later.end()) {
    throw OptionError(field.name, label + ": '" + text + "' is not in this version");
  }
  if (!field.choices.empty() &&
      std::find(field.choices.begin(), field.choices.end(), text) == field.choices.end()) {
    throw OptionError(field.name,
                      label + ": '" + text + "' is unknown; known: " + join(field.choices));
  }
}

// Which of these a model has depends on its data, and is checked with it.
std::vector<std::string> all_layers() {
  return layer_names({.encoder_grn = true, .static_reals = 1, .known_reals = 1});
}

template <typename T>
void add_item(const std::string& text, const std::string& label, std::vector<T>& items) {
  parse(text, label, items.emplace_back());
}

void add_item(const std::string& text, const std::string& label, LayerChoices& choices) {
  const std::size_t equals = text.find('=');
  const std::string layer = text.substr(0, equals);
  const std::string choice = equals == std::string::npos ? "" : text.substr(equals + 1);
  const std::vector<std::string> known = all_layers();
  if (std::find(known.begin(), known.end(), layer) == known.end()) {
    throw OptionError(label, label + ": layer '" + layer + "' is unknown; known: " + join(known));
  }
  if (choice != "on" && choice != "off") {
    throw OptionError(label, label + ": '" + text + "' is not " + layer + "=on or " + layer +
                                 "=off; known layers: " + join(known));
  }
  if (!choices.emplace(layer, choice == "on").second) {
    throw OptionError(label, label + ": layer '" + layer + "' is given twice");
  }
}

// The value where it has a form of its own: else none.
std::optional<std::string> formed_text(const Field& field) {
  const auto* const* number = std::get_if<std::int64_t*>(&field.value);
  return number == nullptr || field.form == NumberForm::kPlain
             ? std::nullopt
             : std::optional(number_text(field.form, **number));
}

template <typename T>
std::string name_in(const std::map<std::string, T>& names, T value) {
  return std::find_if(names.begin(), names.end(),
                      [&](const auto& entry) { return entry.second == value; })
      ->first;
}

}  // namespace

std::string to_string(Normalization normalization) {
  return name_in(kNormalizations, normalization);
}
std::string to_string(Checkpointing checkpointing) {
  return name_in(kCheckpointings, checkpointing);
}

std::vector<std::string> layer_choice_texts(const LayerChoices& choices) {
  std::vector<std::string> texts;
  for (const auto& [layer, is_on] : choices) {
    texts.push_back(layer + (is_on ? "=on" : "=off"));
  }
  return texts;
}

std::string toml_string(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += std::string("\\") + c;
    } else if (code < 0x20 || code == 0x7F) {
      constexpr char kHex[] = "0123456789ABCDEF";
      quoted += std::string("\\u00") + kHex[code / 16] + kHex[code % 16];
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string flag_name(const std::string& field_name) {
  std::string flag = "--" + field_name;
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string flag_of_option(const std::string& option_field) {
  static const std::map<std::string, std::string> kFlags = {{"encoder_length", "encoder"},
                                                            {"hidden_size", "hidden"},
                                                            {"attention_heads", "heads"},
                                                            {"static_columns", "static"}};
  const auto found = kFlags.find(option_field);
  return flag_name(found == kFlags.end() ? option_field : found->second);
}

bool takes_list(const Field& field) {
  return std::visit(
      [](const auto* value) {
        return kIsList<std::remove_const_t<std::remove_pointer_t<decltype(value)>>>;
      },
      field.value);
}

void set_field(const Field& field, const std::vector<std::string>& texts,
               const std::string& label) {
  std::vector<std::string> values;
  for (const std::string& text : texts) {
    check_choice(field, text, label);
    values.push_back(digits_of(field.form, text, label));
  }
  std::visit(
      [&](auto* value) {
        using T = std::remove_pointer_t<decltype(value)>;
        if constexpr (kIsList<T>) {
          T items;
          for (const std::string& text : values) {
            add_item(text, label, items);
          }
          *value = std::move(items);
        } else if (texts.size() != 1) {
          throw OptionError(field.name, label + ": takes one value, got " +
                                            std::to_string(texts.size()) + ": " + join(texts));
        } else {
          parse(values.front(), label, *value);
        }
      },
      field.value);
}

std::string toml_value(const Field& field) {
  if (const std::optional<std::string> text = formed_text(field)) {
    const bool is_number = text->find_first_not_of("0123456789") == std::string::npos;
    return is_number ? *text : toml_string(*text);
  }
  return std::visit(
      [](const auto* value) -> std::string {
        using T = std::remove_const_t<std::remove_pointer_t<decltype(value)>>;
        if constexpr (kIsList<T>) {
          return value->empty() ? "" : "[" + join(value_texts(*value, true)) + "]";
        } else if constexpr (std::is_same_v<T, std::string>) {
          return value->empty() ? "" : value_text(*value, true);
        } else {
          return value_text(*value, true);
        }
      },
      field.value);
}

std::string default_text(const Field& field) {
  if (const std::optional<std::string> text = formed_text(field)) {
    return *text;
  }
  return std::visit(
      [](const auto* value) -> std::string {
        using T = std::remove_const_t<std::remove_pointer_t<decltype(value)>>;
        if constexpr (kIsList<T>) {
          return value->empty() ? "" : join(value_texts(*value, false), ",");
        } else {
          return value_text(*value, false);
        }
      },
      field.value);
}

}  // namespace reprise
