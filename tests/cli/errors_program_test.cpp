// SPDX-License-Identifier: Apache-2.0
// What goes wrong gives one error, exit code 2, and leaves nothing behind; help and the other
// commands.
#include "program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace reprise::testing {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// `table` with its first `from` made `to`.
std::string changed(std::string table, const std::string& from, const std::string& to) {
  return table.replace(table.find(from), from.size(), to);
}

struct BadTable {
  const char* name;
  std::string file;
  std::string content;
  std::vector<std::string> more;  // arguments
  std::vector<std::string> says;
};

class BadTableProgram : public ::testing::TestWithParam<BadTable> {};

TEST_P(BadTableProgram, GivesOneErrorAndNoRunFolder) {
  const BadTable& bad = GetParam();
  const WorkFolder work;
  if (!bad.content.empty()) {
    work.write(bad.file, bad.content);
  }
  const std::vector<std::string> before = work.names();
  const Outcome outcome = work.reprise(train_arguments(bad.file, bad.more));
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_EQ(error_count(outcome.err), 1U) << outcome.err;
  EXPECT_THAT(outcome.err, StartsWith("error: train: "));
  for (const std::string& text : bad.says) {
    EXPECT_THAT(outcome.err, HasSubstr(text));
  }
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(work.names(), before);
}

const std::string kSales = sales_csv(2, 150);
// Of the first shop at hour 1: 10 + 3 sin(2 pi / 24) - 1.2.
const std::string kSecondSales = ",9.576457,";

INSTANTIATE_TEST_SUITE_P(
    Tables, BadTableProgram,
    ::testing::Values(
        BadTable{"MissingFile", "nowhere.parquet", "", {}, {"nowhere.parquet", "no such file"}},
        BadTable{"NotParquet", "sales.parquet", kSales, {}, {"sales.parquet", "Parquet"}},
        BadTable{"UnknownColumn", "sales.csv", kSales, {"--observed", "prise"}, {"prise", "price"}},
        BadTable{"NoTimeColumn",
                 "sales.csv",
                 changed(kSales, "shop,time", "shop,when"),
                 {},
                 {"time", "when"}},
        BadTable{"TextForNumber",
                 "sales.csv",
                 changed(kSales, kSecondSales, ",many,"),
                 {},
                 {"sales", "many"}},
        BadTable{"NotFinite", "sales.csv", changed(kSales, kSecondSales, ",inf,"), {}, {"sales"}},
        BadTable{
            "MissingTarget", "sales.csv", changed(kSales, kSecondSales, ",nan,"), {}, {"sales"}},
        BadTable{"SeriesTooShort",
                 "sales.csv",
                 sales_csv(2, 10),
                 {},
                 {"shorter than encoder 12 + horizon 4"}},
        BadTable{"EmptyTable", "sales.csv", "shop,time,sales,price\n", {}, {"no rows"}},
        BadTable{"EmptyFile", "sales.csv", "\n", {}, {"sales.csv"}},
        BadTable{"HiddenNotDivisible", "sales.csv", kSales, {"--heads", "3"}, {"--heads"}},
        BadTable{"ValueOutOfRange", "sales.csv", kSales, {"--dropout", "1.5"}, {"--dropout"}},
        BadTable{"TooWide", "sales.csv", kSales, {"--hidden", "1000000000"}, {"at most 16384"}},
        BadTable{"TooDeep", "sales.csv", kSales, {"--lstm-layers", "100000000"}, {"1 to 64"}},
        BadTable{"LayerThatTheModelDoesNotHave",
                 "sales.csv",
                 kSales,
                 {"--checkpoint-layer", "historical_encoder=on"},
                 {"no layer 'historical_encoder'; it has ", "historical_vsn, future_vsn",
                  "help: the option is --checkpoint-layer"}},
        BadTable{"TooLargeBatch",
                 "sales.csv",
                 kSales,
                 {"--batch-size", "9223372036854775807"},
                 {"1 to 16777216 windows"}},
        BadTable{"UnknownDevice", "sales.csv", kSales, {"--device", "tpu"}, {"known: cpu"}}),
    [](const auto& instance) { return instance.param.name; });

