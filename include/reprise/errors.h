// SPDX-License-Identifier: Apache-2.0
/// The errors that a caller can act on. Tensor shapes are checked by LibTorch's own
/// c10::ValueError.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

namespace reprise {

/// An option is out of range or contradicts another one.
class OptionError : public std::invalid_argument {
 public:
  OptionError(std::string field, const std::string& message)
      : std::invalid_argument(message), field_(std::move(field)) {}

  /// Name of the option as it is written in TOML, in JSON and (with dashes) on the command line.
  const std::string& field() const { return field_; }

 private:
  std::string field_;
};

/// A file or a table cannot be used as it is; the message names file, column and rows, and says
/// what to do.
class DataError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// There is less memory than is needed: the budget is too small, or the system has no more.
/// The message says what to do; that of a training also what would fit.
class BudgetError : public std::runtime_error {
 public:
  BudgetError(std::int64_t needed_bytes, std::int64_t allowed_bytes, const std::string& message)
      : std::runtime_error(message), needed_bytes_(needed_bytes), allowed_bytes_(allowed_bytes) {}

  /// In all, at least: where an operator was refused, what it asked for and what was in use.
  std::int64_t needed_bytes() const { return needed_bytes_; }
  std::int64_t allowed_bytes() const { return allowed_bytes_; }

 private:
  std::int64_t needed_bytes_;
  std::int64_t allowed_bytes_;
};

}  // namespace reprise
