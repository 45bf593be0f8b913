// SPDX-License-Identifier: Apache-2.0
#include "command.h"
#include "config.h"
#include "text.h"

#include "reprise/errors.h"
#include "reprise/version.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <set>

namespace reprise {
namespace {

constexpr std::array kLaterFlags = {"--resume", "--use-qat", "--calibrate", "--format"};
constexpr std::array kLaterCommands = {"quantize", "export", "report"};

// Names of the fields that flags have set.
using Given = std::set<std::string>;

void take_values(const Field& field, const std::vector<std::string>& texts, Given& given) {
  const std::string flag = flag_name(field.name);
  std::vector<std::string> items;
  for (const std::string& text : texts) {
    if (text.rfind("--", 0) == 0) {
      throw OptionError(field.name, flag + ": needs a value, got '" + text + "'");
    }
    if (takes_list(field)) {
      const std::vector<std::string> parts = split_list(text);
      items.insert(items.end(), parts.begin(), parts.end());
    } else {
      items.push_back(text);
    }
  }
  set_field(field, items, flag);
  given.insert(field.name);
}

void add_flag(CLI::App& app, const Field& field, Given& given) {
  if (std::holds_alternative<bool*>(field.value)) {
    const std::string dashed = flag_name(field.name);
    const std::string names = field.is_recorded ? dashed + ",!--no-" + dashed.substr(2) : dashed;
    app.add_flag_function(
        names,
        [&field, &given](std::int64_t count) {
          *std::get<bool*>(field.value) = count > 0;
          given.insert(field.name);
        },
        field.help);
    return;
  }
  CLI::Option* option = app.add_option_function<std::vector<std::string>>(
      flag_name(field.name),
      [&field, &given](const std::vector<std::string>& texts) { take_values(field, texts, given); },
      field.help);
  // Any number of times, a value each. (CLI11 writes "..." behind every option without a bound.)
  constexpr int kMaxTimes = 1 << 26;
  option->expected(1, kMaxTimes)->allow_extra_args(false)->type_name(field.value_name);
  const std::string value = default_text(field);
  if (!value.empty()) {
    option->default_str(value);
  }
}

void add_positional(CLI::App& app, const Field& field, Given& given) {
  app.add_option_function<std::string>(
         field.value_name,
         [&field, &given](const std::string& text) { take_values(field, {text}, given); },
         field.help)
      ->type_name("");
}

void add_command(CLI::App& app, const Command& command, Given& given) {
  for (const Field& field : command.positionals) {
    add_positional(app, field, given);
  }
  for (const Field& field : command.fields) {
    add_flag(app, field, given);
  }
  app.allow_extras();
  app.footer("Example:\n  " + command.example);
}

std::vector<std::string> known_flags(const Command& command) {
  std::vector<std::string> flags;
  for (const Field& field : command.fields) {
    flags.push_back(flag_name(field.name));
  }
  flags.emplace_back("--help");
  return flags;
}

[[noreturn]] void refuse_argument(const Command& command, const std::string& argument) {
  const std::string flag = argument.substr(0, argument.find('='));
  if (is_later_flag(flag)) {
    throw OptionError(flag, flag + " is not in this version");
  }
  if (argument.rfind('-', 0) != 0) {
    throw OptionError(argument, "unexpected argument '" + argument + "'; see --help");
  }
  const std::vector<std::string> known = known_flags(command);
  const std::string nearest = nearest_name(flag, known);
  throw OptionError(flag, "unknown option '" + flag + "'" +
                              (nearest.empty() ? "" : "; did you mean " + nearest + "?") +
                              "\n  known: " + join(known));
}

[[noreturn]] void refuse_command(const Program& program, const std::string& argument) {
  std::vector<std::string> known;
  for (const Command& command : program.commands) {
    known.push_back(command.name);
  }
  if (is_later_command(argument)) {
    throw OptionError(argument,
                      "command '" + argument + "' is not in this version; known: " + join(known));
  }
  const bool is_flag = argument.rfind('-', 0) == 0;
  const std::string nearest = nearest_name(argument, known);
  throw OptionError(argument, std::string("unknown ") + (is_flag ? "option" : "command") + " '" +
                                  argument + "'" +
                                  (nearest.empty() ? "" : "; did you mean " + nearest + "?") +
                                  "\n  known: " + join(known));
}

void check_complete(const Command& command) {
  for (const Field& field : command.positionals) {
    if (std::get<std::string*>(field.value)->empty()) {
      throw OptionError(field.name, field.value_name + " is missing (" + field.help +
                                        ")\n  example: " + command.example);
    }
  }
  for (const Field& field : command.fields) {
    const bool is_required = std::find(command.required.begin(), command.required.end(),
                                       field.name) != command.required.end();
    if (is_required && default_text(field).empty()) {
      throw OptionError(field.name, flag_name(field.name) + " is missing (" + field.help +
                                        ")\n  example: " + command.example);
    }
  }
}

}  // namespace

bool is_later_flag(const std::string& flag) {
  return std::find(kLaterFlags.begin(), kLaterFlags.end(), flag) != kLaterFlags.end();
}

bool is_later_command(const std::string& name) {
  return std::find(kLaterCommands.begin(), kLaterCommands.end(), name) != kLaterCommands.end();
}

Invocation parse_command_line(const Program& program, Settings& settings, int argc,
                              const char* const* argv) {
  CLI::App app(program.summary, program.name);
  app.set_version_flag("--version", program.name + " " REPRISE_VERSION);
  app.allow_extras();
  app.require_subcommand(0, 1);
  Given given;
  std::vector<CLI::App*> apps;
  for (const Command& command : program.commands) {
    apps.push_back(program.has_subcommands ? app.add_subcommand(command.name, command.summary)
                                           : &app);
    add_command(*apps.back(), command, given);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return {nullptr, app.help()};
  } catch (const CLI::CallForVersion& version) {
    return {nullptr, std::string(version.what()) + "\n"};
  } catch (const CLI::ParseError& error) {
    throw OptionError("", error.what());
  }
  for (std::size_t i = 0; i < apps.size(); ++i) {
    if (program.has_subcommands && !apps[i]->parsed()) {
      continue;
    }
    const Command& command = program.commands[i];
    if (const std::vector<std::string> extra = apps[i]->remaining(); !extra.empty()) {
      refuse_argument(command, extra.front());
    }
    if (!settings.config.empty()) {
      read_config(settings.config, command.fields, given);
    }
    check_complete(command);
    return {&command, ""};
  }
  if (const std::vector<std::string> extra = app.remaining(); !extra.empty()) {
    refuse_command(program, extra.front());
  }
  throw OptionError("", "no command given\n" + app.help());
}

}  // namespace reprise
