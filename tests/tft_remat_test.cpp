// SPDX-License-Identifier: Apache-2.0
// The forecaster within budgets that are decided operator by operator.
#include "reprise/quantile_loss.h"
#include "reprise/tft.h"
#include "tests/remat_testing.h"
#include "tests/tft_models.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace reprise {
namespace {

TEST(TemporalFusionTransformer, GivesBitwiseEqualGradientsWithinTwentyBudgets) {
  torch::manual_seed(4);
  auto options = testing::small_options();
  options.dropout = 0.3;
  options.encoder_grn = true;
  TemporalFusionTransformer model(options);
  constexpr std::int64_t kBatch = 16;
  const auto input = testing::random_input(options, kBatch);
  const auto target = torch::randn({kBatch, options.horizon});
  const testing::TrainingStep step{
      .loss = [&] { return quantile_loss(model->forward(input), target, options.quantiles); },
      .leaves = model->parameters()};
  EXPECT_LE(testing::expect_exact_within_budgets(step, 4), 0.6);
}

}  // namespace
}  // namespace reprise
