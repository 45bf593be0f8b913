// SPDX-License-Identifier: Apache-2.0
// How settings are made to agree, and which are refused.
#include "settings.h"
#include "tests/testing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace reprise {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

TEST(Settle, MakesTheLengthsAgreeAndTheAliasHold) {
  Settings settings;
  settings.data.encoder_length = 30;
  settings.data.horizon = 5;
  settings.use_gradient_checkpointing = true;
  settle(settings);
  EXPECT_EQ(settings.model.encoder_length, 30);
  EXPECT_EQ(settings.model.horizon, 5);
  EXPECT_EQ(settings.model.checkpointing, Checkpointing::kAggressive);
}

TEST(Settle, TakesAutoWithABudgetUnlessATierIsChosen) {
  Settings settings;
  settle(settings);
  EXPECT_EQ(settings.model.checkpointing, Checkpointing::kOff);
  settings = {};
  settings.train.memory_budget_bytes = 1'000'000;
  settle(settings);
  EXPECT_EQ(settings.model.checkpointing, Checkpointing::kAuto);
  EXPECT_EQ(settings.checkpointing, Checkpointing::kAuto);  // what config.toml says
  settings.checkpointing = Checkpointing::kOff;
  settle(settings);
  EXPECT_EQ(settings.model.checkpointing, Checkpointing::kOff);
  settings.checkpointing.reset();
  settings.train.batch_size = 0;  // as many as fit without recomputation
  settle(settings);
  EXPECT_EQ(settings.model.checkpointing, Checkpointing::kOff);
  settings = {};
  settings.train.memory_budget_bytes = 1'000'000;
  settings.train.device = "cuda";  // where nothing is let go
  settle(settings);
  EXPECT_EQ(settings.model.checkpointing, Checkpointing::kOff);
}

TEST(Settle, RefusesASeedThatTomlCannotHold) {
  Settings settings;
  settings.train.seed = 1ULL << 63;
  EXPECT_THAT(error_of([&] { settle(settings); }), HasSubstr("--seed: must be below 2^63"));
}

TEST(CheckDevice, KnowsCpuAndCuda) {
  EXPECT_NO_THROW(check_device("cpu"));
  EXPECT_THAT(error_of([] { check_device("tpu"); }), HasSubstr("known: cpu, cuda, cuda:N"));
  EXPECT_THAT(error_of([] { check_device("cuda:x"); }), HasSubstr("known: cpu, cuda, cuda:N"));
  EXPECT_THAT(error_of([] { check_device("cuda:999"); }), HasSubstr("is not here"));
}

}  // namespace
}  // namespace reprise
