// SPDX-License-Identifier: Apache-2.0
// The detach bug: what it does to a training, and that it is found.
#include "tests/detach_bug.h"

#include "reprise/verify_gradients.h"
#include "tests/testing.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <map>

namespace reprise {
namespace {

using ::testing::Contains;
using testing::detach_bug_case;
using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;
using testing::loss_of;
using ::testing::Not;
using testing::train_variant;
using testing::Variant;

constexpr int kSteps = 20;

std::map<std::string, double> changes_of(Variant variant) {
  std::map<std::string, double> changes;
  for (const auto& change : train_variant(variant, kSteps).changes)
    changes[change.part] = change.relative_change;
  return changes;
}

GradientReport compare(Variant variant) {
  auto subject = detach_bug_case();
  auto& [model, input, target] = subject;
  return verify_gradients(
      named_tensors(*model), [&] { return loss_of(model, input, target, Variant::kBaseline); },
      [&] { return loss_of(model, input, target, variant); });
}

TEST(DetachBug, KeepsEverythingUpstreamFromLearning) {
  const auto baseline = changes_of(Variant::kBaseline);
  const auto broken = changes_of(Variant::kBroken);
  for (const char* part : {"static_vsn", "historical_vsn", "future_vsn"}) {
    EXPECT_GT(baseline.at(part), 1e-2) << part;
    EXPECT_EQ(broken.at(part), 0.0) << part;
  }
  // The last layers learn as ever, which is why nobody notices.
  EXPECT_GT(broken.at("output"), 1e-2);
}

TEST(DetachBug, IsNotThereInACheckpointedModel) {
  const auto baseline = train_variant(Variant::kBaseline, kSteps);
  const auto correct = train_variant(Variant::kCorrect, kSteps);
  EXPECT_EQ(baseline.last_loss, correct.last_loss);
  for (std::size_t i = 0; i < baseline.weights.size(); ++i)
    EXPECT_TRUE(testing::is_same_bytes(baseline.weights[i], correct.weights[i])) << i;
  EXPECT_LT(correct.last_loss, correct.first_loss);
}

TEST(DetachBug, IsFoundByVerifyGradients) {
  const auto report = compare(Variant::kBroken);
  EXPECT_FALSE(report.is_equal());
  EXPECT_TRUE(report.has_equal_outputs);  // the loss does not tell
  EXPECT_TRUE(report.is_plain_repeatable);
  std::vector<std::string> cut;
  for (const auto& parameter : report.parameters) {
    if (parameter.has_plain_gradient && !parameter.has_checkpointed_gradient)
      cut.push_back(parameter.name);
  }
  for (const char* part : {"static_vsn.", "historical_vsn.", "future_vsn."})
    EXPECT_THAT(cut, Contains(HasSubstr(part)));
  EXPECT_THAT(cut, Each(Not(HasSubstr("quantile"))));
  EXPECT_THAT(report.to_text(), HasSubstr("gets no gradient in the checkpointed pass"));
}

TEST(DetachBug, IsNotSeenInCheckpointedRegions) {
  const auto report = compare(Variant::kCorrect);
  EXPECT_TRUE(report.is_equal()) << report.to_text();
  EXPECT_THAT(report.parameters.size(), Ge(100U));
}

}  // namespace
}  // namespace reprise
