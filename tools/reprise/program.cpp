// SPDX-License-Identifier: Apache-2.0
#include "command.h"

#include "autograd/out_of_memory.h"
#include "data/text_internal.h"
#include "interrupt.h"
#include "reprise/errors.h"

#include <fcntl.h>
#include <unistd.h>

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <torch/utils.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iostream>
#include <string_view>

namespace reprise {
namespace {

constexpr std::int64_t kMaxThreads = 1024;

constexpr const char* kOutOfMemory =
    "out of memory; use --checkpointing aggressive, or a smaller --micro-batch-size, --batch-size "
    "or --hidden";

void apply_common(const Settings& settings) {
  if (settings.threads < 0 || settings.threads > kMaxThreads) {
    throw OptionError("threads", "--threads: " + std::to_string(settings.threads) +
                                     " is not in 0 .. " + std::to_string(kMaxThreads));
  }
  if (settings.threads > 0) {
    at::set_num_threads(static_cast<int>(settings.threads));
  }
  check_device(settings.train.device);
  torch::manual_seed(settings.train.seed);
}

// Errors of the command line itself come before `--json` is known.
bool asks_for_json(int argc, const char* const* argv) {
  return std::any_of(argv, argv + argc,
                     [](const char* argument) { return std::string_view(argument) == "--json"; });
}

int write_error(Terminal& terminal, const std::string& who, const std::string& text,
                int exit_code) {
  const std::string message = detail::printable(text, true);
  // The library's own messages may begin with the same word.
  const bool names_itself = message.rfind(who + ": ", 0) == 0;
  terminal.error(names_itself ? message : who + ": " + message);
  terminal.json(nlohmann::json{{"error", message}, {"exit_code", exit_code}}.dump(
      2, ' ', false, nlohmann::json::error_handler_t::replace));
  return exit_code;
}

std::string with_flag(const OptionError& error) {
  const std::string message = error.what();
  if (error.field().empty() || error.field().rfind('-', 0) == 0) {
    return message;
  }
  const std::string flag = flag_of_option(error.field());
  const bool is_named =
      message.find(flag) != std::string::npos || message.find('\n') != std::string::npos;
  const bool is_flag = error.field().find_first_of(" :") == std::string::npos;
  return is_named || !is_flag ? message : message + "\n  help: the option is " + flag;
}

// A file opened under the number of a closed stream would take in what is printed.
void keep_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) < 0) {
      ::open("/dev/null", O_RDWR);
    }
  }
}

// What was asked for on stdout has not arrived where the disk is full.
int check_stdout(Terminal& terminal, const std::string& who, int exit_code) {
  if (std::cout.flush() || exit_code != kExitDone) {
    return exit_code;
  }
  return write_error(terminal, who, "stdout cannot be written; is the disk full?", kExitFailed);
}

}  // namespace

int report_error(Terminal& terminal, const std::string& who) {
  try {
    throw;
  } catch (const OptionError& error) {
    return write_error(terminal, who, with_flag(error), kExitWrongInput);
  } catch (const DataError& error) {
    return write_error(terminal, who, error.what(), kExitWrongInput);
  } catch (const BudgetError& error) {
    return write_error(terminal, who, error.what(), kExitFailed);
  } catch (const c10::Error& error) {
    return detail::is_out_of_memory(error)
               ? write_error(terminal, who, kOutOfMemory, kExitFailed)
               : write_error(terminal, who, error.what_without_backtrace(), kExitFailed);
  } catch (const std::exception& error) {
    return write_error(terminal, who, detail::is_out_of_memory(error) ? kOutOfMemory : error.what(),
                       kExitFailed);
  }
}

int run_program(const Program& program, Settings& settings, int argc, const char* const* argv) {
  keep_standard_streams();
  exit_on_interrupt();
  Terminal terminal(asks_for_json(argc, argv));
  std::string who = program.name;
  try {
    const Invocation invocation = parse_command_line(program, settings, argc, argv);
    if (invocation.command == nullptr) {
      std::cout << invocation.text;
      return check_stdout(terminal, who, kExitDone);
    }
    if (program.has_subcommands) {
      who = invocation.command->name;
    }
    apply_common(settings);
    return check_stdout(terminal, who, invocation.command->run(settings, terminal));
  } catch (...) {
    return report_error(terminal, who);
  }
}

}  // namespace reprise
