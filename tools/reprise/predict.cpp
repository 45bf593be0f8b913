// SPDX-License-Identifier: Apache-2.0
#include "commands.h"
#include "json_text.h"
#include "prepare.h"
#include "reprise/errors.h"
#include "reprise/forecast_table.h"
#include "reprise/run_folder.h"
#include "text.h"

#include <algorithm>
#include <span>

namespace reprise {
namespace {

// Forecasts are made and written this many batches at a time, so that memory does not grow with the
// number of series.
constexpr std::int64_t kBatchesAtOnce = 16;

void write_all(TrainedModel& trained, const Dataset& dataset, const std::vector<Window>& windows,
               const Settings& settings) {
  ForecastWriter writer(settings.out, trained.schema, trained.model->options().quantiles);
  const auto chunk = static_cast<std::size_t>(settings.train.batch_size * kBatchesAtOnce);
  for (std::size_t begin = 0; begin < windows.size(); begin += chunk) {
    const std::size_t end = std::min(begin + chunk, windows.size());
    const std::vector<Window> part(windows.begin() + static_cast<std::ptrdiff_t>(begin),
                                   windows.begin() + static_cast<std::ptrdiff_t>(end));
    writer.append(
        dataset, part,
        predict(trained.model, dataset, part, settings.train.batch_size, settings.train.device));
  }
  writer.finish();
}

// The table and the run are read; a slip of the name must not cost either.
void check_out_file(const Settings& settings) {
  const auto refuse = [&](const std::filesystem::path& file, const char* what) {
    std::error_code ignored;
    if (std::filesystem::equivalent(settings.out, file, ignored)) {
      throw OptionError("out", "--out: " + settings.out + " is " + what + "; name another file");
    }
  };
  refuse(settings.parquet_file, "the table itself");
  for (const char* name :
       {"config.toml", "schema.json", "model.safetensors", "metrics.jsonl", "summary.json"}) {
    refuse(std::filesystem::path(settings.run) / name, "a file of the run");
  }
}

int run_predict(Settings& settings, Terminal& terminal) {
  settings.train.validate();
  check_table_file(settings.parquet_file);
  check_out_file(settings);
  TrainedModel trained = load_trained_model(settings.run);
  const Dataset dataset = Dataset::apply(settings.parquet_file, trained.schema);
  const std::vector<Window> windows = dataset.forecast_windows();
  if (windows.empty()) {
    throw DataError(settings.parquet_file + ": no series has the " +
                    std::to_string(trained.schema.options.encoder_length) +
                    " samples with a known target that a forecast starts from");
  }
  if (!dataset.findings().empty()) {
    terminal.note(findings_text(dataset.findings()));
  }
  write_all(trained, dataset, windows, settings);
  const auto count = static_cast<std::int64_t>(windows.size());
  terminal.result("Forecasts of " + format_count(count) + " series, " +
                  std::to_string(trained.schema.options.horizon) +
                  " samples each: " + settings.out + "\n");
  terminal.json(json_text({{"run", settings.run},
                           {"file", settings.parquet_file},
                           {"out", settings.out},
                           {"windows", count},
                           {"horizon", trained.schema.options.horizon},
                           {"quantiles", trained.model->options().quantiles},
                           {"findings", findings_json(dataset.findings())}}));
  return kExitDone;
}

}  // namespace

Command predict_command(Settings& settings) {
  std::vector<Field> fields = {
      {"parquet_file", "FILE", "the table: history, and for known columns the future",
       &settings.parquet_file},
      {"out", "FILE", "Parquet file to write", &settings.out},
      {"batch_size", "N", "windows per step", &settings.train.batch_size}};
  return {
      .name = "predict",
      .summary = "Forecast what follows the last known target of every series",
      .example = "reprise predict runs/sales --parquet-file sales.parquet --out forecast.parquet",
      .fields = with_common(std::move(fields), settings),
      .positionals = {{"run", "RUN", "run folder that train wrote", &settings.run}},
      .required = {"parquet_file", "out"},
      .run = run_predict};
}

}  // namespace reprise
