// SPDX-License-Identifier: Apache-2.0
/// What Ctrl-C (SIGINT) and SIGTERM do.
#pragma once

namespace reprise {

/// From now on either signal ends the program at once with exit code 130.
void exit_on_interrupt();

/// While it lives the first signal only makes `requested` true, so that what is being done can be
/// finished and saved; a second one ends the program at once. One at a time.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  bool requested() const;
};

}  // namespace reprise
