// SPDX-License-Identifier: Apache-2.0
// Prints the tables of docs/gradient-checkpointing-bug-validation.md: see scripts/regenerate-docs.
#include "tests/detach_bug.h"
#include "tests/testing.h"

#include <array>
#include <cstdio>

namespace {

using reprise::testing::train_variant;
using reprise::testing::TrainedVariant;
using reprise::testing::Variant;

constexpr int kSteps = 50;

bool has_same_weights(const TrainedVariant& a, const TrainedVariant& b) {
  for (std::size_t i = 0; i < a.weights.size(); ++i) {
    if (!reprise::testing::is_same_bytes(a.weights[i], b.weights[i])) return false;
  }
  return true;
}

void print_changes(const std::array<TrainedVariant, 3>& runs) {
  std::printf("| part | baseline | broken | correct | gets a gradient in broken |\n");
  std::printf("| --- | ---: | ---: | ---: | ---: |\n");
  for (std::size_t i = 0; i < runs[0].changes.size(); ++i) {
    const auto& broken = runs[1].changes[i];
    std::printf("| %s | %.4f | %.4f | %.4f | %d of %d |\n", broken.part.c_str(),
                runs[0].changes[i].relative_change, broken.relative_change,
                runs[2].changes[i].relative_change, static_cast<int>(broken.gradients),
                static_cast<int>(broken.parameters));
  }
}

void print_losses(const std::array<TrainedVariant, 3>& runs) {
  std::printf("\n| after %d steps | baseline | broken | correct |\n", kSteps);
  std::printf("| --- | ---: | ---: | ---: |\n");
  std::printf("| loss | %.4f | %.4f | %.4f |\n", runs[0].last_loss, runs[1].last_loss,
              runs[2].last_loss);
  std::printf("| weights equal to baseline's, bit for bit | yes | %s | %s |\n",
              has_same_weights(runs[0], runs[1]) ? "yes" : "no",
              has_same_weights(runs[0], runs[2]) ? "yes" : "no");
}

}  // namespace

int main() {
  const std::array<TrainedVariant, 3> runs = {train_variant(Variant::kBaseline, kSteps),
                                              train_variant(Variant::kBroken, kSteps),
                                              train_variant(Variant::kCorrect, kSteps)};
  print_changes(runs);
  print_losses(runs);
}
