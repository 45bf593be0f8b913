// SPDX-License-Identifier: Apache-2.0
// The program's parts that need no data: numbers as text, tables, terminal, settings, flags, TOML,
// scores.
#include "command.h"
#include "commands.h"
#include "config.h"
#include "interrupt.h"
#include "reprise/errors.h"
#include "reprise/version.h"
#include "scores.h"
#include "table.h"
#include "tests/testing.h"
#include "text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

namespace reprise {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "reprise-cli-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

Program program_of(Settings& settings) {
  return {.name = "reprise",
          .summary = "test",
          .commands = {train_command(settings), evaluate_command(settings)}};
}

Invocation parse(const Program& program, Settings& settings, std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "reprise");
  return parse_command_line(program, settings, static_cast<int>(arguments.size()),
                            arguments.data());
}

std::string parse_error(std::vector<const char*> arguments) {
  Settings settings;
  const Program program = program_of(settings);
  return error_of([&] { parse(program, settings, arguments); });
}

TEST(FormatCount, SeparatesThousands) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(17420), "17,420");
  EXPECT_EQ(format_count(-1234567), "-1,234,567");
}

TEST(FormatDuration, PicksTheUnitsThatMatter) {
  EXPECT_EQ(format_duration(41.6), "42 s");
  EXPECT_EQ(format_duration(200), "3 min 20 s");
  EXPECT_EQ(format_duration(7505), "2 h 05 min");  // 7505 = 2 * 3600 + 5 * 60 + 5
  EXPECT_EQ(format_duration(kNaN), "-");
}

TEST(FormatQuantile, WritesTheFieldsNames) {
  EXPECT_EQ(format_quantile(0.1), "P10");
  EXPECT_EQ(format_quantile(0.025), "P2.5");
}

