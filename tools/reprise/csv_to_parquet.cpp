// SPDX-License-Identifier: Apache-2.0
#include "csv_to_parquet.h"

#include "reprise/errors.h"

#include <arrow/csv/api.h>
#include <arrow/io/file.h>
#include <arrow/table.h>
#include <parquet/arrow/writer.h>

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

}  // namespace

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
