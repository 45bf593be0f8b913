// SPDX-License-Identifier: Apache-2.0
// Training within a memory budget through the binary: retries, refusals, and batch sizes that the
// program chooses.
#include "program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <regex>
#include <sstream>

namespace reprise::testing {
namespace {

using nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A model whose tiers differ in memory, on a table of 2 * 150 rows.
std::vector<std::string> arguments(const std::string& command, std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--hidden", "16", "--encoder-grn"});
  std::vector<std::string> all = train_arguments("sales.csv", more);
  all.front() = command;
  return all;
}

json plan(const WorkFolder& work, std::vector<std::string> more = {}) {
  more.emplace_back("--json");
  const Outcome outcome = work.reprise(arguments("plan", more));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return json::parse(outcome.out);
}

// Bytes that training takes at batch 64 in each tier: off, minimal, aggressive.
std::vector<std::int64_t> tier_bytes(const WorkFolder& work) {
  std::vector<std::int64_t> bytes;
  const json document = plan(work);
  for (const json& choice : document["devices"][0]["choices"]) {
    bytes.push_back(choice["wanted_bytes"]);
  }
  return bytes;
}

std::vector<json> lines_with(const std::string& text, const char* key) {
  std::vector<json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const json document = json::parse(line);
    if (document.contains(key)) {
      lines.push_back(document);
    }
  }
  return lines;
}

TEST(TrainProgram, RecomputesMoreWhereAStepDoesNotFitItsBudget) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const std::vector<std::int64_t> bytes = tier_bytes(work);
  ASSERT_LT(bytes[2], bytes[0]);
  const std::int64_t budget = (bytes[0] + bytes[2]) / 2;
  const Outcome outcome =
      work.reprise(arguments("train", {"--out", "run", "--memory-budget", std::to_string(budget),
                                       "--checkpointing", "off", "--max-steps", "3"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("warning: step 1 did not fit into the budget of "));
  EXPECT_THAT(outcome.err, HasSubstr("started again with --checkpointing auto"));
  EXPECT_THAT(outcome.err, HasSubstr(", as are all steps after it\n"));
  EXPECT_THAT(outcome.out, ContainsRegex("checkpointing off, memory budget [0-9.]+ (MB|bytes)"));
  EXPECT_THAT(outcome.out, ContainsRegex("peak [0-9.]+ (MB|bytes) of tensors \\(budget "));
  EXPECT_THAT(work.read("run/config.toml"), HasSubstr("checkpointing = \"off\"\n"));

  const json summary = json::parse(work.read("run/summary.json"));
  EXPECT_EQ(summary["status"], "finished");
  EXPECT_EQ(summary["memory_budget_bytes"], budget);
  EXPECT_LE(summary["peak_bytes"].get<std::int64_t>(), budget);
  EXPECT_GE(summary["out_of_memory_events"].get<int>(), 1);
  EXPECT_EQ(summary["scores"].size(), 3U);
  const json& retries = summary["retries"];
  ASSERT_FALSE(retries.empty());
  EXPECT_EQ(retries[0]["step"], 1);
  EXPECT_EQ(retries[0]["checkpointing"], "auto");
  EXPECT_GT(retries[0]["needed_bytes"].get<std::int64_t>(), budget);
  EXPECT_EQ(summary["tier"], retries.back()["checkpointing"]);
  EXPECT_EQ(summary["micro_batch_size"], retries.back()["micro_batch_size"]);

  const std::vector<json> lines = lines_with(work.read("run/metrics.jsonl"), "retry");
  ASSERT_EQ(lines.size(), retries.size());
  EXPECT_EQ(lines[0]["step"], 1);
  EXPECT_EQ(lines[0]["retry"]["checkpointing"], "auto");
}

TEST(TrainProgram, DecidesOperatorByOperatorWithinItsBudget) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const std::vector<std::int64_t> bytes = tier_bytes(work);
  const Outcome outcome = work.reprise(arguments(
      "train", {"--out", "run", "--memory-budget", std::to_string(bytes[2]), "--max-steps", "4"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, ContainsRegex("Recomputed [0-9.]+ operators a step, [0-9.]+ ms; last "
                                         "planned step: foretold peak [0-9,]+ bytes, measured "));
  EXPECT_THAT(work.read("run/config.toml"), HasSubstr("checkpointing = \"auto\"\n"));
  const json summary = json::parse(work.read("run/summary.json"));
  EXPECT_EQ(summary["tier"], "auto");
  EXPECT_EQ(summary["retries"], json::array());
  EXPECT_LE(summary["peak_bytes"].get<std::int64_t>(), bytes[2]);
  const json& rematerializer = summary["rematerializer"];
  EXPECT_EQ(rematerializer["steps"], summary["steps"]);
  EXPECT_GT(rematerializer["replayed_operations"].get<int>(), 0);
  EXPECT_EQ(rematerializer["predicted_peak_bytes"], rematerializer["measured_peak_bytes"]);
  const json saved_plan = json::parse(work.read("run/plan.json"));
  EXPECT_EQ(saved_plan["hash"], summary["plan_hash"]);
  EXPECT_EQ(saved_plan["budget_bytes"], bytes[2]);
  EXPECT_FALSE(saved_plan["actions"].empty());

  // The same weights as without a budget.
  const Outcome plain = work.reprise(arguments("train", {"--out", "plain", "--max-steps", "4"}));
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_EQ(work.read("run/model.safetensors"), work.read("plain/model.safetensors"));
}

TEST(PlanProgram, ShowsWhatAutoMakesOfABudget) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const json free = plan(work)["auto"];
  const auto least = free["curve"].front()["budget_bytes"].get<std::int64_t>();
  const auto most = free["curve"].back()["budget_bytes"].get<std::int64_t>();
  ASSERT_LT(least, most);
  EXPECT_EQ(free["curve"].back()["replay_ms"], 0.0);
  EXPECT_EQ(free["budget_bytes"], least + (most - least) / 2);
  EXPECT_EQ(free["fits"], true);

  const json within = plan(work, {"--memory-budget", std::to_string(least + 1000)})["auto"];
  EXPECT_LE(within["predicted_peak_bytes"].get<std::int64_t>(), least + 1000);
  std::int64_t replayed = 0;
  for (const json& layer : within["layers"]) replayed += layer["replayed_operations"].get<int>();
  EXPECT_EQ(replayed, within["replayed_operations"]);
  EXPECT_GT(replayed, free["replayed_operations"]);

  const Outcome outcome = work.reprise(arguments("plan", {"--memory-budget", "10kB"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              ContainsRegex("No schedule fits into 10,?000 bytes: the smallest budget"));
  EXPECT_THAT(outcome.out,
              ContainsRegex("historical_vsn +[0-9]+ +[0-9.]+ +[0-9.]+ +[0-9,]+ +[0-9.]+\n"));
}

enum class Ending { kBeforeTheRun, kFailed, kFinished };

// Trains with that much address space, and checks what is left behind.
Ending train_in_address_space(const WorkFolder& work, int megabytes) {
  const std::string run = "run" + std::to_string(megabytes);
  const std::string command =
      "ulimit -v " + std::to_string(megabytes * 1000) +
      " && exec " REPRISE_PROGRAM
      " train --parquet-file sales.csv --target sales --encoder 48 --horizon 12 --hidden 64 "
      "--threads 1 --loader-threads 0 --batch-size 256 --validate-every 1 --max-steps 3 "
      "--epochs 9 --out " +
      run;
  const Outcome outcome = work.run("/bin/sh", {"-c", command});
  // Before that the table was read, and the libraries loaded.
  if (!std::filesystem::exists(work / (run + "/config.toml"))) return Ending::kBeforeTheRun;
  EXPECT_TRUE(outcome.exit_code == 0 || outcome.exit_code == 1) << outcome.err;
  EXPECT_THAT(work.read(run + "/config.toml"), HasSubstr("hidden = 64"));
  lines_with(work.read(run + "/metrics.jsonl"), "step");  // throws where a line is cut
  const std::string summary_text = work.read(run + "/summary.json");
  EXPECT_TRUE(json::accept(summary_text)) << summary_text << outcome.err;
  if (outcome.exit_code == 0 || !json::accept(summary_text)) return Ending::kFinished;
  EXPECT_EQ(error_count(outcome.err), 1U) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("memory"));
  EXPECT_EQ(json::parse(summary_text)["status"], "interrupted");
  return Ending::kFailed;
}

// How much the libraries take differs from start to start, so none of the limits between has to end
// in a certain way.
TEST(TrainProgram, LeavesWholeFilesWhereTheSystemHasNoMemory) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer needs all of the address space";
#endif
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 400));
  EXPECT_EQ(train_in_address_space(work, 300), Ending::kBeforeTheRun);
  for (int megabytes = 500; megabytes <= 1000; megabytes += 50) {
    SCOPED_TRACE(megabytes);
    train_in_address_space(work, megabytes);
  }
  EXPECT_EQ(train_in_address_space(work, 4000), Ending::kFinished);
}

