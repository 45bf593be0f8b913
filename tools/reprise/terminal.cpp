// SPDX-License-Identifier: Apache-2.0
#include "terminal.h"

#include "data/text_internal.h"
#include "text.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <sstream>

namespace reprise {
namespace {

constexpr double kProgressDelay_s = 2.0;
constexpr double kProgressInterval_s = 0.2;

bool wants_colour() {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* kind = std::getenv("TERM");
  return (no_colour == nullptr || *no_colour == '\0') &&
         std::string(kind == nullptr ? "" : kind) != "dumb";
}

std::size_t terminal_width() {
  winsize size{};
  const bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col : 80;
}

}  // namespace

Terminal::Terminal(bool is_json)
    : results_(is_json ? &std::cerr : &std::cout),
      messages_(&std::cerr),
      is_json_(is_json),
      is_terminal_(isatty(STDERR_FILENO) == 1),
      has_colour_(is_terminal_ && wants_colour()) {}

Terminal::Terminal(std::ostream& results, std::ostream& messages, bool is_terminal)
    : results_(&results),
      messages_(&messages),
      is_terminal_(is_terminal),
      has_colour_(is_terminal && wants_colour()) {}

std::string Terminal::coloured(const char* code, const std::string& text) const {
  return has_colour_ ? "\x1b[" + std::string(code) + "m" + text + "\x1b[0m" : text;
}

void Terminal::result(const std::string& text) {
  progress("");
  *results_ << detail::printable(text, true) << std::flush;
}

void Terminal::json(const std::string& document) {
  if (is_json_) {
    std::cout << document << std::endl;
  }
}

void Terminal::note(const std::string& text) {
  progress("");
  *messages_ << detail::printable(text, true) << std::endl;
}

void Terminal::warning(const std::string& text) {
  progress("");
  *messages_ << coloured("33", "warning:") << " " << detail::printable(text, true) << std::endl;
}

void Terminal::error(const std::string& text) {
  progress("");
  *messages_ << coloured("31", "error:") << " " << detail::printable(text, true) << std::endl;
}

void Terminal::progress(const std::string& text) {
  if (!is_terminal_ || (text.empty() && !has_progress_)) {
    return;
  }
  // A line that wraps cannot be overwritten.
  *messages_ << "\r\x1b[K" << text.substr(0, terminal_width() - 1) << std::flush;
  has_progress_ = !text.empty();
}

void Progress::update(const ProgressState& state, bool is_evaluation) {
  if (!terminal_.is_terminal()) {
    if (is_evaluation) {
      terminal_.note(progress_text(state));
    }
    return;
  }
  const double since_s = state.elapsed_s - last_shown_s_;
  if (state.elapsed_s < kProgressDelay_s || (is_shown_ && since_s < kProgressInterval_s)) {
    return;
  }
  last_shown_s_ = state.elapsed_s;
  is_shown_ = true;
  terminal_.progress(progress_text(state));
}

void Progress::finish() {
  if (is_shown_) {
    terminal_.progress("");
    is_shown_ = false;
  }
}

// Short enough for a terminal of 80 columns.
std::string progress_text(const ProgressState& state) {
  std::ostringstream line;
  line << "step " << state.step << "/" << state.total_steps;
  if (state.step > 0 && state.step < state.total_steps) {
    const auto left = static_cast<double>(state.total_steps - state.step);
    line << "  ETA " << format_duration(state.elapsed_s / static_cast<double>(state.step) * left);
  }
  line << "  loss " << format_fixed(state.train_loss, 4);
  if (!std::isnan(state.valid_loss)) {
    line << "  valid " << format_fixed(state.valid_loss, 4) << (state.is_best ? " (best)" : "");
  }
  line << "  " << format_fixed(state.windows_per_s, 0) << " windows/s  peak "
       << format_bytes(state.peak_bytes);
  return line.str();
}

}  // namespace reprise
