// SPDX-License-Identifier: Apache-2.0
#include "program.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace reprise::testing {
namespace {

std::string content(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

void redirect(const std::filesystem::path& file, int descriptor) {
  const int opened = open(file.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
  dup2(opened, descriptor);
  close(opened);
}

}  // namespace

WorkFolder::WorkFolder() {
  std::string pattern =
      (std::filesystem::temp_directory_path() / "reprise-program-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) {
    throw std::runtime_error("WorkFolder: cannot make " + pattern);
  }
  path_ = pattern;
  std::filesystem::create_directories(path_ / "work");
  path_ /= "work";
}

WorkFolder::~WorkFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_.parent_path(), ignored);
}

void WorkFolder::write(const std::string& name, const std::string& text) const {
  std::ofstream(path_ / name, std::ios::binary) << text;
}

std::string WorkFolder::read(const std::string& name) const {
  return content(path_ / name);
}

std::vector<std::string> WorkFolder::names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Outcome WorkFolder::run(const std::string& program, const std::vector<std::string>& arguments,
                        const std::function<void(pid_t)>& meanwhile) const {
  const std::filesystem::path out = path_.parent_path() / "stdout";
  const std::filesystem::path err = path_.parent_path() / "stderr";
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child < 0) {
    throw std::runtime_error("WorkFolder: cannot start a process");
  }
  if (child == 0) {
    redirect(out, STDOUT_FILENO);
    redirect(err, STDERR_FILENO);
    if (chdir(path_.c_str()) == 0) {
      execv(program.c_str(), argv.data());
    }
    _exit(127);
  }
  if (meanwhile) {
    meanwhile(child);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), content(out),
          content(err)};
}

Outcome WorkFolder::reprise(const std::vector<std::string>& arguments,
                            const std::function<void(pid_t)>& meanwhile) const {
  return run(REPRISE_PROGRAM, arguments, meanwhile);
}

std::size_t error_count(const std::string& text) {
  std::size_t count = 0;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    count += line.rfind("error: ", 0) == 0 ? 1 : 0;
  }
  return count;
}

std::string sales_csv(int shops, int steps) {
  std::string text = "shop,time,sales,price\n";
  char line[120];
  for (int shop = 0; shop < shops; ++shop) {
    for (int step = 0; step < steps; ++step) {
      const double price = 1.0 + 0.1 * ((step * 7 + shop) % 5);
      const double sales = 10.0 * (shop + 1) + 3.0 * std::sin(step * 2.0 * M_PI / 24.0) - price;
      std::snprintf(line, sizeof line, "s%d,2024-01-%02d %02d:00:00,%.6f,%.2f\n", shop,
                    1 + step / 24, step % 24, sales, price);
      text += line;
    }
  }
  return text;
}

std::vector<std::string> train_arguments(const std::string& file,
                                         const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {
      "train", "--parquet-file", file,    "--time",    "time",  "--id",
      "shop",  "--target",       "sales", "--known",   "price", "--encoder",
      "12",    "--horizon",      "4",     "--threads", "1"};
  const auto add_default = [&](const char* flag, const char* value) {
    if (std::find(more.begin(), more.end(), flag) == more.end()) {
      arguments.insert(arguments.end(), {flag, value});
    }
  };
  add_default("--hidden", "4");
  add_default("--batch-size", "64");
  add_default("--heads", "1");
  add_default("--epochs", "1");
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

}  // namespace reprise::testing
