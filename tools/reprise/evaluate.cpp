// SPDX-License-Identifier: Apache-2.0
#include "commands.h"
#include "json_text.h"
#include "prepare.h"
#include "reprise/errors.h"
#include "reprise/run_folder.h"
#include "scores.h"
#include "text.h"

#include <utility>

namespace reprise {
namespace {

int run_evaluate(Settings& settings, Terminal& terminal) {
  settings.train.validate();
  if (settings.stride < 0) {
    throw OptionError("stride", "--stride: must be at least 1 (or 0 for the horizon), got " +
                                    std::to_string(settings.stride));
  }
  check_table_file(settings.parquet_file);
  TrainedModel trained = load_trained_model(settings.run);
  const Dataset dataset = Dataset::apply(settings.parquet_file, trained.schema);
  const DataOptions& options = trained.schema.options;
  const std::int64_t stride = settings.stride > 0 ? settings.stride : options.horizon;
  const Split split = settings.split == "test" ? Split::kTest : Split::kValid;
  const std::vector<Window> windows = dataset.windows(split, stride);
  if (windows.empty()) {
    throw DataError(settings.parquet_file + ": no " + settings.split + " window: encoder " +
                    std::to_string(options.encoder_length) + " and horizon " +
                    std::to_string(options.horizon) +
                    " do not fit into the rows of this split; see reprise inspect");
  }
  const std::vector<Score> scores =
      evaluate(trained.model, dataset, windows, settings.train.batch_size, settings.train.device);
  terminal.result(settings.split + ": " + format_count(static_cast<std::int64_t>(windows.size())) +
                  " windows, every " + std::to_string(stride) + " samples\n" + score_table(scores));
  if (const std::string warning = baseline_warning(scores); !warning.empty()) {
    terminal.warning(warning);
  }
  terminal.json(json_text({{"run", settings.run},
                           {"file", settings.parquet_file},
                           {"split", settings.split},
                           {"stride", stride},
                           {"windows", windows.size()},
                           {"findings", findings_json(dataset.findings())},
                           {"scores", scores_json(scores)}}));
  return kExitDone;
}

}  // namespace

Command evaluate_command(Settings& settings) {
  std::vector<Field> fields = {
      {"parquet_file", "FILE", "the table: Parquet, or CSV by its extension",
       &settings.parquet_file},
      {"split", "NAME", "rows to forecast: test or valid", &settings.split, {"test", "valid"}},
      {"stride", "N", "samples between two forecasts; 0: the horizon", &settings.stride},
      {"batch_size", "N", "windows per step", &settings.train.batch_size}};
  return {.name = "evaluate",
          .summary = "Score a trained model and the naive baselines on a table",
          .example = "reprise evaluate runs/sales --parquet-file sales.parquet --split test",
          .fields = with_common(std::move(fields), settings),
          .positionals = {{"run", "RUN", "run folder that train wrote", &settings.run}},
          .required = {"parquet_file"},
          .run = run_evaluate};
}

}  // namespace reprise
