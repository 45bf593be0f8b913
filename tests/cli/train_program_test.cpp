// SPDX-License-Identifier: Apache-2.0
// `reprise train`, `evaluate` and `predict` through the binary: files, output, exit codes,
// interrupts.
#include "program.h"

#include <sys/stat.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <csignal>
#include <sstream>
#include <thread>

namespace reprise::testing {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSubsetOf;

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(json::parse(line));
  }
  return lines;
}

TEST(TrainProgram, WritesARunFolder) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const Outcome outcome =
      work.reprise(train_arguments("sales.csv", {"--out", "run", "--seed", "5"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* text : {"seasonal naive (24)", "last value", "q-risk P50", "coverage P90 [%]",
                           "300 rows, 2 series", "parameters", "Run folder: run"}) {
    EXPECT_THAT(outcome.out, HasSubstr(text));
  }
  for (const char* name :
       {"config.toml", "schema.json", "model.safetensors", "metrics.jsonl", "summary.json"}) {
    EXPECT_TRUE(std::filesystem::exists(work / (std::string("run/") + name))) << name;
  }
  const json summary = json::parse(work.read("run/summary.json"));
  EXPECT_EQ(summary["status"], "finished");
  EXPECT_EQ(summary["seed"], 5);
  EXPECT_EQ(summary["tier"], "off");
  EXPECT_EQ(summary["data"]["file"], "sales.csv");
  EXPECT_EQ(summary["data"]["rows"], 300);
  EXPECT_GT(summary["peak_resident_bytes"].get<std::int64_t>(), 1 << 20);
  EXPECT_GT(summary["peak_bytes"].get<std::int64_t>(), 0);
  EXPECT_EQ(summary["micro_batch_size"], 64);
  EXPECT_FALSE(summary.contains("memory_budget_bytes"));
  EXPECT_EQ(summary["out_of_memory_events"], 0);
  EXPECT_EQ(summary["retries"], json::array());
  EXPECT_EQ(summary["scores"].size(), 3U);
  EXPECT_EQ(summary["scores"][0]["q_risk"].size(), 3U);

  std::int64_t steps = 0;
  std::int64_t evaluations = 0;
  for (const json& line : lines_of(work.read("run/metrics.jsonl"))) {
    steps += line.contains("train_loss") ? 1 : 0;
    evaluations += line.contains("valid_loss") ? 1 : 0;
  }
  EXPECT_EQ(steps, summary["steps"].get<std::int64_t>());
  EXPECT_GE(evaluations, 1);
}

TEST(TrainProgram, DoesTheSameAgainFromItsConfig) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  const Outcome first = work.reprise(
      train_arguments("sales.csv", {"--out", "run", "--normalize", "window", "--quantiles",
                                    "0.2,0.5,0.7", "--seed", "9", "--dropout", "0.2"}));
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const Outcome second = work.reprise({"train", "--config", "run/config.toml", "--out", "again"});
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_TRUE(work.read("run/model.safetensors") == work.read("again/model.safetensors"));
  EXPECT_EQ(work.read("run/config.toml"), work.read("again/config.toml"));
  EXPECT_EQ(work.read("run/schema.json"), work.read("again/schema.json"));
}