TEST(TrainProgram, SaysWhatItNeedsWhereNothingFitsItsBudget) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const Outcome outcome =
      work.reprise(arguments("train", {"--out", "run", "--memory-budget", "200kB"}));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(error_count(outcome.err), 1U) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("error: train: 200000 bytes of memory are not enough"));
  EXPECT_THAT(outcome.err, HasSubstr("no weights are saved"));
  const json summary = json::parse(work.read("run/summary.json"));
  EXPECT_EQ(summary["status"], "interrupted");
  EXPECT_EQ(summary["steps"], 0);
  EXPECT_EQ(summary["scores"], json::array());
  EXPECT_FALSE(std::filesystem::exists(work / "run/model.safetensors"));
  EXPECT_THAT(lines_with(work.read("run/metrics.jsonl"), "train_loss"), IsEmpty());

  // The budget that the message names is enough.
  std::smatch named;
  ASSERT_TRUE(std::regex_search(outcome.err, named, std::regex("memory_budget = ([0-9]+)")));
  const Outcome second = work.reprise(
      arguments("train", {"--out", "again", "--memory-budget", named[1], "--max-steps", "1"}));
  ASSERT_EQ(second.exit_code, 0) << second.err;
  const json again = json::parse(work.read("again/summary.json"));
  EXPECT_LE(again["peak_bytes"].get<std::int64_t>(), std::stoll(named[1]));
  EXPECT_EQ(again["tier"], "auto");
  EXPECT_EQ(again["micro_batch_size"], 1);
}

