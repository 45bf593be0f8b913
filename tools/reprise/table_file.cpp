// SPDX-License-Identifier: Apache-2.0
#include "table_file.h"

#include "reprise/errors.h"

#include <arrow/csv/api.h>
#include <arrow/io/file.h>
#include <arrow/table.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/writer.h>

#include <algorithm>
#include <cctype>
#include <memory>

namespace reprise {
namespace {

[[noreturn]] void fail(const std::filesystem::path& file, const std::string& what,
                       const arrow::Status& status) {
  throw DataError(file.string() + ": " + what + " (" + status.message() + ")");
}

template <typename T>
T value_or_fail(arrow::Result<T> result, const std::filesystem::path& file,
                const std::string& what) {
  if (!result.ok()) {
    fail(file, what, result.status());
  }
  return std::move(result).ValueUnsafe();
}

bool is_csv(const std::filesystem::path& file) {
  std::string extension = file.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension == ".csv";
}

std::shared_ptr<arrow::Table> read_csv(const std::filesystem::path& file) {
  const std::string what = "cannot be read as CSV";
  const auto input = value_or_fail(arrow::io::ReadableFile::Open(file.string()), file, what);
  const auto reader = value_or_fail(
      arrow::csv::TableReader::Make(
          arrow::io::default_io_context(), input, arrow::csv::ReadOptions::Defaults(),
          arrow::csv::ParseOptions::Defaults(), arrow::csv::ConvertOptions::Defaults()),
      file, what);
  return value_or_fail(reader->Read(), file, what);
}

TableShape shape_of(const arrow::Schema& schema, std::int64_t rows) {
  TableShape shape;
  shape.rows = rows;
  for (const auto& field : schema.fields()) {
    shape.columns.push_back({field->name(), field->type()->ToString()});
  }
  return shape;
}

}  // namespace

TableShape read_table_shape(const std::filesystem::path& file) {
  if (is_csv(file)) {
    const auto table = read_csv(file);
    return shape_of(*table->schema(), table->num_rows());
  }
  const std::string what = "cannot be read as Parquet; a CSV file is known by its extension .csv";
  const auto input = value_or_fail(arrow::io::ReadableFile::Open(file.string()), file, what);
  const auto reader =
      value_or_fail(parquet::arrow::OpenFile(input, arrow::default_memory_pool()), file, what);
  std::shared_ptr<arrow::Schema> schema;
  if (const arrow::Status status = reader->GetSchema(&schema); !status.ok()) {
    fail(file, what, status);
  }
  return shape_of(*schema, reader->parquet_reader()->metadata()->num_rows());
}

void convert_csv_to_parquet(const std::filesystem::path& csv,
                            const std::filesystem::path& parquet) {
  constexpr std::int64_t kRowsPerGroup = 1 << 20;
  const auto table = read_csv(csv);
  const auto output = value_or_fail(arrow::io::FileOutputStream::Open(parquet.string()), parquet,
                                    "cannot be written");
  arrow::Status status =
      parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), output, kRowsPerGroup);
  if (status.ok()) {
    status = output->Close();
  }
  if (!status.ok()) {
    fail(parquet, "cannot be written", status);
  }
}

}  // namespace reprise
