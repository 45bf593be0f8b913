// SPDX-License-Identifier: Apache-2.0
/// Run a program as a user does: its output, its exit code, signals; and tables for it to read.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace reprise::testing {

struct Outcome {
  int exit_code = -1;  ///< 128 + signal when a signal ended it
  std::string out;
  std::string err;
};

/// A working folder of its own for each test, removed at the end.
class WorkFolder {
 public:
  WorkFolder();
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  void write(const std::string& name, const std::string& text) const;
  std::string read(const std::string& name) const;
  /// Names of what lies in it, sorted.
  std::vector<std::string> names() const;

  /// Runs `program` in this folder and waits for it. `meanwhile` is called with the process once it
  /// runs.
  Outcome run(const std::string& program, const std::vector<std::string>& arguments,
              const std::function<void(pid_t)>& meanwhile = {}) const;
  /// The program `reprise`.
  Outcome reprise(const std::vector<std::string>& arguments,
                  const std::function<void(pid_t)>& meanwhile = {}) const;

 private:
  std::filesystem::path path_;
};

/// Lines that report an error.
std::size_t error_count(const std::string& text);

/// A CSV table of hourly sales: shop, time, sales, price; `shops` series of `steps` rows each.
std::string sales_csv(int shops, int steps);

/// Arguments that train a very small model on `file`, followed by `more`.
std::vector<std::string> train_arguments(const std::string& file,
                                         const std::vector<std::string>& more = {});

}  // namespace reprise::testing
