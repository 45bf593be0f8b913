// SPDX-License-Identifier: Apache-2.0
#include "commands.h"
#include "data/table_file_internal.h"
#include "json_text.h"
#include "prepare.h"
#include "reprise/errors.h"
#include "table.h"
#include "text.h"

#include <arrow/type.h>

#include <utility>

namespace reprise {
namespace {

std::string columns_text(const detail::TableFile& file) {
  Table table({"column", "type"});
  for (const detail::ColumnInfo& column : file.columns()) {
    table.add_row({column.name, column.type->ToString()});
  }
  return table.text();
}

nlohmann::ordered_json columns_json(const detail::TableFile& file) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const detail::ColumnInfo& column : file.columns()) {
    list.push_back({{"name", column.name}, {"type", column.type->ToString()}});
  }
  return list;
}

// What training would do with the table; a table that it would refuse is a finding here, not a
// failure: to learn that is why one inspects. An option that is wrong still fails.
void inspect_training(Settings& settings, Terminal& terminal, nlohmann::ordered_json& document) {
  std::vector<AuditFinding> findings;
  document["can_train"] = true;
  try {
    const Dataset dataset = Dataset::fit(settings.parquet_file, settings.data);
    dataset.describe(settings.model);
    Overview overview = describe(settings.parquet_file, dataset, settings.model);
    overview.memory_budget_bytes = settings.train.memory_budget_bytes;
    overview.parameters = parameter_count(TemporalFusionTransformer(settings.model));
    findings = overview.findings;
    terminal.result(overview_text(overview));
    document.update(overview_json(overview));
    check_windows(overview);
  } catch (const DataError& error) {
    findings.push_back({AuditFinding::Level::kError, error.what(), "training stops"});
    terminal.result("Training would stop\n" + findings_text({findings.back()}));
    document["can_train"] = false;
  }
  document["findings"] = findings_json(findings);
}

int run_inspect(Settings& settings, Terminal& terminal) {
  settle(settings);
  check_table_file(settings.parquet_file);
  const detail::TableFile file(settings.parquet_file);
  nlohmann::ordered_json document = {
      {"file", settings.parquet_file}, {"rows", file.row_count()}, {"columns", columns_json(file)}};
  terminal.result(format_count(file.row_count()) + " rows\n" + columns_text(file) + "\n");
  inspect_training(settings, terminal, document);
  terminal.json(json_text(document));
  return kExitDone;
}

}  // namespace

Command inspect_command(Settings& settings) {
  std::vector<Field> fields = run_fields(settings);
  fields.push_back(config_field(settings));
  return {
      .name = "inspect",
      .summary =
          "Show a table's columns, their roles, what is wrong with it and what training would do",
      .example = "reprise inspect sales.parquet --target sales",
      .fields = with_common(std::move(fields), settings),
      .positionals = {{"parquet_file", "FILE", "the table: Parquet, or CSV by its extension",
                       &settings.parquet_file}},
      .run = run_inspect};
}

}  // namespace reprise