struct WrongUsage {
  const char* name;
  std::vector<std::string> arguments;
  std::string says;
};

class WrongUsageProgram : public ::testing::TestWithParam<WrongUsage> {};

TEST_P(WrongUsageProgram, Exits2WithOneError) {
  const WorkFolder work;
  const Outcome outcome = work.reprise(GetParam().arguments);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(error_count(outcome.err), 1U) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr(GetParam().says));
  EXPECT_THAT(work.names(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Usage, WrongUsageProgram,
    ::testing::Values(
        WrongUsage{"NoCommand", {}, "no command given"},
        WrongUsage{
            "UnknownCommand",
            {"fit"},
            "known: demo, inspect, synthesize, train, profile, plan, verify, evaluate, predict"},
        WrongUsage{"LaterCommand", {"quantize", "run"}, "not in this version"},
        WrongUsage{"UnknownFlag", {"train", "--epoch", "3"}, "did you mean --epochs?"},
        WrongUsage{"LaterFlag", {"train", "--use-qat"}, "not in this version"},
        WrongUsage{"LaterValue", {"train", "--precision", "bf16"}, "not in this version"},
        WrongUsage{"NoSize",
                   {"train", "--memory-budget", "64k"},
                   "--memory-budget: '64k' is not a size of memory: write bytes, or a number with "
                   "B, kB, MB, GB, TB (of 1000), KiB, MiB, GiB or TiB (of 1024)"},
        WrongUsage{"SizeOfNothing",
                   {"plan", "--device-memory", "8GB,0GB"},
                   "--device-memory: '0GB' is not a size of memory"},
        WrongUsage{"BatchOfNothing",
                   {"train", "--batch-size", "0"},
                   "'0' is neither a whole number of at least 1 nor auto"},
        WrongUsage{"BatchNotChosenHere",
                   {"evaluate", "run", "--parquet-file", "t", "--batch-size", "auto"},
                   "'auto' is not a whole number"},
        WrongUsage{
            "TwoAnswersToOneQuestion",
            {"train", "--parquet-file", "t", "--batch-size", "auto", "--micro-batch-size", "8"},
            "--micro-batch-size: has no meaning with --batch-size auto"},
        WrongUsage{
            "FlagOfAnotherCommand", {"train", "--trace", "t.json"}, "unknown option '--trace'"},
        WrongUsage{"UnknownTier",
                   {"train", "--checkpointing", "most"},
                   "'most' is unknown; known: off, minimal, aggressive, auto"},
        WrongUsage{"UnknownLayer",
                   {"verify", "--checkpoint-layer", "lstm=on"},
                   "layer 'lstm' is unknown; known: static_vsn, static_encoder, "},
        WrongUsage{"LayerNeitherOnNorOff",
                   {"train", "--checkpoint-layer", "gate=maybe"},
                   "'gate=maybe' is not gate=on or gate=off; known layers: static_vsn, "},
        WrongUsage{"MissingValue", {"train", "--epochs"}, "--epochs"},
        WrongUsage{"MissingFlag", {"train"}, "--parquet-file is missing"},
        WrongUsage{"MissingPositional", {"inspect"}, "FILE is missing"},
        WrongUsage{"NotANumber", {"train", "--hidden", "wide"}, "'wide' is not a whole number"},
        WrongUsage{"NoConfig", {"train", "--config", "c.toml"}, "c.toml"}),
    [](const auto& instance) { return instance.param.name; });

TEST(BadTableProgram, KeepsTheBytesOfAFileOffTheTerminal) {
  const WorkFolder work;
  work.write("sales.csv", "\x1B[31m\xFF,time\n1,2\n");
  const Outcome outcome = work.reprise(train_arguments("sales.csv", {"--json"}));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.err.find_first_of("\x1B\xFF"), std::string::npos) << outcome.err;
  EXPECT_THAT(json::parse(outcome.out)["error"], HasSubstr("\\x1B[31m\\xFF"));
}

