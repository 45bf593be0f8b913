// SPDX-License-Identifier: Apache-2.0
/// CPU time, which other programs on the machine disturb least.
#pragma once

#include <ctime>

namespace reprise::bench {

/// Of this process, all threads, since it began.
inline double cpu_s() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace reprise::bench