TEST(TrainProgram, AddsUpTheGradientsOfMicroBatches) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const Outcome outcome = work.reprise(
      arguments("train", {"--out", "run", "--micro-batch-size", "16", "--max-steps", "1"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json summary = json::parse(work.read("run/summary.json"));
  EXPECT_EQ(summary["batch_size"], 64);
  EXPECT_EQ(summary["micro_batch_size"], 16);
  EXPECT_EQ(summary["steps"], 1);
}

TEST(TrainProgram, ChoosesABatchSizeThatLeavesAnEpochTwentySteps) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const Outcome outcome =
      work.reprise(arguments("train", {"--out", "run", "--batch-size", "auto"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("limited by 20 steps an epoch"));
  const json summary = json::parse(work.read("run/summary.json"));
  const auto windows = summary["data"]["train_windows"].get<std::int64_t>();
  EXPECT_EQ(summary["batch_size"], windows / 20);
  EXPECT_GE(summary["steps"].get<int>(), 20);
  EXPECT_THAT(work.read("run/config.toml"),
              HasSubstr("\nbatch_size = " + std::to_string(windows / 20) + "\n"));
}

TEST(TrainProgram, ChoosesABatchSizeThatFitsItsBudget) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const json choices = plan(work, {"--batch-size", "4"})["devices"][0]["choices"];
  const auto budget = choices[0]["wanted_bytes"].get<std::int64_t>() +
                      choices[0]["bytes_per_window"].get<std::int64_t>() / 2;
  const Outcome outcome =
      work.reprise(arguments("train", {"--out", "run", "--batch-size", "auto", "--memory-budget",
                                       std::to_string(budget), "--max-steps", "3"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(", limited by memory (measured peak "));
  const json summary = json::parse(work.read("run/summary.json"));
  EXPECT_NEAR(summary["batch_size"].get<double>(), 4.0, 1.0);
  EXPECT_LE(summary["peak_bytes"].get<std::int64_t>(), budget);
  EXPECT_EQ(summary["retries"], json::array());
  EXPECT_EQ(summary["tier"], "off");
}

TEST(TrainProgram, SaysWhatOneWindowNeedsWhereNoBatchFits) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const Outcome outcome = work.reprise(
      arguments("train", {"--out", "run", "--batch-size", "auto", "--memory-budget", "1kB"}));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(error_count(outcome.err), 1U) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("not even one window fits: a step of one needs "));
  EXPECT_THAT(outcome.err, HasSubstr("the budget is 1000 bytes"));
  EXPECT_THAT(work.names(), ::testing::ElementsAre("sales.csv"));
}

TEST(VerifyProgram, ComparesThePassesOfMicroBatchesWithinABudget) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const Outcome outcome =
      work.reprise(arguments("verify", {"--micro-batch-size", "8", "--memory-budget", "1GB",
                                        "--checkpointing", "aggressive", "--json"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["windows"], 8);
  const Outcome refused = work.reprise(arguments("verify", {"--memory-budget", "1MB"}));
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_EQ(error_count(refused.err), 1U) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("budget is 1.0 MB"));
}

TEST(InspectProgram, ShowsTheBudgetOfAConfig) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  work.write("c.toml",
             "target = 'sales'\nencoder = 12\nhorizon = 4\nmemory_budget = '600MB'\n"
             "batch_size = 'auto'\n");
  const Outcome outcome = work.reprise({"inspect", "sales.csv", "--config", "c.toml"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("checkpointing off, memory budget 600.0 MB\n"));
  const Outcome plain = work.reprise(
      {"inspect", "sales.csv", "--target", "sales", "--encoder", "12", "--horizon", "4"});
  EXPECT_THAT(plain.out, Not(HasSubstr("budget")));
}

}  // namespace
}  // namespace reprise::testing
