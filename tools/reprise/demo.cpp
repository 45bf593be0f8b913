// SPDX-License-Identifier: Apache-2.0
#include "commands.h"
#include "csv_to_parquet.h"
#include "json_text.h"
#include "prepare.h"
#include "reprise/errors.h"
#include "text.h"
#include "training.h"

#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

namespace reprise {
namespace {

constexpr const char* kDataName = "ETTh1.csv";
constexpr std::int64_t kDemoSteps = 1200;
// A little less than its steps take without recomputing anything.
constexpr std::int64_t kDemoBudgetBytes = 40'000'000;

// The 24-hour protocol of data/README.md. The target a day and a week earlier as inputs, a scale of
// each window's own, and averaged weights are what makes a short training enough.
Settings demo_recipe(const Settings& given) {
  Settings recipe = given;
  DataOptions& data = recipe.data;
  data.time = "date";
  data.target = {"HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"};
  data.infer = false;
  data.calendar = {"hour", "weekday"};
  data.lags = {24, 168};
  data.normalize = Normalization::kWindow;
  data.encoder_length = 168;
  data.horizon = 24;
  data.train_until = "2017-06-26 00:00:00";
  data.valid_until = "2017-10-24 00:00:00";
  data.test_until = "2018-02-21 00:00:00";
  recipe.model.hidden_size = 16;
  recipe.model.attention_heads = 4;
  recipe.model.dropout = 0.0;
  recipe.train.epochs = 1;
  recipe.train.batch_size = 32;
  recipe.train.max_steps = given.train.max_steps > 0 ? given.train.max_steps : kDemoSteps;
  recipe.train.validate_every = 200;
  recipe.train.lr = 5e-3;
  recipe.train.average_decay = 0.99;
  recipe.train.memory_budget_bytes = kDemoBudgetBytes;
  return recipe;
}

// The installed copy: beside a program that was moved, or where it was installed; else the source
// tree's.
std::string find_demo_data() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::array candidates = {
      program.parent_path().parent_path() / "share" / "reprise" / kDataName,
      std::filesystem::path(REPRISE_INSTALLED_DATA_DIR) / kDataName,
      std::filesystem::path(REPRISE_SOURCE_DATA_DIR) / kDataName};
  std::vector<std::string> tried;
  for (const std::filesystem::path& candidate : candidates) {
    if (std::filesystem::exists(candidate, error)) {
      return candidate.string();
    }
    tried.push_back(candidate.string());
  }
  throw DataError(std::string(kDataName) + ": not found in " + join(tried) +
                  "; name it with --data FILE");
}

int run_demo(Settings& given, Terminal& terminal) {
  Settings settings = demo_recipe(given);
  settle(settings);
  const std::string csv = given.demo_data.empty() ? find_demo_data() : given.demo_data;
  check_table_file(csv);
  const std::filesystem::path run = choose_run_folder(given.out, "demo");
  check_run_folder(run);
  TrainingOutcome outcome;
  try {
    std::filesystem::create_directories(run);
    settings.parquet_file = (run / kDataName).replace_extension(".parquet").string();
    convert_csv_to_parquet(csv, settings.parquet_file);
    terminal.note("converted " + csv + " to " + settings.parquet_file);
    outcome = run_training(settings, run, terminal);
  } catch (...) {
    // The folder was absent or empty before; without its settings nothing in it is of use.
    if (!std::filesystem::exists(run / "config.toml")) {
      std::error_code ignored;
      std::filesystem::remove_all(run, ignored);
    }
    throw;
  }
  const int exit_code = print_training(outcome, terminal);
  terminal.json(json_text(training_json(outcome)));
  return exit_code;
}

}  // namespace

Command demo_command(Settings& settings) {
  std::vector<Field> fields = {
      {"data", "FILE", "ETTh1.csv; default: the copy that comes with the program",
       &settings.demo_data},
      {"out", "RUN", "run folder to write; default: runs/demo-<date-time>", &settings.out},
      {"max_steps", "N", "training steps at most; 0: as many as the recipe has",
       &settings.train.max_steps}};
  return {
      .name = "demo",
      .summary = "Train and score on the data that come with the program, beside naive forecasts",
      .example = "reprise demo --out runs/demo",
      .fields = with_common(std::move(fields), settings),
      .positionals = {},
      .run = run_demo};
}

}  // namespace reprise