TEST(TrainProgram, TakesEveryFlag) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 200));
  const Outcome outcome = work.reprise({"train",
                                        "--parquet-file",
                                        "sales.csv",
                                        "--time",
                                        "time",
                                        "--id",
                                        "shop",
                                        "--target",
                                        "sales",
                                        "--observed",
                                        "price",
                                        "--no-infer",
                                        "--calendar",
                                        "hour,weekday",
                                        "--lags",
                                        "24",
                                        "--normalize",
                                        "global",
                                        "--encoder",
                                        "12",
                                        "--horizon",
                                        "4",
                                        "--train-until",
                                        "2024-01-05 00:00:00",
                                        "--valid-until",
                                        "2024-01-07 00:00:00",
                                        "--test-until",
                                        "2024-01-09 00:00:00",
                                        "--hidden",
                                        "4",
                                        "--heads",
                                        "2",
                                        "--lstm-layers",
                                        "2",
                                        "--dropout",
                                        "0",
                                        "--quantiles",
                                        "0.1,0.5,0.9",
                                        "--variable-width",
                                        "2",
                                        "--encoder-grn",
                                        "--checkpointing",
                                        "aggressive",
                                        "--checkpoint-layer",
                                        "gate=on",
                                        "--precision",
                                        "fp32",
                                        "--epochs",
                                        "2",
                                        "--batch-size",
                                        "32",
                                        "--micro-batch-size",
                                        "16",
                                        "--memory-budget",
                                        "2GB",
                                        "--lr",
                                        "0.002",
                                        "--schedule",
                                        "constant",
                                        "--clip-norm",
                                        "1",
                                        "--weight-decay",
                                        "0.01",
                                        "--average-decay",
                                        "0.9",
                                        "--patience",
                                        "2",
                                        "--max-steps",
                                        "3",
                                        "--validate-every",
                                        "2",
                                        "--loader-threads",
                                        "2",
                                        "--use-gradient-checkpointing",
                                        "--seed",
                                        "3",
                                        "--threads",
                                        "1",
                                        "--device",
                                        "cpu",
                                        "--out",
                                        "run"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json summary = json::parse(work.read("run/summary.json"));
  EXPECT_EQ(summary["steps"], 3);
  EXPECT_EQ(summary["tier"], "aggressive");
  EXPECT_EQ(summary["batch_size"], 32);
  EXPECT_EQ(summary["micro_batch_size"], 16);
  EXPECT_EQ(summary["memory_budget_bytes"], 2'000'000'000);
}

TEST(TrainProgram, PicksAFolderOfItsOwn) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(1, 150));
  const Outcome outcome = work.reprise(train_arguments("sales.csv", {"--max-steps", "1"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("Run folder: runs/sales-20"));
  EXPECT_THAT(work.names(), ElementsAre("runs", "sales.csv"));
}

TEST(TrainProgram, LeavesAFolderThatIsNotEmptyAlone) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(1, 150));
  std::filesystem::create_directory(work / "run");
  work.write("run/mine.txt", "keep");
  const Outcome outcome = work.reprise(train_arguments("sales.csv", {"--out", "run"}));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("run is not empty"));
  EXPECT_EQ(work.read("run/mine.txt"), "keep");
}

// Both find the folder empty; two runs in one would be neither.
TEST(TrainProgram, SharesNoFolderWithAnotherRun) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(1, 150));
  std::vector<std::thread> threads;
  std::vector<Outcome> outcomes(3);
  for (Outcome& outcome : outcomes) {
    threads.emplace_back(
        [&] { outcome = work.reprise(train_arguments("sales.csv", {"--out", "run"})); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::vector<int> codes;
  for (const Outcome& outcome : outcomes) {
    codes.push_back(outcome.exit_code);
  }
  EXPECT_THAT(codes, ::testing::UnorderedElementsAre(0, 2, 2));
}

TEST(TrainProgram, LeavesNoModelOfATrainingThatDiverged) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(1, 150));
  const Outcome outcome = work.reprise(train_arguments(
      "sales.csv", {"--out", "run", "--lr", "1e30", "--schedule", "constant", "--clip-norm", "0"}));
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("is not finite"));
  EXPECT_THAT(outcome.err, HasSubstr("no weights are saved"));
  EXPECT_FALSE(std::filesystem::exists(work / "run/model.safetensors"));
  EXPECT_EQ(json::parse(work.read("run/summary.json"))["status"], "interrupted");
}

TEST(TrainProgram, SaysThatStdoutIsFull) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(1, 150));
  const Outcome outcome = work.run(
      "/bin/sh", {"-c", "exec \"$0\" inspect sales.csv --json > /dev/full", REPRISE_PROGRAM});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("stdout cannot be written"));
}

TEST(TrainProgram, PrintsIntoNoFileOfItsOwnWhenStdoutIsClosed) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(1, 150));
  std::vector<std::string> arguments = {"-c", "exec \"$0\" \"$@\" >&- 2>&- <&-", REPRISE_PROGRAM};
  for (const std::string& argument : train_arguments("sales.csv", {"--out", "run"})) {
    arguments.push_back(argument);
  }
  EXPECT_EQ(work.run("/bin/sh", arguments).exit_code, 0);
  std::istringstream lines(work.read("run/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(json::accept(line)) << line;
  }
}

