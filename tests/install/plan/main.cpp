// SPDX-License-Identifier: Apache-2.0
/// Plans three segments with the installed planner; prints "recompute: 1".
#include <reprise/plan.h>
#include <reprise/version.h>

#include <cstdio>

int main() {
  std::printf("reprise %s\nrecompute:", REPRISE_VERSION);
  // 100 + 400 + 200 bytes; without the second segment 300 are left.
  for (const auto segment :
       reprise::plan_recomputation({{100, 1.0}, {400, 1.0}, {200, 9.0}}, 300)) {
    std::printf(" %zu", segment);
  }
  std::printf("\n");
}
