// SPDX-License-Identifier: Apache-2.0
/// A plain-text table: numbers to the right, words to the left, units in the header.
#pragma once

#include <string>
#include <vector>

namespace reprise {

class Table {
 public:
  explicit Table(std::vector<std::string> header) : header_(std::move(header)) {}

  /// Adds a row; missing cells are empty. Throws `std::invalid_argument` when it is wider than the
  /// header.
  void add_row(std::vector<std::string> cells);

  /// The lines, each ended by a newline. A column whose cells are all numbers (or "-") is
  /// right-aligned, its header too.
  std::string text() const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace reprise
