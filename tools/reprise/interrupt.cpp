// SPDX-License-Identifier: Apache-2.0
#include "interrupt.h"

#include "command.h"

#include <unistd.h>

#include <csignal>
#include <cstddef>

namespace reprise {
namespace {

// 0: leave at once; 1: the next signal is only noted; 2: one was noted.
volatile std::sig_atomic_t state = 0;

// Only what is safe in a signal handler.
template <std::size_t size>
void say(const char (&text)[size]) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, size - 1);
}

extern "C" void on_signal(int) {
  if (state != 1) {
    say("\ninterrupted\n");
    _exit(kExitInterrupted);
  }
  state = 2;
  say("\ninterrupt: finishing this step and saving; once more to leave at once\n");
}

}  // namespace

void exit_on_interrupt() {
  struct sigaction action{};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

InterruptScope::InterruptScope() {
  state = 1;
}

InterruptScope::~InterruptScope() {
  state = 0;
}

bool InterruptScope::requested() const {
  return state == 2;
}

}  // namespace reprise
