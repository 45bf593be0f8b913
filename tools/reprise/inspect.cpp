// SPDX-License-Identifier: Apache-2.0
#include "commands.h"
#include "data/table_file_internal.h"
#include "json_text.h"
#include "overview.h"
#include "reprise/errors.h"
#include "table.h"
#include "text.h"
#include "training.h"

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

// A table that cannot be trained on is a finding here, not a failure: to learn that is why one
// inspects.
int run_inspect(Settings& settings, Terminal& terminal) {
  settle(settings);
  check_table_file(settings.parquet_file);
  const detail::TableFile file(settings.parquet_file);
  nlohmann::ordered_json document = {
      {"file", settings.parquet_file}, {"rows", file.row_count()}, {"columns", columns_json(file)}};
  terminal.result(columns_text(file) + "\n");
  try {
    const Dataset dataset = Dataset::fit(settings.parquet_file, settings.data);
    settings.data = dataset.schema().options;
    dataset.describe(settings.model);
    Overview overview = describe(settings.parquet_file, dataset, settings.model);
    overview.parameters = parameter_count(TemporalFusionTransformer(settings.model));
    check_windows(overview);
    terminal.result(overview_text(overview));
    document["can_train"] = true;
    document.update(overview_json(overview));
  } catch (const DataError& error) {
    const std::vector<AuditFinding> findings = {
        {AuditFinding::Level::kError, error.what(), "training stops here"}};
    terminal.result(format_count(file.row_count()) + " rows\nFindings\n" + findings_text(findings));
    document["can_train"] = false;
    document["findings"] = findings_json(findings);
  }
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
