// SPDX-License-Identifier: Apache-2.0
/// A subcommand: its name, its fields and what it runs; and how a command line becomes one.
#pragma once

#include "fields.h"
#include "terminal.h"

#include <functional>
#include <string>
#include <vector>

namespace reprise {

constexpr int kExitDone = 0;
constexpr int kExitFailed = 1;
constexpr int kExitWrongInput = 2;
constexpr int kExitInterrupted = 130;

struct Command {
  std::string name;
  std::string summary;
  std::string example;             ///< one command line
  std::vector<Field> fields;       ///< each a flag
  std::vector<Field> positionals;  ///< in order; all required
  std::vector<std::string> required =
      {};  ///< fields that must not be empty once flags and file are read
  std::function<int(Settings&, Terminal&)> run;
};

/// A program: either several subcommands, or one command without a name of its own.
struct Program {
  std::string name;
  std::string summary;
  std::vector<Command> commands;
  bool has_subcommands = true;
};

/// Parses the command line, runs what it asks for, and reports what goes wrong. Returns the exit
/// code.
///
/// `settings` is the struct that the commands' fields point into.
int run_program(const Program& program, Settings& settings, int argc, const char* const* argv);

/// What a command line asks for.
struct Invocation {
  const Command* command = nullptr;  ///< none: print `text` and leave
  std::string text;                  ///< help or version
};

/// Reads flags, then the file that `--config` names, into the fields. Throws `OptionError` or
/// `DataError`.
Invocation parse_command_line(const Program& program, Settings& settings, int argc,
                              const char* const* argv);

/// Flags and subcommands that later versions have: refused as such, so that nobody looks for a
/// typing error.
bool is_later_flag(const std::string& flag);
bool is_later_command(const std::string& name);

/// Writes the error that is being handled, with what to do about it, and returns its exit code.
/// Call it in a `catch`.
int report_error(Terminal& terminal, const std::string& who);

}  // namespace reprise