// Waits until the run has trained some steps; gives up after a minute.
void wait_for_metrics(const WorkFolder& work) {
  for (int i = 0; i < 600 && work.read("run/metrics.jsonl").empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

class InterruptedTrainProgram : public ::testing::TestWithParam<int> {};

TEST_P(InterruptedTrainProgram, SavesWhatItHasAndExits130) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 300));
  const Outcome outcome = work.reprise(
      train_arguments("sales.csv",
                      {"--out", "run", "--epochs", "100000", "--patience", "100000", "--json"}),
      [&](pid_t process) {
        wait_for_metrics(work);
        kill(process, GetParam());
      });
  EXPECT_EQ(outcome.exit_code, 130) << outcome.err;
  EXPECT_EQ(json::parse(work.read("run/summary.json"))["status"], "interrupted");
  EXPECT_EQ(json::parse(outcome.out)["status"], "interrupted");
  EXPECT_THAT(outcome.err, HasSubstr("the weights are saved"));
  const Outcome evaluation = work.reprise({"evaluate", "run", "--parquet-file", "sales.csv"});
  EXPECT_EQ(evaluation.exit_code, 0) << evaluation.err;
}

INSTANTIATE_TEST_SUITE_P(Signals, InterruptedTrainProgram, ::testing::Values(SIGINT, SIGTERM));

TEST(FailedTrainProgram, SaysWhatFailedAndSavesNoBrokenWeights) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 150));
  // One step of this size, and every weight has left all bounds: no evaluation is finite.
  const Outcome outcome = work.reprise(
      train_arguments("sales.csv", {"--out", "run", "--epochs", "20", "--lr", "1e30", "--schedule",
                                    "constant", "--clip-norm", "0", "--validate-every", "1"}));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("\nerror: train: the loss "));
  EXPECT_THAT(outcome.err, HasSubstr("no weights are saved"));
  EXPECT_FALSE(std::filesystem::exists(work / "run/model.safetensors"));
  const json summary = json::parse(work.read("run/summary.json"));
  EXPECT_EQ(summary["status"], "interrupted");
  EXPECT_THAT(summary["stop_reason"].get<std::string>(), HasSubstr("the loss "));
  EXPECT_EQ(summary["scores"].size(), 0U);
}

TEST(EvaluateProgram, ScoresTestAndValidationRows) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 200));
  ASSERT_EQ(work.reprise(train_arguments("sales.csv", {"--out", "run"})).exit_code, 0);
  const Outcome test = work.reprise({"evaluate", "run", "--parquet-file", "sales.csv", "--json"});
  ASSERT_EQ(test.exit_code, 0) << test.err;
  const json document = json::parse(test.out);
  EXPECT_EQ(document["stride"], 4);
  // The same windows, model and baselines as at the end of training.
  EXPECT_EQ(document["scores"], json::parse(work.read("run/summary.json"))["scores"]);

  const Outcome valid = work.reprise({"evaluate", "run", "--parquet-file", "sales.csv", "--split",
                                      "valid", "--stride", "1", "--json"});
  ASSERT_EQ(valid.exit_code, 0) << valid.err;
  EXPECT_GT(json::parse(valid.out)["windows"].get<int>(), document["windows"].get<int>());
}

TEST(EvaluateProgram, NamesTheRunItCannotRead) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(1, 150));
  const Outcome outcome = work.reprise({"evaluate", "nowhere", "--parquet-file", "sales.csv"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("nowhere"));
}

// 200 rows of two shops, and four more of each whose sales are not known yet.
std::string sales_with_future() {
  std::string future = sales_csv(2, 200);
  for (const char* shop : {"s0", "s1"}) {
    for (int hour = 8; hour < 12; ++hour) {  // 200 rows end at hour 7 of the 9th: 200 = 8 * 24 + 8
      future += std::string(shop) + ",2024-01-09 " + (hour < 10 ? "0" : "") + std::to_string(hour) +
                ":00:00,,1.2\n";
    }
  }
  return future;
}

