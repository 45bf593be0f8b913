// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "plan/fnv1a.h"
#include "reprise/remat_plan.h"

namespace reprise {
namespace {

constexpr int kVersion = 1;

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("plan_from_json: " + what);
}

const nlohmann::json& member(const nlohmann::json& object, const char* name) {
  if (!object.is_object() || !object.contains(name)) {
    refuse(std::string("there is no \"") + name + "\"");
  }
  return object[name];
}

nlohmann::json parse(const std::string& text) {
  nlohmann::json json;
  try {
    json = nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    refuse(std::string("the text is no JSON: ") + error.what());
  }
  if (member(json, "version") != kVersion) {
    refuse("version " + json["version"].dump() +
           " is not known (known: " + std::to_string(kVersion) + ")");
  }
  return json;
}

std::int32_t index(const nlohmann::json& number, std::size_t end, const std::string& what) {
  const bool is_index = number.is_number_integer() && number.get<std::int64_t>() >= 0 &&
                        number.get<std::int64_t>() < static_cast<std::int64_t>(end);
  if (!is_index) refuse(what + " " + number.dump() + " is not one of " + std::to_string(end));
  return number.get<std::int32_t>();
}

const nlohmann::json& array(const nlohmann::json& object, const char* name) {
  const auto& list = member(object, name);
  if (!list.is_array()) refuse(std::string("\"") + name + "\" is no list");
  return list;
}

RematAction action(const nlohmann::json& item, const RematGraph& graph) {
  if (!item.is_array() || item.size() != 3 || !item[1].is_string()) {
    refuse("an action is not [event, \"run\" or \"drop\", number]: " + item.dump());
  }
  const auto kind = item[1].get<std::string>();
  if (kind != "run" && kind != "drop") refuse("an action \"" + kind + "\" is not known");
  RematAction action;
  action.before_event = index(item[0], graph.events.size() + 1, "the event of an action");
  action.kind = kind == "run" ? RematAction::Kind::kRun : RematAction::Kind::kDrop;
  action.index = kind == "run" ? index(item[2], graph.operations.size(), "the operation")
                               : index(item[2], graph.values.size(), "the value");
  return action;
}

}  // namespace

std::uint64_t plan_hash(const RematPlan& plan, const RematGraph& graph, std::int64_t budget_bytes) {
  detail::Fnv1a hash;
  hash.add(static_cast<std::int64_t>(graph.hash()));
  hash.add(budget_bytes);
  hash.add(plan.kept);
  hash.add(static_cast<std::int64_t>(plan.actions.size()));
  for (const auto& action : plan.actions) {
    hash.add(std::int64_t{action.before_event});
    hash.add(std::int64_t{action.kind == RematAction::Kind::kDrop});
    hash.add(std::int64_t{action.index});
  }
  return hash.value();
}

std::string hexadecimal(std::uint64_t hash) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

std::string to_json(const RematPlan& plan, const RematGraph& graph, std::int64_t budget_bytes) {
  // As text: a JSON number cannot hold every 64 bits.
  std::string text = "{\n\"version\": " + std::to_string(kVersion) + ",\n\"hash\": \"" +
                     hexadecimal(plan_hash(plan, graph, budget_bytes)) + "\",\n\"graph\": \"" +
                     hexadecimal(graph.hash()) +
                     "\",\n\"budget_bytes\": " + std::to_string(budget_bytes) + ",\n\"kept\": [";
  for (std::size_t i = 0; i < plan.kept.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(plan.kept[i]);
  }
  text += "],\n\"actions\": [";
  for (std::size_t i = 0; i < plan.actions.size(); ++i) {
    const auto& action = plan.actions[i];
    const bool is_run = action.kind == RematAction::Kind::kRun;
    text += std::string(i == 0 ? "\n" : ",\n") + "[" + std::to_string(action.before_event) +
            (is_run ? ", \"run\", " : ", \"drop\", ") + std::to_string(action.index) + "]";
  }
  return text + "\n]\n}\n";
}

RematPlan plan_from_json(const std::string& text, const RematGraph& graph) {
  const auto json = parse(text);
  const std::string hash = hexadecimal(graph.hash());
  if (member(json, "graph") != hash) {
    refuse("the plan is for graph " + json["graph"].dump() + ", this is \"" + hash +
           "\"; make a new plan");
  }
  if (!member(json, "budget_bytes").is_number_integer()) refuse("\"budget_bytes\" is no number");
  RematPlan plan;
  for (const auto& item : array(json, "kept")) {
    plan.kept.push_back(index(item, graph.values.size(), "the kept value"));
    if (plan.kept.size() > 1 && plan.kept.back() <= plan.kept[plan.kept.size() - 2]) {
      refuse("the kept values are in no ascending order");
    }
  }
  for (const auto& item : array(json, "actions")) {
    plan.actions.push_back(action(item, graph));
    if (plan.actions.size() > 1 &&
        plan.actions.back().before_event < plan.actions[plan.actions.size() - 2].before_event) {
      refuse("the events of the actions are in no ascending order");
    }
  }
  const auto budget_bytes = json["budget_bytes"].get<std::int64_t>();
  if (member(json, "hash") != hexadecimal(plan_hash(plan, graph, budget_bytes))) {
    refuse("the text was changed after it was written; make a new plan");
  }
  return plan;
}

std::uint64_t graph_hash_of_json(const std::string& text) {
  const auto json = parse(text);
  for (const char* list : {"kept", "actions"}) array(json, list);
  for (const char* name : {"hash", "budget_bytes"}) member(json, name);
  const auto& hash = member(json, "graph");
  const auto digits = hash.is_string() ? hash.get<std::string>() : std::string();
  std::uint64_t number = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  if (digits.empty() || read.ec != std::errc{} || read.ptr != digits.data() + digits.size()) {
    refuse("\"graph\" " + hash.dump() + " is no hexadecimal number");
  }
  return number;
}

}  // namespace reprise
