// SPDX-License-Identifier: Apache-2.0
// What the program can be told about memory: sizes, batch sizes; and what it says of retries.
#include "batch_choice.h"
#include "commands.h"
#include "config.h"
#include "reprise/errors.h"
#include "retries.h"
#include "tests/testing.h"

#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>

namespace reprise {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::Not;

// What the flags and a configuration file make of the settings.
Settings parse(std::vector<const char*> arguments) {
  Settings settings;
  const Program program = {.name = "reprise",
                           .summary = "test",
                           .commands = {train_command(settings), profile_command(settings),
                                        plan_command(settings), verify_command(settings)}};
  arguments.insert(arguments.begin(), "reprise");
  parse_command_line(program, settings, static_cast<int>(arguments.size()), arguments.data());
  return settings;
}

std::string parse_error(const std::vector<const char*>& arguments) {
  return error_of([&] { parse(arguments); });
}

std::vector<std::string> field_names(const Command& command) {
  std::vector<std::string> names;
  for (const Field& field : command.fields) {
    names.push_back(field.name);
  }
  return names;
}

TEST(MemoryBudgetFlag, IsTakenByEveryCommandThatTrains) {
  for (const char* command : {"train", "profile", "plan", "verify"}) {
    const Settings settings = parse(
        {command, "--parquet-file", "t", "--memory-budget", "1.5GB", "--micro-batch-size", "32"});
    EXPECT_EQ(settings.train.memory_budget_bytes, 1'500'000'000);
    EXPECT_EQ(settings.train.micro_batch_size, 32);
  }
}

TEST(MemoryBudgetFlag, SaysWhichSizesThereAre) {
  EXPECT_EQ(parse_error({"train", "--parquet-file", "t", "--memory-budget", "2 Gb/s"}),
            "--memory-budget: '2 Gb/s' is not a size of memory: write bytes, or a number with B, "
            "kB, MB, GB, TB (of 1000), KiB, MiB, GiB or TiB (of 1024), such as 512MiB or 1.5GB; at "
            "least 1 byte and below 2^63");
}

TEST(DeviceMemoryFlag, IsAListOfSizes) {
  const Settings settings = parse({"plan", "--parquet-file", "t", "--device-memory", "8GB, 512MiB",
                                   "--device-memory", "7", "--check"});
  EXPECT_THAT(settings.device_memory, ElementsAre(8'000'000'000, 536'870'912, 7));
  EXPECT_TRUE(settings.checks_batches);
}

TEST(PlanAndProfile, TakeTheFlagsOfTrainAndTheirOwn) {
  Settings settings;
  std::vector<std::string> train = field_names(train_command(settings));
  std::erase(train, "out");
  std::vector<std::string> profile = train;
  profile.emplace_back("trace");
  EXPECT_EQ(field_names(profile_command(settings)), profile);
  std::vector<std::string> plan = train;
  plan.emplace_back("device_memory");
  plan.emplace_back("check");
  EXPECT_EQ(field_names(plan_command(settings)), plan);
  EXPECT_THAT(parse_error({"train", "--parquet-file", "t", "--check"}),
              HasSubstr("unknown option '--check'"));
}

TEST(BatchSizeFlag, IsANumberOrAuto) {
  EXPECT_EQ(parse({"train", "--parquet-file", "t", "--batch-size", "auto"}).train.batch_size, 0);
  EXPECT_EQ(parse({"train", "--parquet-file", "t", "--batch-size", "17"}).train.batch_size, 17);
  for (const char* text : {"0", "-0", "-1", "Auto", "many", "1.5"}) {
    const std::string argument = std::string("--batch-size=") + text;
    EXPECT_THAT(parse_error({"train", "--parquet-file", "t", argument.c_str()}),
                HasSubstr("is neither a whole number of at least 1 nor auto"))
        << text;
  }
}

Settings read_text(const std::string& text) {
  Settings settings;
  const std::filesystem::path file = std::filesystem::temp_directory_path() /
                                     ("reprise-sizes-" + std::to_string(getpid()) + ".toml");
  std::ofstream(file) << text;
  const std::string error = error_of([&] { read_config(file, run_fields(settings), {}); });
  std::filesystem::remove(file);
  EXPECT_EQ(error, "");
  return settings;
}

TEST(ReadConfig, TakesTheSizesThatFlagsTake) {
  EXPECT_EQ(read_text("memory_budget = \"1.5GiB\"\n").train.memory_budget_bytes, 1'610'612'736);
  EXPECT_EQ(read_text("memory_budget = 500000000\n").train.memory_budget_bytes, 500'000'000);
  EXPECT_EQ(read_text("batch_size = \"auto\"\n").train.batch_size, 0);
  EXPECT_EQ(read_text("batch_size = 3\n").train.batch_size, 3);
}

TEST(ConfigText, KeepsBudgetAndBatchSize) {
  Settings written;
  written.train.memory_budget_bytes = 123'456'789;
  written.train.micro_batch_size = 8;
  written.train.batch_size = 0;
  const std::string text = config_text(run_fields(written));
  EXPECT_THAT(text, HasSubstr("\nbatch_size = \"auto\"\nmicro_batch_size = 8\n"
                              "memory_budget = \"123456789B\"\n"));
  const Settings read = read_text(text);
  EXPECT_EQ(read.train.memory_budget_bytes, 123'456'789);
  EXPECT_EQ(read.train.micro_batch_size, 8);
  EXPECT_EQ(read.train.batch_size, 0);
  written.train = TrainOptions{};
  EXPECT_THAT(config_text(run_fields(written)), HasSubstr("\nbatch_size = 64\n"));
  EXPECT_THAT(config_text(run_fields(written)), Not(HasSubstr("memory_budget")));
}

TEST(Settle, LeavesABatchSizeThatIsToBeChosen) {
  Settings settings;
  settings.train.batch_size = 0;
  settle(settings);
  EXPECT_EQ(settings.train.batch_size, 0);
}

TEST(Settle, RefusesToChooseTheBatchSizeOfADeviceOrOfMicroBatches) {
  Settings settings;
  settings.train.batch_size = 0;
  settings.train.device = "cuda";
  EXPECT_THAT(error_of([&] { settle(settings); }), HasSubstr("not on cuda; use --device cpu"));
  settings.train.device = "cpu";
  settings.train.micro_batch_size = 8;
  EXPECT_THAT(error_of([&] { settle(settings); }),
              HasSubstr("--micro-batch-size: has no meaning with --batch-size auto"));
}

TEST(MostWindows, LeaveAnEpochTwentySteps) {
  EXPECT_EQ(most_windows(200), 10);
  EXPECT_EQ(most_windows(199), 9);  // 10 would be 19.9 steps
  EXPECT_EQ(most_windows(3), 1);
  EXPECT_EQ(most_windows(std::int64_t{1} << 40), PeakModel::kMostSamples);
}

TEST(BatchSizeText, SaysWhatLimitsTheBatch) {
  const MemoryLimit limit = {600'000'000, "the budget"};
  EXPECT_EQ(batch_size_text({.batch_size = 128, .peak_bytes = 599'000'000}, 17'000, limit),
            "Batch size: 128 windows, limited by memory (measured peak 599.0 MB; the budget is "
            "600.0 MB)\n");
  EXPECT_EQ(
      batch_size_text({.batch_size = 1, .peak_bytes = 2'000'000, .is_limited_by_most = true}, 25,
                      limit),
      "Batch size: 1 window, limited by 20 steps an epoch, which has 25 windows (measured peak 2.0 "
      "MB; the budget is 600.0 MB)\n");
}

TEST(NoWindowFits, SaysWhatOneNeedsAndHowToAllowIt) {
  const BudgetError error = no_window_fits(7'040, {7'039, "the budget"});
  EXPECT_EQ(error.needed_bytes(), 7'040);
  EXPECT_EQ(error.allowed_bytes(), 7'039);
  EXPECT_THAT(error.what(),
              HasSubstr("a step of one needs at least 7040 bytes, and the budget is 7039 "
                        "bytes"));
  EXPECT_THAT(error.what(), HasSubstr("(--memory-budget 7040B)"));
}

TEST(MemoryLimit, IsTheBudgetOrMostOfWhatThereIs) {
  TrainOptions options;
  const MemoryLimit available = memory_limit(options);
  EXPECT_GT(available.bytes, 1'000'000);
  EXPECT_EQ(available.what, "80 % of the memory available");
  options.memory_budget_bytes = 5;
  EXPECT_EQ(memory_limit(options).bytes, 5);
  EXPECT_EQ(memory_limit(options).what, "the budget");
}

TEST(RetryText, SaysWhatDidNotFitAndWhatRunsNow) {
  TrainOptions options;
  options.batch_size = 64;
  options.memory_budget_bytes = 600'000'000;
  MemoryRetry retry = {.step = 12,
                       .checkpointing = Checkpointing::kAggressive,
                       .micro_batch_size = 32,
                       .needed_bytes = 642'000'000,
                       .allowed_bytes = 600'000'000};
  EXPECT_EQ(retry_text(retry, options),
            "step 12 did not fit into the budget of 600.0 MB (at least 642.0 MB needed): it was "
            "started again with --checkpointing aggressive and micro-batches of 32 windows");
  retry.micro_batch_size = 64;
  retry.checkpointing = Checkpointing::kMinimal;
  EXPECT_THAT(retry_text(retry, options), ::testing::EndsWith("with --checkpointing minimal"));
  retry.needed_bytes = 600'000'064;
  EXPECT_THAT(retry_text(retry, options), HasSubstr("(at least 600,000,064 bytes needed)"));
  options.memory_budget_bytes = 0;
  retry.needed_bytes = retry.allowed_bytes;
  EXPECT_THAT(retry_text(retry, options), HasSubstr("did not fit into memory: it was"));
}

TEST(OvershootText, SpeaksOfPeaksAboveTheBudgetAlone) {
  TrainOptions options;
  options.device = "cuda:1";
  EXPECT_EQ(overshoot_text(3, 1'000'000, options), "");  // no budget
  options.memory_budget_bytes = 1'000'000;
  EXPECT_EQ(overshoot_text(3, 1'000'000, options), "");
  EXPECT_THAT(overshoot_text(3, 1'000'512, options),
              HasSubstr("step 3 took 1,000,512 bytes on cuda:1, and the budget is 1,000,000: "));
}

TEST(RetriesJson, HoldsEachRetryWithItsStep) {
  const std::vector<MemoryRetry> retries = {{.step = 3,
                                             .checkpointing = Checkpointing::kMinimal,
                                             .micro_batch_size = 16,
                                             .needed_bytes = 20,
                                             .allowed_bytes = 10}};
  EXPECT_EQ(retries_json(retries).dump(),
            R"([{"step":3,"checkpointing":"minimal","micro_batch_size":16,"needed_bytes":20,)"
            R"("allowed_bytes":10}])");
  EXPECT_EQ(retries_json({}).dump(), "[]");
}

}  // namespace
}  // namespace reprise
