// SPDX-License-Identifier: Apache-2.0
// `reprise profile` through the binary: figures that add up, the trace, and what it refuses.
#include "program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace reprise::testing {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> profile_arguments(const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = train_arguments("sales.csv", more);
  arguments.front() = "profile";
  return arguments;
}

std::int64_t sum_of(const json& bytes) {
  std::int64_t sum = 0;
  for (const auto& [name, value] : bytes.items()) {
    sum += value.get<std::int64_t>();
  }
  return sum;
}

TEST(ProfileProgram, ProfilesAutoWithinABudget) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const Outcome plain = work.reprise(profile_arguments({"--json"}));
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  const auto budget = json::parse(plain.out)["peak_bytes"].get<std::int64_t>() * 8 / 10;
  const Outcome outcome =
      work.reprise(profile_arguments({"--memory-budget", std::to_string(budget), "--json"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json document = json::parse(outcome.out);
  EXPECT_EQ(document["checkpointing"], "auto");
  EXPECT_LE(document["peak_bytes"].get<std::int64_t>(), budget);
}

TEST(ProfileProgram, AddsUpToThePeakAndWritesNothing) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const Outcome outcome =
      work.reprise(profile_arguments({"--checkpointing", "aggressive", "--json"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json document = json::parse(outcome.out);
  const auto peak = document["peak_bytes"].get<std::int64_t>();
  EXPECT_GT(peak, 0);
  EXPECT_EQ(document["at_peak"].size(), 7U);
  EXPECT_EQ(sum_of(document["at_peak"]), peak);
  EXPECT_EQ(sum_of(document["saved_by_layer"]), document["at_peak"]["saved_activations"]);
  for (const char* name : {"parameters", "optimizer_state", "batch_data"}) {
    EXPECT_GT(document["at_peak"][name].get<std::int64_t>(), 0) << name;
  }
  EXPECT_LE(document["start_bytes"].get<std::int64_t>(), peak);
  EXPECT_LE(document["average_bytes"].get<double>(), static_cast<double>(peak));
  EXPECT_THAT((std::vector<std::string>{"data", "forward", "backward", "optimizer"}),
              Contains(document["peak_phase"]));
  EXPECT_GT(document["plain_step_ms"].get<double>(), 0.0);
  EXPECT_GT(document["step_ms"].get<double>(), 0.0);
  EXPECT_EQ(document["batch_size"], 64);
  EXPECT_EQ(document["checkpointing"], "aggressive");
  EXPECT_EQ(document["threads"], 1);
  EXPECT_THAT(work.names(), ElementsAre("sales.csv"));
}

TEST(ProfileProgram, HasARowForEachLayer) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const Outcome outcome = work.reprise(
      profile_arguments({"--checkpointing", "minimal", "--checkpoint-layer", "gate=on", "--json"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  std::vector<std::string> recomputed;
  std::vector<std::string> names;
  const json document = json::parse(outcome.out);
  for (const json& layer : document["layers"]) {
    names.push_back(layer["name"]);
    if (layer["recomputed"]) {
      recomputed.push_back(names.back());
    }
    EXPECT_NE(layer["reason"], "") << names.back();
    EXPECT_EQ(layer["saved_bytes"].get<std::int64_t>(),
              layer["plain_bytes"].get<std::int64_t>() - layer["kept_bytes"].get<std::int64_t>());
    EXPECT_DOUBLE_EQ(layer["bytes_per_window"].get<double>() * 64,
                     layer["plain_bytes"].get<double>());
  }
  EXPECT_THAT(recomputed, ElementsAre("lstm_encoder", "lstm_decoder", "gate"));
  EXPECT_THAT(names, Contains("historical_vsn"));
  const auto lstm = std::find(names.begin(), names.end(), "lstm_encoder") - names.begin();
  EXPECT_GT(document["layers"][static_cast<std::size_t>(lstm)]["plain_bytes"].get<std::int64_t>(),
            0);
}

TEST(ProfileProgram, PrintsItsTables) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const Outcome outcome = work.reprise(profile_arguments({"--micro-batch-size", "16"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* text :
       {"Profile of sales.csv: encoder 12, horizon 4, hidden 4, batch 64 windows in passes of 16, "
        "checkpointing off, 1 thread\n",
        "MB per 1 % of the step", "temporal_attention", "memory at the peak", "optimizer state",
        "saved activations at the peak", "\nPeak ", "\nAverage ", "\nOutside ",
        "\nRefused  0 allocations\n", " ms without recomputation, "}) {
    EXPECT_THAT(outcome.out, HasSubstr(text));
  }
}

TEST(ProfileProgram, WritesATrace) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const Outcome outcome = work.reprise(profile_arguments({"--trace", "step.json", "--json"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["trace"], "step.json");
  EXPECT_THAT(outcome.err, HasSubstr("step.json: open it in https://ui.perfetto.dev"));
  const json trace = json::parse(work.read("step.json"));
  ASSERT_TRUE(trace["traceEvents"].is_array());
  EXPECT_GT(trace["traceEvents"].size(), 10U);
  EXPECT_THAT(work.names(), ElementsAre("sales.csv", "step.json"));
}

TEST(ProfileProgram, OverwritesNoInputAndNoFolder) {
  const WorkFolder work;
  const std::string table = sales_csv(2, 150);
  work.write("sales.csv", table);
  work.write("c.toml", "");
  std::filesystem::create_directory(work / "folder");
  std::filesystem::create_symlink("sales.csv", work / "link.json");
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"sales.csv", "is an input"},
      {"link.json", "is an input"},
      {"c.toml", "is an input"},
      {"folder", "is a folder"},
      {"/dev/null", "is no regular file"},
      {"nowhere/step.json", "lies in no folder that is there"}};
  for (const auto& [trace, why] : refused) {
    const Outcome outcome =
        work.reprise(profile_arguments({"--config", "c.toml", "--trace", trace}));
    EXPECT_EQ(outcome.exit_code, 2) << trace;
    EXPECT_EQ(error_count(outcome.err), 1U) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("--trace: " + trace + " " + why));
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_EQ(work.read("sales.csv"), table);
}

TEST(ProfileProgram, RefusesALayerThatTheModelDoesNotHave) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const Outcome outcome =
      work.reprise(profile_arguments({"--checkpoint-layer", "historical_encoder=on"}));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("no layer 'historical_encoder'"));
}

}  // namespace
}  // namespace reprise::testing
