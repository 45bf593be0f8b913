// SPDX-License-Identifier: Apache-2.0
#include "data/schema_text_internal.h"
#include "data/text_internal.h"
#include "reprise/errors.h"
#include "reprise/schema.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace reprise {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;

Json scaler_json(const Scaler& scaler) {
  return Json::array({scaler.center, scaler.scale});
}

Json real_json(const RealVariable& variable) {
  // A list, because finding a key in an ordered object of thousands of series takes time in
  // proportion to them.
  Json series = Json::array();
  for (const auto& [key, scaler] : variable.series) series.push_back({key, scaler_json(scaler)});
  return {{"name", variable.name},
          {"global", scaler_json(variable.global)},
          {"series", std::move(series)}};
}

Json group_json(const VariableGroup& group) {
  Json real = Json::array();
  for (const auto& variable : group.real) real.push_back(real_json(variable));
  Json categorical = Json::array();
  for (const auto& variable : group.categorical) {
    categorical.push_back({{"name", variable.name}, {"vocabulary", variable.vocabulary}});
  }
  return {{"real", std::move(real)}, {"categorical", std::move(categorical)}};
}

Json options_json(const DataOptions& options) {
  return {
      {"time", options.time},
      {"id", options.id},
      {"target", options.target},
      {"static_columns", options.static_columns},
      {"known", options.known},
      {"observed", options.observed},
      {"categorical", options.categorical},
      {"infer", options.infer},
      {"calendar", options.calendar},
      {"lags", options.lags},
      {"normalize", detail::normalization_names().at(static_cast<std::size_t>(options.normalize))},
      {"encoder_length", options.encoder_length},
      {"horizon", options.horizon},
      {"valid_fraction", options.valid_fraction},
      {"test_fraction", options.test_fraction},
      {"train_until", options.train_until},
      {"valid_until", options.valid_until},
      {"test_until", options.test_until}};
}

/// A value of the document that knows where it stands.
class Node {
 public:
  Node(const Json& json, std::string path) : json_(json), path_(std::move(path)) {}

  Node operator[](const std::string& key) const {
    if (!json_.is_object()) fail("is not an object");
    const auto found = json_.find(key);
    const std::string path = path_.empty() ? key : path_ + "." + key;
    if (found == json_.end()) Node(json_, path).fail("is missing");
    return {*found, path};
  }

  template <typename T>
  void get(T& out) const {
    if constexpr (std::is_same_v<T, std::int64_t>) {
      // The library would round 1.5 silently.
      if (!json_.is_number_integer()) fail("is not an integer");
    }
    try {
      json_.get_to(out);
    } catch (const Json::exception& error) {
      fail(std::string("is of the wrong type (") + error.what() + ")");
    }
  }

  template <typename Visit>
  void for_each(const Visit& visit) const {
    if (!json_.is_array()) fail("is not an array");
    for (std::size_t i = 0; i < json_.size(); ++i)
      visit(Node(json_[i], path_ + "[" + std::to_string(i) + "]"));
  }

  /// The items of a list of two.
  std::pair<Node, Node> pair() const {
    if (!json_.is_array() || json_.size() != 2) fail("is not a list of two");
    return {Node(json_[0], path_ + "[0]"), Node(json_[1], path_ + "[1]")};
  }

  template <typename Enum>
  void get_name(Enum& out, const std::vector<std::string>& names) const {
    std::string name;
    get(name);
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) fail("is '" + name + "', none of " + detail::list_of(names));
    out = static_cast<Enum>(found - names.begin());
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw DataError("schema: " + (path_.empty() ? "the document" : "key '" + path_ + "'") + " " +
                    what);
  }

 private:
  const Json& json_;
  std::string path_;
};

Scaler read_scaler(const Node& node) {
  std::vector<double> values;
  node.get(values);
  if (values.size() != 2 || !(values[1] > 0.0)) node.fail("is not a center and a positive scale");
  return {values[0], values[1]};
}

RealVariable read_real(const Node& node) {
  RealVariable variable;
  node["name"].get(variable.name);
  variable.global = read_scaler(node["global"]);
  node["series"].for_each([&](const Node& item) {
    const auto [key_node, scaler] = item.pair();
    std::string key;
    key_node.get(key);
    variable.series[key] = read_scaler(scaler);
  });
  return variable;
}

