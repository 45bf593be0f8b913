// SPDX-License-Identifier: Apache-2.0
#include "reprise/synthesize.h"

#include "commands.h"
#include "json_text.h"
#include "reprise/errors.h"
#include "text.h"

#include <algorithm>

namespace reprise {
namespace {

// The preset, changed as the flags say; columns that are not text are numbers.
SynthesizeOptions synthesize_options(const Settings& settings) {
  const TableSettings& table = settings.table;
  SynthesizeOptions options = synthesize_preset(table.preset);
  options.series = table.series;
  options.steps = table.steps;
  options.seed = settings.train.seed;
  if (table.observed_columns >= 0) {
    options.observed = table.observed_columns;
  }
  if (table.known_columns >= 0) {
    options.known = table.known_columns;
  }
  const std::int64_t static_columns = table.static_columns >= 0
                                          ? table.static_columns
                                          : options.static_reals + options.static_categoricals;
  if (table.categorical_columns >= 0) {
    options.static_categoricals = table.categorical_columns;
    if (table.categorical_columns > static_columns) {
      throw OptionError("categorical",
                        "--categorical: " + std::to_string(table.categorical_columns) + " of " +
                            std::to_string(static_columns) +
                            " static columns cannot be text; raise --static");
    }
  } else {
    options.static_categoricals = std::min(options.static_categoricals, static_columns);
  }
  options.static_reals = static_columns - options.static_categoricals;
  options.validate();
  return options;
}

int run_synthesize(Settings& settings, Terminal& terminal) {
  const SynthesizeOptions options = synthesize_options(settings);
  synthesize(settings.out, options);
  const std::int64_t static_columns = options.static_reals + options.static_categoricals;
  terminal.result("Wrote " + settings.out + ": " + format_count(options.series * options.steps) +
                  " rows (" + format_count(options.series) + " series of " +
                  format_count(options.steps) + " steps), " + std::to_string(static_columns) +
                  " static, 1 target, " + std::to_string(options.observed) + " observed and " +
                  std::to_string(options.known) + " known columns\n");
  terminal.json(json_text({{"out", settings.out},
                           {"rows", options.series * options.steps},
                           {"series", options.series},
                           {"steps", options.steps},
                           {"static", static_columns},
                           {"categorical", options.static_categoricals},
                           {"observed", options.observed},
                           {"known", options.known},
                           {"seed", options.seed}}));
  return kExitDone;
}

}  // namespace

Command synthesize_command(Settings& settings) {
  TableSettings& table = settings.table;
  std::vector<Field> fields = {
      {"preset", "NAME", "layout: tft-225 (5 static, 1 target, 199 observed, 10 known columns)",
       &table.preset},
      {"series", "N", "number of series", &table.series},
      {"steps", "N", "rows of each series", &table.steps},
      {"static", "N", "static columns; -1: the preset's", &table.static_columns},
      {"observed", "N", "observed columns; -1: the preset's", &table.observed_columns},
      {"known", "N", "known columns; -1: the preset's", &table.known_columns},
      {"categorical", "N", "static columns that are text; -1: the preset's",
       &table.categorical_columns},
      {"out", "FILE", "Parquet file to write", &settings.out}};
  return {
      .name = "synthesize",
      .summary = "Make a table with a learnable signal, for trials",
      .example = "reprise synthesize --preset tft-225 --series 10 --steps 500 --out table.parquet",
      .fields = with_common(std::move(fields), settings),
      .positionals = {},
      .required = {"out"},
      .run = run_synthesize};
}

}  // namespace reprise
