// SPDX-License-Identifier: Apache-2.0
#include "table.h"

#include <algorithm>
#include <cctype>
#include <stdexcept>

namespace reprise {
namespace {

bool is_number(const std::string& cell) {
  const std::size_t first = cell.find_first_not_of("+-.");
  return cell.empty() || cell == "-" ||
         (first != std::string::npos &&
          std::isdigit(static_cast<unsigned char>(cell[first])) != 0 &&
          cell.find_first_not_of("0123456789.,+-e%") == std::string::npos);
}

// Columns on the screen: a UTF-8 continuation byte takes none.
std::size_t display_width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

}  // namespace

void Table::add_row(std::vector<std::string> cells) {
  if (cells.size() > header_.size()) {
    throw std::invalid_argument("Table: a row has " + std::to_string(cells.size()) +
                                " cells, the header " + std::to_string(header_.size()));
  }
  cells.resize(header_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  std::vector<bool> is_right;
  for (std::size_t column = 0; column < header_.size(); ++column) {
    std::size_t width = display_width(header_[column]);
    bool all_numbers = !rows_.empty();
    for (const auto& row : rows_) {
      width = std::max(width, display_width(row[column]));
      all_numbers = all_numbers && is_number(row[column]);
    }
    widths.push_back(width);
    is_right.push_back(all_numbers);
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (std::size_t column = 0; column < cells.size(); ++column) {
      const std::string padding(widths[column] - display_width(cells[column]), ' ');
      text += column == 0 ? "" : "  ";
      text += is_right[column] ? padding + cells[column] : cells[column] + padding;
    }
    return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  };
  std::string text = line(header_);
  for (const auto& row : rows_) {
    text += line(row);
  }
  return text;
}

}  // namespace reprise