TEST(PredictProgram, WritesOneForecastPerSeries) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 200));
  work.write("future.csv", sales_with_future());
  ASSERT_EQ(work.reprise(train_arguments("sales.csv", {"--out", "run"})).exit_code, 0);
  const Outcome outcome = work.reprise(
      {"predict", "run", "--parquet-file", "future.csv", "--out", "f.parquet", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["windows"], 2);
  const Outcome inspected = work.reprise({"inspect", "f.parquet", "--json"});
  ASSERT_EQ(inspected.exit_code, 0) << inspected.err;
  const json columns = json::parse(inspected.out)["columns"];
  EXPECT_EQ(json::parse(inspected.out)["rows"], 8);  // 2 series * 4 steps
  std::vector<std::string> names;
  for (const json& column : columns) {
    names.push_back(column["name"]);
  }
  EXPECT_THAT(names, Contains("shop"));
}

TEST(PredictProgram, OverwritesNeitherTheTableNorTheRunNorADevice) {
  const WorkFolder work;
  const std::string table = sales_with_future();
  work.write("sales.csv", table);
  ASSERT_EQ(work.reprise(train_arguments("sales.csv", {"--out", "run"})).exit_code, 0);
  const std::string model = work.read("run/model.safetensors");
  std::filesystem::create_symlink("sales.csv", work / "link.csv");
  for (const char* out : {"sales.csv", "./run/../sales.csv", "link.csv", "run/model.safetensors"}) {
    const Outcome outcome =
        work.reprise({"predict", "run", "--parquet-file", "sales.csv", "--out", out});
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("name another file"));
  }
  EXPECT_EQ(work.read("sales.csv"), table);
  EXPECT_EQ(work.read("run/model.safetensors"), model);
  ASSERT_EQ(mkfifo((work / "pipe").c_str(), 0600), 0);
  const Outcome outcome =
      work.reprise({"predict", "run", "--parquet-file", "sales.csv", "--out", "pipe"});
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("no regular file"));
  EXPECT_TRUE(std::filesystem::is_fifo(work / "pipe"));
}

TEST(PredictProgram, KeepsALinkAndReplacesWhatItPointsTo) {
  const WorkFolder work;
  work.write("sales.csv", sales_with_future());
  work.write("old.parquet", "old");
  std::filesystem::create_symlink("old.parquet", work / "f.parquet");
  ASSERT_EQ(work.reprise(train_arguments("sales.csv", {"--out", "run"})).exit_code, 0);
  const Outcome outcome =
      work.reprise({"predict", "run", "--parquet-file", "sales.csv", "--out", "f.parquet"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(std::filesystem::is_symlink(work / "f.parquet"));
  EXPECT_EQ(work.read("old.parquet").substr(0, 4), "PAR1");
}

TEST(DemoProgram, ScoresTheProtocolsWindowsBesideBaselines) {
  const WorkFolder work;
  const Outcome outcome =
      work.reprise({"demo", "--max-steps", "1", "--threads", "1", "--out", "run", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json document = json::parse(outcome.out);
  EXPECT_EQ(document["data"]["rows"], 17420);
  EXPECT_EQ(document["data"]["series"], 7);
  EXPECT_EQ(document["data"]["test_windows"], 840);  // 7 columns * 2,880 test hours / 24
  EXPECT_EQ(document["scores"].size(), 3U);
  EXPECT_TRUE(std::filesystem::exists(work / "run/ETTh1.parquet"));
  EXPECT_THAT(outcome.err, HasSubstr("Run folder: run"));
}

TEST(DemoProgram, LeavesNothingBehindWhenItsDataCannotBeRead) {
  const WorkFolder work;
  work.write("ETTh1.csv", "date,OT\n2016-07-01 00:00:00,1.0\n");
  const Outcome outcome = work.reprise({"demo", "--data", "ETTh1.csv", "--out", "run"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("HUFL"));
  EXPECT_THAT(work.names(), ElementsAre("ETTh1.csv"));
}

}  // namespace
}  // namespace reprise::testing