TEST(FormatBytes, CountsIn1000s) {
  EXPECT_EQ(format_bytes(512'100'000), "512.1 MB");
  EXPECT_EQ(format_bytes(999'999), "999999 bytes");
}

TEST(FormatMegabytes, LeavesTheUnitToTheHeader) {
  EXPECT_EQ(format_megabytes(1.26e6), "1.3");
  EXPECT_EQ(format_megabytes(std::int64_t{1'234}, 3), "0.001");
  EXPECT_EQ(format_megabytes(-2e6), "-2.0");
}

RC_GTEST_PROP(FormatExact, ReadsBackAsTheSameDouble, (double value)) {
  RC_PRE(std::isfinite(value));
  const std::string text = format_exact(value);
  RC_ASSERT(std::strtod(text.c_str(), nullptr) == value);
  RC_ASSERT(text.find_first_of(".e") != std::string::npos);
}

TEST(SplitList, TrimsAndSkipsEmptyItems) {
  EXPECT_THAT(split_list("a, b ,,c"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(split_list(""), IsEmpty());
}

TEST(NearestName, FindsASlipButNotAnotherWord) {
  EXPECT_EQ(nearest_name("--hiden", {"--hidden", "--heads"}), "--hidden");
  EXPECT_EQ(nearest_name("banana", {"train", "inspect"}), "");
}

TEST(Table, AlignsNumbersRightAndWordsLeft) {
  Table table({"name", "q-risk"});
  table.add_row({"model", "0.25"});
  table.add_row({"last value", "10.5"});
  table.add_row({"none", "-"});
  EXPECT_EQ(table.text(),
            "name        q-risk\n"
            "model         0.25\n"
            "last value    10.5\n"
            "none             -\n");
}

TEST(Table, CountsLettersNotBytes) {
  Table table({"n", "x"});
  table.add_row({"\xC3\xA9t\xC3\xA9", "1"});
  EXPECT_EQ(table.text(), "n    x\n\xC3\xA9t\xC3\xA9  1\n");
}

TEST(Table, RefusesARowWiderThanItsHeader) {
  Table table({"one"});
  EXPECT_THROW(table.add_row({"1", "2"}), std::invalid_argument);
}

TEST(Terminal, WritesNoColourWhereThereIsNoTerminal) {
  std::ostringstream results;
  std::ostringstream messages;
  Terminal terminal(results, messages, false);
  terminal.error("broken");
  terminal.result("4\n");
  terminal.progress("half");
  EXPECT_EQ(messages.str(), "error: broken\n");
  EXPECT_EQ(results.str(), "4\n");
}

TEST(Terminal, ColoursOnATerminalUnlessNoColorIsSet) {
  setenv("TERM", "xterm", 1);
  unsetenv("NO_COLOR");
  std::ostringstream results;
  std::ostringstream messages;
  Terminal(results, messages, true).error("broken");
  EXPECT_THAT(messages.str(), StartsWith("\x1b[31merror:\x1b[0m"));
  setenv("NO_COLOR", "1", 1);
  std::ostringstream plain;
  Terminal(results, plain, true).error("broken");
  EXPECT_EQ(plain.str(), "error: broken\n");
  unsetenv("NO_COLOR");
}

TEST(Progress, SaysOneLinePerEvaluationWhereThereIsNoTerminal) {
  std::ostringstream results;
  std::ostringstream messages;
  Terminal terminal(results, messages, false);
  Progress progress(terminal);
  progress.update(
      {.step = 1, .total_steps = 10, .train_loss = 0.5, .valid_loss = kNaN, .elapsed_s = 5}, false);
  EXPECT_EQ(messages.str(), "");
  progress.update({.step = 5,
                   .total_steps = 10,
                   .train_loss = 0.5,
                   .valid_loss = 0.25,
                   .is_best = true,
                   .windows_per_s = 1000,
                   .elapsed_s = 10,
                   .peak_bytes = 1'000'000},
                  true);
  // 10 s for 5 of 10 steps leaves 10 s.
  EXPECT_EQ(messages.str(),
            "step 5/10  ETA 10 s  loss 0.5000  valid 0.2500 (best)  1000 windows/s  peak 1.0 MB\n");
}

TEST(Progress, WaitsTwoSecondsAndIsThrottledOnATerminal) {
  std::ostringstream results;
  std::ostringstream messages;
  Terminal terminal(results, messages, true);
  Progress progress(terminal);
  progress.update({.step = 1, .total_steps = 100, .elapsed_s = 1.9}, true);
  EXPECT_EQ(messages.str(), "");
  progress.update({.step = 2, .total_steps = 100, .elapsed_s = 2.1}, false);
  EXPECT_THAT(messages.str(), StartsWith("\r\x1b[Kstep 2/100"));
  const std::string shown = messages.str();
  progress.update({.step = 3, .total_steps = 100, .elapsed_s = 2.2}, false);
  EXPECT_EQ(messages.str(), shown);
  progress.update({.step = 4, .total_steps = 100, .elapsed_s = 2.5}, false);
  EXPECT_THAT(messages.str(), HasSubstr("step 4/100"));
  progress.finish();
  EXPECT_THAT(messages.str(), ::testing::EndsWith("\r\x1b[K"));
}

TEST(ParseCommandLine, SetsEveryKindOfField) {
  Settings settings;
  const Program program = program_of(settings);
  const Invocation invocation = parse(program, settings, {"train",
                                                          "--parquet-file",
                                                          "t.parquet",
                                                          "--id",
                                                          "shop,item",
                                                          "--known",
                                                          "price",
                                                          "--known",
                                                          "promo",
                                                          "--encoder",
                                                          "48",
                                                          "--quantiles",
                                                          "0.05,0.5",
                                                          "--lags=24,168",
                                                          "--lr",
                                                          "0.01",
                                                          "--normalize",
                                                          "window",
                                                          "--checkpointing",
                                                          "aggressive",
                                                          "--encoder-grn",
                                                          "--no-infer",
                                                          "--seed",
                                                          "7",
                                                          "--json"});
  EXPECT_EQ(invocation.command->name, "train");
  EXPECT_EQ(settings.parquet_file, "t.parquet");
  EXPECT_THAT(settings.data.id, ElementsAre("shop", "item"));
  EXPECT_THAT(settings.data.known, ElementsAre("price", "promo"));
  EXPECT_EQ(settings.data.encoder_length, 48);
  EXPECT_THAT(settings.model.quantiles, ElementsAre(0.05, 0.5));
  EXPECT_THAT(settings.data.lags, ElementsAre(24, 168));
  EXPECT_EQ(settings.train.lr, 0.01);
  EXPECT_EQ(settings.data.normalize, Normalization::kWindow);
  EXPECT_EQ(settings.checkpointing, Checkpointing::kAggressive);
  EXPECT_TRUE(settings.model.encoder_grn);
  EXPECT_FALSE(settings.data.infer);
  EXPECT_EQ(settings.train.seed, 7U);
  EXPECT_TRUE(settings.is_json);
}

TEST(ParseCommandLine, SaysWhatIsWrongAndWhatIsKnown) {
  EXPECT_THAT(parse_error({"train", "--parquet-file", "t", "--hidden", "wide"}),
              HasSubstr("--hidden: 'wide' is not a whole number"));
  EXPECT_THAT(parse_error({"train", "--parquet-file", "t", "--seed", "-1"}),
              HasSubstr("at least 0"));
  EXPECT_THAT(parse_error({"train", "--parquet-file", "t", "--normalize", "rows"}),
              HasSubstr("known: series, window, global, none"));
  EXPECT_THAT(parse_error({"train", "--parquet-file", "t", "--hiden", "8"}),
              HasSubstr("did you mean --hidden?"));
  EXPECT_THAT(parse_error({"train", "--parquet-file", "t", "--epochs", "1", "--epochs", "2"}),
              HasSubstr("--epochs: takes one value, got 2: 1, 2"));
  EXPECT_THAT(parse_error({"train", "--parquet-file", "--epochs", "2"}),
              HasSubstr("--parquet-file: needs a value"));
  EXPECT_THAT(parse_error({"train", "--epochs"}), HasSubstr("--epochs"));
  EXPECT_THAT(parse_error({"train"}), HasSubstr("--parquet-file is missing"));
  EXPECT_THAT(parse_error({"train", "--parquet-file", "t", "more"}),
              HasSubstr("unexpected argument 'more'"));
  EXPECT_THAT(parse_error({"evaluate", "--parquet-file", "t"}), HasSubstr("RUN is missing"));
  EXPECT_THAT(parse_error({"tarin"}), HasSubstr("did you mean train?"));
  EXPECT_THAT(parse_error({"--bogus"}), HasSubstr("unknown option '--bogus'"));
  EXPECT_THAT(parse_error({}), HasSubstr("no command given"));
}

TEST(ParseCommandLine, RefusesWhatLaterVersionsHave) {
  for (const char* flag : {"--resume", "--use-qat", "--calibrate", "--format"}) {
    EXPECT_EQ(parse_error({"train", "--parquet-file", "t", flag, "1"}),
              std::string(flag) + " is not in this version");
  }
  for (const char* name : {"quantize", "export", "report"}) {
    EXPECT_THAT(parse_error({name}), HasSubstr("is not in this version"));
  }
  EXPECT_THAT(parse_error({"train", "--parquet-file", "t", "--precision", "bf16"}),
              HasSubstr("not in this version"));
}

TEST(ParseCommandLine, ShowsHelpWithAnExampleAndTheVersion) {
  Settings settings;
  const Program program = program_of(settings);
  const Invocation help = parse(program, settings, {"train", "--help"});
  EXPECT_EQ(help.command, nullptr);
  EXPECT_THAT(help.text, HasSubstr("Example:\n  reprise train"));
  EXPECT_THAT(help.text, HasSubstr("--batch-size N|auto=64"));
  EXPECT_EQ(parse(program, settings, {"--version"}).text, "reprise " REPRISE_VERSION "\n");
}

TEST(ParseCommandLine, LetsFlagsWinOverTheFile) {
  const TemporaryFolder folder;
  const std::string config =
      folder
          .write("c.toml",
                 "parquet_file = 'a.parquet'\nhidden = 32\nlr = 1\nknown = [\n  'x,y',\n  'z'\n]\n"
                 "encoder_grn = true\nnormalize = 'global'\n")
          .string();
  Settings settings;
  const Program program = program_of(settings);
  parse(program, settings,
        {"train", "--config", config.c_str(), "--hidden", "8", "--no-encoder-grn"});
  EXPECT_EQ(settings.parquet_file, "a.parquet");
  EXPECT_EQ(settings.model.hidden_size, 8);
  EXPECT_EQ(settings.train.lr, 1.0);
  EXPECT_THAT(settings.data.known, ElementsAre("x,y", "z"));
  EXPECT_FALSE(settings.model.encoder_grn);
  EXPECT_EQ(settings.data.normalize, Normalization::kGlobal);
}

TEST(ReadConfig, NamesFileKeyAndLineOfAMistake) {
  const TemporaryFolder folder;
  Settings settings;
  const std::vector<Field> fields = run_fields(settings);
  const auto error = [&](const std::string& text) {
    const std::filesystem::path file = folder.write("c.toml", text);
    return error_of([&] { read_config(file, fields, {}); });
  };
  EXPECT_THAT(error("hiden = 3\n"),
              HasSubstr("c.toml: unknown key 'hiden'; did you mean 'hidden'?; known: "));
  EXPECT_THAT(error("hidden = 'wide'\n"),
              HasSubstr("c.toml: hidden: 'wide' is not a whole number"));
  EXPECT_THAT(error("hidden = [1, 2]\n"), HasSubstr("hidden: takes one value, got 2"));
  EXPECT_THAT(error("[model]\nhidden = 3\n"), HasSubstr("unknown key 'model'"));
  EXPECT_THAT(error("lags = [[24]]\n"), HasSubstr("nested"));
  EXPECT_THAT(error("epochs = 1\nhidden = = 3\n"), HasSubstr("c.toml:2: "));
  EXPECT_THAT(error("json = true\n"), HasSubstr("unknown key 'json'"));
  EXPECT_THAT(error_of([&] { read_config("/nowhere/c.toml", fields, {}); }),
              HasSubstr("cannot be read"));
}

TEST(ConfigText, ReadsBackAsTheSameSettings) {
  const TemporaryFolder folder;
  Settings written;
  written.parquet_file = "dir/a \"quoted\\ name\n.parquet";
  written.data.id = {"a,b", "c"};
  written.data.lags = {24, 168};
  written.data.infer = false;
  written.data.normalize = Normalization::kNone;
  written.data.train_until = "2017-06-26 00:00:00";
  written.model.quantiles = {0.1, 1.0 / 3.0};
  written.checkpointing = Checkpointing::kAggressive;
  written.model.checkpoint_layers = {{"quantile", true}, {"lstm_encoder", false}};
  written.train.lr = 3e-17;
  written.train.weight_decay = 1e300;
  written.train.seed = 9007199254740993;  // 2^53 + 1: not a double
  const std::string text = config_text(with_common(run_fields(written), written));
  Settings read;
  read_config(folder.write("c.toml", text), with_common(run_fields(read), read), {});
  EXPECT_EQ(read.parquet_file, written.parquet_file);
  EXPECT_EQ(read.data.id, written.data.id);
  EXPECT_EQ(read.model.quantiles, written.model.quantiles);
  EXPECT_EQ(read.checkpointing, written.checkpointing);
  EXPECT_EQ(read.model.checkpoint_layers, written.model.checkpoint_layers);
  EXPECT_EQ(read.train.lr, written.train.lr);
  EXPECT_EQ(read.train.weight_decay, written.train.weight_decay);
  EXPECT_EQ(read.train.seed, written.train.seed);
  EXPECT_EQ(config_text(with_common(run_fields(read), read)), text);
}

TEST(SetField, RefusesNumbersThatAreNotFinite) {
  double value = 1.0;
  const Field field = {"lr", "F", "", &value};
  for (const char* text : {"nan", "inf", "1e999", "", "1.0x", " 1"}) {
    EXPECT_THAT(error_of([&] { set_field(field, {text}, "--lr"); }), HasSubstr("is not a number"))
        << text;
  }
  EXPECT_EQ(value, 1.0);
}

TEST(InterruptScope, NotesTheFirstSignalAndLeavesAtTheSecond) {
  // LibTorch has threads of its own, which a plain fork would leave behind.
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        exit_on_interrupt();
        const InterruptScope interrupt;
        std::raise(SIGINT);
        if (!interrupt.requested()) {
          std::_Exit(1);
        }
        std::raise(SIGTERM);
        std::_Exit(2);
      },
      ::testing::ExitedWithCode(kExitInterrupted), "once more to leave at once\n\ninterrupted");
}

TEST(InterruptScope, LeavesAtTheFirstSignalOnceItIsOver) {
  // LibTorch has threads of its own, which a plain fork would leave behind.
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        exit_on_interrupt();
        {
          const InterruptScope interrupt;
        }
        std::raise(SIGINT);
      },
      ::testing::ExitedWithCode(kExitInterrupted), "interrupted");
}

std::vector<Score> scores(double model_p50) {
  return {{"model", {0.1, 0.5}, {0.1, model_p50}, {0.09, 0.48}},
          {"seasonal naive (24)", {0.1, 0.5}, {0.2, 0.3}, {0.1, 0.5}}};
}

TEST(ScoreTable, HasARowPerForecaster) {
  EXPECT_EQ(score_table(scores(0.25)),
            "forecaster           q-risk P10  q-risk P50  coverage P10 [%]  coverage P50 [%]\n"
            "model                    0.1000      0.2500               9.0              48.0\n"
            "seasonal naive (24)      0.2000      0.3000              10.0              50.0\n");
}

TEST(BaselineWarning, SpeaksOnlyWhenTheModelIsWorse) {
  EXPECT_EQ(baseline_warning(scores(0.25)), "");
  EXPECT_THAT(baseline_warning(scores(0.35)),
              HasSubstr("worse than seasonal naive (24) in q-risk at P50 (0.3500 against 0.3000)"));
  EXPECT_THAT(baseline_warning(scores(0.35)), Not(HasSubstr("P10 (")));
}

TEST(ScoresJson, WritesNullWhereAFigureDoesNotExist) {
  const nlohmann::ordered_json list = scores_json(scores(kNaN));
  EXPECT_EQ(list[0]["name"], "model");
  EXPECT_EQ(nlohmann::json::parse(list.dump())[0]["q_risk"][1], nullptr);
}

TEST(ReportError, MapsErrorsToExitCodes) {
  std::ostringstream results;
  std::ostringstream messages;
  Terminal terminal(results, messages, false);
  const auto code = [&](const auto& error) {
    try {
      throw error;
    } catch (...) {
      return report_error(terminal, "train");
    }
  };
  EXPECT_EQ(code(OptionError("hidden_size", "hidden_size must be positive")), kExitWrongInput);
  EXPECT_THAT(messages.str(), HasSubstr("help: the option is --hidden\n"));
  EXPECT_EQ(code(DataError("t.parquet: no rows")), kExitWrongInput);
  EXPECT_EQ(code(std::runtime_error("loss is not finite")), kExitFailed);
  EXPECT_EQ(code(BudgetError(2, 1, "memory: 2 bytes do not fit into 1")), kExitFailed);
  EXPECT_THAT(messages.str(), HasSubstr("error: train: memory: 2 bytes do not fit into 1\n"));
  EXPECT_EQ(code(std::bad_alloc()), kExitFailed);
  EXPECT_EQ(results.str(), "");
}

}  // namespace
}  // namespace reprise