VariableGroup read_group(const Node& node) {
  VariableGroup group;
  node["real"].for_each([&](const Node& item) { group.real.push_back(read_real(item)); });
  node["categorical"].for_each([&](const Node& item) {
    auto& variable = group.categorical.emplace_back();
    item["name"].get(variable.name);
    item["vocabulary"].get(variable.vocabulary);
  });
  return group;
}

DataOptions read_options(const Node& node) {
  DataOptions options;
  node["time"].get(options.time);
  node["id"].get(options.id);
  node["target"].get(options.target);
  node["static_columns"].get(options.static_columns);
  node["known"].get(options.known);
  node["observed"].get(options.observed);
  node["categorical"].get(options.categorical);
  node["infer"].get(options.infer);
  node["calendar"].get(options.calendar);
  options.lags.clear();
  node["lags"].for_each([&](const Node& item) { item.get(options.lags.emplace_back()); });
  node["normalize"].get_name(options.normalize, detail::normalization_names());
  node["encoder_length"].get(options.encoder_length);
  node["horizon"].get(options.horizon);
  node["valid_fraction"].get(options.valid_fraction);
  node["test_fraction"].get(options.test_fraction);
  node["train_until"].get(options.train_until);
  node["valid_until"].get(options.valid_until);
  node["test_until"].get(options.test_until);
  try {
    options.validate();
  } catch (const OptionError& error) {
    node.fail(std::string("does not fit together: ") + error.what());
  }
  return options;
}

/// Columns of a role and variables of its group must be the same in number: rows are laid out by
/// it.
void check_group(const Node& node, const VariableGroup& group, std::size_t columns) {
  const std::size_t variables = group.real.size() + group.categorical.size();
  if (variables == columns) return;
  node.fail("has " + std::to_string(variables) + " variables, the options call for " +
            std::to_string(columns));
}

void check_groups(const Node& root, const Schema& schema) {
  const auto& options = schema.options;
  const bool has_calendar = options.calendar != std::vector<std::string>{"none"};
  check_group(root["static_variables"], schema.static_variables,
              options.static_columns.size() + (options.target.size() > 1 ? 1 : 0));
  check_group(
      root["known"], schema.known,
      options.known.size() + options.lags.size() + (has_calendar ? options.calendar.size() : 0));
  check_group(root["observed"], schema.observed, options.observed.size() + 1);
  if (schema.observed.real.empty())
    root["observed"]["real"].fail("is empty: the past target is missing");
  if (schema.known.real.size() < options.lags.size()) root["known"]["real"].fail("lacks the lags");
  if (options.infer || options.time.empty() || options.target.empty()) {
    root["options"].fail("leaves roles to be inferred");
  }
}

}  // namespace

std::string Schema::to_json() const {
  const Json json = {
      {"format", kFormat},
      {"options", options_json(options)},
      {"time_unit", detail::time_unit_names().at(static_cast<std::size_t>(time_unit))},
      {"time_zone", time_zone},
      {"frequency", frequency},
      {"wall_clock", wall_clock},
      {"month_end", month_end},
      {"target", real_json(target)},
      {"static_variables", group_json(static_variables)},
      {"known", group_json(known)},
      {"observed", group_json(observed)}};
  return json.dump(1, ' ') + "\n";
}

Schema Schema::from_json(const std::string& text) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    throw DataError(std::string("schema: is not JSON (") + error.what() + ")");
  }
  const Node root(json, "");
  std::int64_t format = 0;
  root["format"].get(format);
  if (format != kFormat) {
    root["format"].fail("is " + std::to_string(format) + "; this release reads format " +
                        std::to_string(kFormat));
  }
  Schema schema;
  schema.options = read_options(root["options"]);
  root["time_unit"].get_name(schema.time_unit, detail::time_unit_names());
  root["time_zone"].get(schema.time_zone);
  root["frequency"].get(schema.frequency);
  if (schema.frequency == 0) root["frequency"].fail("is 0");
  root["wall_clock"].get(schema.wall_clock);
  root["month_end"].get(schema.month_end);
  schema.target = read_real(root["target"]);
  schema.static_variables = read_group(root["static_variables"]);
  schema.known = read_group(root["known"]);
  schema.observed = read_group(root["observed"]);
  check_groups(root, schema);
  return schema;
}

}  // namespace reprise
