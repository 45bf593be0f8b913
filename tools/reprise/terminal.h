// SPDX-License-Identifier: Apache-2.0
/// Where the program writes: results to stdout, everything else to stderr, colour and progress only
/// on a terminal.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

namespace reprise {

class Terminal {
 public:
  /// stdout and stderr. With `is_json` stdout is kept for one JSON document: results for people go
  /// to stderr too.
  explicit Terminal(bool is_json);
  /// Any streams, for tests.
  Terminal(std::ostream& results, std::ostream& messages, bool is_terminal);

  /// What the user asked for, as text for people.
  void result(const std::string& text);
  /// The one document of `--json`; does nothing without it.
  void json(const std::string& document);
  void note(const std::string& text);
  void warning(const std::string& text);
  void error(const std::string& text);

  /// Overwrites the progress line; an empty text removes it.
  void progress(const std::string& text);

  bool is_json() const { return is_json_; }
  /// Whether messages go to a terminal (and progress may overwrite itself).
  bool is_terminal() const { return is_terminal_; }

 private:
  std::string coloured(const char* code, const std::string& text) const;

  std::ostream* results_;
  std::ostream* messages_;
  bool is_json_ = false;
  bool is_terminal_ = false;
  bool has_colour_ = false;
  bool has_progress_ = false;
};

/// What a progress line says.
struct ProgressState {
  std::int64_t step = 0;
  std::int64_t total_steps = 0;
  double train_loss = 0.0;
  double valid_loss = 0.0;  ///< NaN before the first evaluation
  bool is_best = false;
  double windows_per_s = 0.0;
  double elapsed_s = 0.0;
  std::int64_t peak_bytes = 0;  ///< of tensors
};

/// Progress of a training: on a terminal one line that overwrites itself, from the second second on
/// and five times a second at most; elsewhere one plain line per evaluation.
class Progress {
 public:
  explicit Progress(Terminal& terminal) : terminal_(terminal) {}
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `is_evaluation`: `valid_loss` is new.
  void update(const ProgressState& state, bool is_evaluation);
  /// Removes the line.
  void finish();

 private:
  Terminal& terminal_;
  double last_shown_s_ = 0.0;
  bool is_shown_ = false;
};

/// The line for `state`, with the time left.
std::string progress_text(const ProgressState& state);

}  // namespace reprise
