// SPDX-License-Identifier: Apache-2.0
#include "interrupt.h"

#include "command.h"

#include <unistd.h>

#include <csignal>

namespace reprise {
namespace {

// 0: leave at once; 1: the next signal is only noted; 2: one was noted.
volatile std::sig_atomic_t state = 0;

extern "C" void on_signal(int) {
  if (state != 1) {
    _exit(kExitInterrupted);
  }
  state = 2;
}

}  // namespace

void exit_on_interrupt() {
  struct sigaction action {};
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
