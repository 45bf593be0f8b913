// SPDX-License-Identifier: Apache-2.0
// `reprise plan` through the binary: which batches it names, and that they are right.
#include "program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace reprise::testing {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> plan_arguments(const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = train_arguments("sales.csv", more);
  arguments.front() = "plan";
  return arguments;
}

json plan(const WorkFolder& work, std::vector<std::string> more) {
  more.emplace_back("--json");
  const Outcome outcome = work.reprise(plan_arguments(more));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return json::parse(outcome.out);
}

std::vector<std::string> texts(const json& list, const char* key) {
  std::vector<std::string> texts;
  for (const json& entry : list) {
    texts.push_back(entry[key]);
  }
  return texts;
}

TEST(PlanProgram, NamesTheLargestBatchOfEachDeviceAndTier) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const json document = plan(work, {"--device-memory", "8GB,512MiB", "--memory-budget", "5MB"});
  EXPECT_THAT(texts(document["devices"], "device"),
              ElementsAre("4 GB", "12 GB", "24 GB", "48 GB", "8GB", "512MiB", "the budget",
                          "this machine"));
  EXPECT_EQ(document["devices"][0]["usable_bytes"], 3'700'000'000);
  EXPECT_EQ(document["devices"][5]["usable_bytes"], 536'870'912);
  EXPECT_EQ(document["devices"][6]["usable_bytes"], 5'000'000);
  EXPECT_EQ(document["wanted_batch"], 64);
  EXPECT_THAT(texts(document["tiers"], "tier"), ElementsAre("off", "minimal", "aggressive"));
  for (const json& device : document["devices"]) {
    int recommended = 0;
    for (const json& choice : device["choices"]) {
      EXPECT_LE(choice["total_bytes"].get<std::int64_t>(), device["usable_bytes"]);
      EXPECT_EQ(
          choice["headroom_bytes"].get<std::int64_t>(),
          device["usable_bytes"].get<std::int64_t>() - choice["total_bytes"].get<std::int64_t>());
      recommended += choice["recommended"] ? 1 : 0;
    }
    EXPECT_EQ(recommended, 1) << device["device"];
    EXPECT_NE(device["recommendation"], "");
  }
  EXPECT_FALSE(document.contains("checks"));
  EXPECT_THAT(work.names(), ElementsAre("sales.csv"));
}

TEST(PlanProgram, PrintsItsTables) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const Outcome outcome = work.reprise(plan_arguments({"--batch-size", "auto"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* text :
       {"Peak memory of all tensors of a training on sales.csv", "largest batch", "headroom [MB]",
        "this machine", "\nFor batches of 64 windows\n  4 GB: batch 64 fits ",
        "training windows: a larger batch takes no more than those",
        "This machine: what can be had now, less 5 %\n"}) {
    EXPECT_THAT(outcome.out, HasSubstr(text));
  }
}

TEST(PlanProgram, PlansForThePassesOfMicroBatches) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  EXPECT_EQ(plan(work, {"--micro-batch-size", "16"})["wanted_batch"], 16);
}

// A device on which some 30 windows fit.
std::string small_device(const WorkFolder& work) {
  const json choices = plan(work, {"--batch-size", "30"})["devices"][0]["choices"];
  return std::to_string(choices[0]["wanted_bytes"].get<std::int64_t>()) + "B";
}

TEST(PlanProgram, FindsByRunningWhatItForetold) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const std::string device = small_device(work);
  const json document = plan(work, {"--device-memory", device, "--check"});
  const json& small = document["devices"][4];
  const auto usable = small["usable_bytes"].get<std::int64_t>();
  ASSERT_EQ(std::to_string(usable) + "B", device);
  int found = 0;
  for (const json& check : document["checks"]) {
    if (check["device"] != small["device"]) {
      continue;
    }
    EXPECT_EQ(check["is_all_windows"], false);
    EXPECT_NEAR(check["foretold_batch"].get<double>(), check["largest_batch"].get<double>(), 2.0);
    EXPECT_LE(check["peak_bytes"].get<std::int64_t>(), usable);
    EXPECT_EQ(small["choices"][static_cast<std::size_t>(found)]["largest_batch"],
              check["largest_batch"]);
    ++found;
  }
  EXPECT_EQ(found, 3);
}

TEST(PlanProgram, SaysWhatItRanAndWhatItDidNot) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const Outcome outcome =
      work.reprise(plan_arguments({"--device-memory", "1kB,1000TB", "--check"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* text : {"\nRun here, two steps of each batch within the bytes of the device\n",
                           "  1kB, off: not even one window fits, as foretold\n",
                           "  1000TB, aggressive: not run: tensors can have ",
                           "training windows fit, as foretold\n"}) {
    EXPECT_THAT(outcome.out, HasSubstr(text));
  }
  EXPECT_THAT(outcome.out, HasSubstr("  1kB: not even one sample fits: "));
  EXPECT_THAT(work.names(), ElementsAre("sales.csv"));
}

TEST(PlanProgram, RefusesADeviceWhoseTensorsItCannotCount) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const Outcome outcome = work.reprise(plan_arguments({"--device", "cuda:0"}));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--device"));
}

}  // namespace
}  // namespace reprise::testing