TEST(WrongUsageProgram, NamesTheFolderThatCannotBeMade) {
  const WorkFolder work;
  work.write("sales.csv", kSales);
  for (const std::string& out : {std::string("sales.csv/run"), std::string(300, 'x')}) {
    const Outcome outcome = work.reprise(train_arguments("sales.csv", {"--out", out}));
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    EXPECT_EQ(error_count(outcome.err), 1U) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("--out: " + out + " cannot be made"));
  }
}

TEST(WrongUsageProgram, IsTheDocumentUnderJson) {
  const WorkFolder work;
  const Outcome outcome = work.reprise({"train", "--json", "--hidden", "wide"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(json::parse(outcome.out)["exit_code"], 2);
}

TEST(HelpProgram, HasAnExampleForEveryCommand) {
  const WorkFolder work;
  for (const char* command : {"demo", "inspect", "synthesize", "train", "profile", "plan", "verify",
                              "evaluate", "predict"}) {
    const Outcome outcome = work.reprise({command, "--help"});
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_THAT(outcome.out, HasSubstr(std::string("Example:\n  reprise ") + command));
    for (const char* flag : {"--json", "--seed", "--threads", "--device"}) {
      EXPECT_THAT(outcome.out, HasSubstr(flag)) << command;
    }
  }
  EXPECT_THAT(work.reprise({"--version"}).out, StartsWith("reprise 0."));
}

TEST(InspectProgram, SaysWhatTrainingWouldDo) {
  const WorkFolder work;
  work.write("sales.csv", kSales);
  const Outcome outcome = work.reprise(
      {"inspect", "sales.csv", "--target", "sales", "--encoder", "12", "--horizon", "4", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json document = json::parse(outcome.out);
  EXPECT_EQ(document["can_train"], true);
  EXPECT_EQ(document["rows"], 300);
  EXPECT_EQ(document["series"], 2);
  EXPECT_EQ(document["roles"]["time"], "time");
  EXPECT_EQ(document["roles"]["id"], json({"shop"}));
  EXPECT_GT(document["windows"]["train"].get<int>(), 0);
  EXPECT_GT(document["model"]["parameters"].get<int>(), 0);
  EXPECT_THAT(work.names(), ElementsAre("sales.csv"));
}

TEST(InspectProgram, ReportsATableThatCannotBeTrainedOn) {
  const WorkFolder work;
  work.write("sales.csv", sales_csv(2, 10));
  const Outcome outcome = work.reprise({"inspect", "sales.csv", "--target", "sales", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json document = json::parse(outcome.out);
  EXPECT_EQ(document["can_train"], false);
  EXPECT_EQ(document["findings"][0]["level"], "error");
  EXPECT_EQ(document["columns"].size(), 4U);
}

TEST(InspectProgram, FailsOnAFileItCannotRead) {
  const WorkFolder work;
  work.write("sales.parquet", kSales);
  EXPECT_EQ(work.reprise({"inspect", "sales.parquet"}).exit_code, 2);
  EXPECT_EQ(work.reprise({"inspect", "nowhere.parquet"}).exit_code, 2);
}

TEST(SynthesizeProgram, MakesATableThatTheDocumentedNameTrainsOn) {
  const WorkFolder work;
  const Outcome made = work.reprise(
      {"synthesize", "--preset", "tft-225", "--series", "2", "--steps", "200", "--static", "2",
       "--observed", "3", "--known", "2", "--out", "t.parquet", "--seed", "3", "--json"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(json::parse(made.out)["rows"], 400);  // 2 * 200
  const Outcome trained =
      work.run(REPRISE_TRAIN_TFT_PARQUET,
               {"--parquet-file", "t.parquet", "--epochs", "1", "--max-steps", "1", "--hidden", "8",
                "--use-gradient-checkpointing", "--out", "run", "--json"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(json::parse(trained.out)["tier"], "aggressive");
  EXPECT_THAT(work.read("run/config.toml"), HasSubstr("encoder = 50\nhorizon = 10\n"));
}

TEST(TrainTftParquetProgram, RefusesWhatLaterVersionsHave) {
  const WorkFolder work;
  const Outcome outcome =
      work.run(REPRISE_TRAIN_TFT_PARQUET, {"--parquet-file", "t.parquet", "--use-qat"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--use-qat is not in this version"));
}

}  // namespace
}  // namespace reprise::testing
