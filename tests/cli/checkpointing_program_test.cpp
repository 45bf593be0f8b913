// SPDX-License-Identifier: Apache-2.0
// Tiers, layers by name and `reprise verify` through the binaries.
#include "program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace reprise::testing {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Arguments that verify a very small model on sales.csv, followed by `more`.
std::vector<std::string> verify_arguments(std::vector<std::string> more) {
  more.insert(more.end(), {"--dropout", "0.2"});
  std::vector<std::string> arguments = train_arguments("sales.csv", more);
  arguments.front() = "verify";
  return arguments;
}

TEST(TrainProgram, TrainsTheSameModelWhateverIsRecomputed) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const auto train = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--dropout", "0.2", "--encoder-grn"});
    const Outcome outcome = work.reprise(train_arguments("sales.csv", more));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  };
  train({"--out", "plain"});
  const std::string out =
      train({"--out", "some", "--checkpointing", "minimal", "--checkpoint-layer",
             "lstm_decoder=off,historical_vsn=on", "--checkpoint-layer", "quantile=on"});
  EXPECT_THAT(
      out, HasSubstr("checkpointing minimal, historical_vsn=on, lstm_decoder=off, quantile=on\n"));
  EXPECT_TRUE(work.read("plain/model.safetensors") == work.read("some/model.safetensors"));
  EXPECT_EQ(json::parse(work.read("some/summary.json"))["tier"], "minimal");
  EXPECT_THAT(work.read("plain/config.toml"), Not(HasSubstr("checkpoint_layer")));
  EXPECT_THAT(work.read("some/config.toml"),
              HasSubstr("checkpointing = \"minimal\"\ncheckpoint_layer = "
                        "[\"historical_vsn=on\", \"lstm_decoder=off\", \"quantile=on\"]\n"));

  const Outcome again = work.reprise({"train", "--config", "some/config.toml", "--out", "again"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(work.read("some/config.toml"), work.read("again/config.toml"));
}

TEST(InspectProgram, SaysWhatIsRecomputed) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const Outcome outcome =
      work.reprise({"inspect", "sales.csv", "--target", "sales", "--encoder", "12", "--horizon",
                    "4", "--checkpoint-layer", "gate=on", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json model = json::parse(outcome.out)["model"];
  EXPECT_EQ(model["checkpointing"], "off");
  EXPECT_EQ(model["checkpoint_layer"], json({"gate=on"}));
}

TEST(TrainTftParquetProgram, TakesLayersByName) {
  const WorkFolder work;
  const Outcome made = work.reprise({"synthesize", "--series", "2", "--steps", "200", "--static",
                                     "2", "--observed", "3", "--known", "2", "--out", "t.parquet"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const Outcome trained = work.run(REPRISE_TRAIN_TFT_PARQUET,
                                   {"--parquet-file", "t.parquet", "--epochs", "1", "--max-steps",
                                    "1", "--hidden", "8", "--checkpointing", "minimal",
                                    "--checkpoint-layer", "historical_encoder=on", "--out", "run"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(work.read("run/config.toml"),
              HasSubstr("checkpoint_layer = [\"historical_encoder=on\"]\n"));
}

TEST(VerifyProgram, FindsEqualGradientsAndWritesNothing) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const Outcome outcome = work.reprise(verify_arguments({"--checkpointing", "minimal"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("sales.csv: the first training batch, 64 windows\n"));
  EXPECT_THAT(outcome.out, HasSubstr("Recomputed: lstm_encoder, lstm_decoder\n"));
  EXPECT_THAT(work.names(), ElementsAre("sales.csv"));
}

TEST(VerifyProgram, VerifiesTheAggressiveTierWhereNothingIsChosen) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const Outcome outcome = work.reprise(verify_arguments({"--json"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("--checkpointing aggressive is verified"));
  const json document = json::parse(outcome.out);
  EXPECT_EQ(document["checkpointing"], "aggressive");
  EXPECT_THAT(document["recomputed_layers"], Contains("temporal_attention"));
}

TEST(VerifyProgram, VerifiesStepsThatDecideOperatorByOperator) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const Outcome outcome = work.reprise(verify_arguments({"--checkpointing", "auto", "--json"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const json document = json::parse(outcome.out);
  EXPECT_EQ(document["checkpointing"], "auto");
  EXPECT_EQ(document["equal"], true);
  EXPECT_GT(document["replayed_operations"].get<int>(), 0);

  const Outcome idle = work.reprise(verify_arguments({"--memory-budget", "10GB"}));
  EXPECT_EQ(idle.exit_code, 2);
  EXPECT_THAT(idle.err, HasSubstr("leaves nothing to recompute"));
}

TEST(VerifyProgram, SaysTheSameInJson) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const Outcome outcome = work.reprise(verify_arguments(
      {"--checkpoint-layer", "historical_vsn=on,gate=on", "--batch-size", "16", "--json"}));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const json document = json::parse(outcome.out);
  EXPECT_EQ(document["equal"], true);
  EXPECT_EQ(document["windows"], 16);
  EXPECT_EQ(document["checkpointing"], "off");
  EXPECT_EQ(document["checkpoint_layer"], json({"gate=on", "historical_vsn=on"}));
  EXPECT_EQ(document["recomputed_layers"], json({"historical_vsn", "gate"}));
  EXPECT_GT(document["compared_parameters"].get<int>(), 50);
  for (const char* list : {"differing_parameters", "without_gradient", "differing_buffers"}) {
    EXPECT_EQ(document[list], json::array()) << list;
  }
  EXPECT_EQ(document["equal_outputs"], true);
  EXPECT_EQ(document["equal_random_stream"], true);
}

TEST(VerifyProgram, RefusesToVerifyNothing) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const Outcome outcome = work.reprise(verify_arguments({"--checkpoint-layer", "gate=off"}));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("no layer that is recomputed"));
  EXPECT_EQ(outcome.out, "");
}

TEST(VerifyProgram, RepeatsARunFromItsConfig) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  ASSERT_EQ(work.reprise(train_arguments("sales.csv", {"--out", "run", "--checkpointing",
                                                       "aggressive", "--max-steps", "1"}))
                .exit_code,
            0);
  const Outcome outcome = work.reprise({"verify", "--config", "run/config.toml", "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["checkpointing"], "aggressive");
}

}  // namespace
}  // namespace reprise::testing
