// SPDX-License-Identifier: Apache-2.0
#include "data/table_file_internal.h"

#include "data/text_internal.h"
#include "reprise/errors.h"

#include <arrow/api.h>
#include <arrow/csv/api.h>
#include <arrow/io/api.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include <fstream>
#include <set>

namespace reprise::detail {
namespace {

/// Small row groups are read together up to this many rows: one call per row group would cost more
/// than its rows.
constexpr std::int64_t kRowsAtOnce = 1 << 18;

ColumnKind kind_of(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::DATE32:
    case arrow::Type::DATE64:
    case arrow::Type::TIMESTAMP:
      return ColumnKind::kTime;
    case arrow::Type::BOOL:
    case arrow::Type::DICTIONARY:
      return ColumnKind::kCategory;
    case arrow::Type::TIME32:
    case arrow::Type::TIME64:
    case arrow::Type::DURATION:
      return ColumnKind::kReal;
    case arrow::Type::STRING_VIEW:
    case arrow::Type::BINARY_VIEW:
    case arrow::Type::FIXED_SIZE_BINARY:
      return ColumnKind::kCategory;
    default:
      if (arrow::is_numeric(type.id()) || arrow::is_decimal(type.id())) return ColumnKind::kReal;
      if (arrow::is_base_binary_like(type.id())) return ColumnKind::kCategory;
      return ColumnKind::kUnusable;
  }
}

/// The delimiter of a CSV file: a comma, unless the first line has none and has one of the usual
/// others.
char delimiter_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string header;
  std::getline(in, header);
  for (const char delimiter : {',', ';', '\t'}) {
    if (header.find(delimiter) != std::string::npos) return delimiter;
  }
  return ',';
}

[[noreturn]] void fail(const std::filesystem::path& file, const std::string& what) {
  throw DataError(file.string() + ": " + what);
}

/// Arrow's own words: the first line, for the rest quotes the file.
std::string reason(const std::string& message) {
  constexpr std::size_t kLongest = 200;
  std::string line = message.substr(0, message.find_first_of("\r\n"));
  if (line.size() > kLongest) line.resize(kLongest);
  return " (" + printable(line) + (line.size() < message.size() ? " ...)" : ")");
}

template <typename T>
T checked(const std::filesystem::path& file, const std::string& what, arrow::Result<T> result) {
  if (!result.ok()) fail(file, what + reason(result.status().message()));
  return std::move(result).ValueUnsafe();
}

/// Spreadsheets save "Unicode text" with two bytes a character, which reads as one odd column.
void check_is_utf8(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string mark(2, '\0');
  in.read(mark.data(), 2);
  if (mark == "\xFF\xFE" || mark == "\xFE\xFF") {
    fail(file, "is UTF-16 text; save it as UTF-8");
  }
}

void check_is_file(const std::filesystem::path& file) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (!std::filesystem::exists(status)) fail(file, "no such file");
  if (std::filesystem::is_directory(status)) {
    fail(file, "is a directory; name one Parquet or CSV file");
  }
  if (std::filesystem::is_regular_file(status) && std::filesystem::file_size(file, error) == 0) {
    fail(file, "the file is empty (0 bytes)");
  }
}

}  // namespace

struct TableFile::Source {
  virtual ~Source() = default;
  virtual std::shared_ptr<arrow::Schema> schema() = 0;
  virtual std::int64_t row_count() = 0;
  virtual void read(const std::vector<int>& fields, const Visitor& visit) = 0;

  static void visit_table(const arrow::Table& table, std::int64_t first_row, const Visitor& visit) {
    for (int i = 0; i < table.num_columns(); ++i) {
      std::int64_t row = first_row;
      for (const auto& chunk : table.column(i)->chunks()) {
        visit(static_cast<std::size_t>(i), row, *chunk);
        row += chunk->length();
      }
    }
  }
};

struct TableFile::ParquetSource final : TableFile::Source {
  explicit ParquetSource(const std::filesystem::path& path) : file(path) {
    parquet::ArrowReaderProperties properties;
    // With pre-buffering Arrow keeps every row group it has read until the reader dies.
    properties.set_pre_buffer(false);
    properties.set_use_threads(true);
    // INT96 reaches far beyond what nanoseconds in 64 bits can hold, and would wrap around.
    properties.set_coerce_int96_timestamp_unit(arrow::TimeUnit::MICRO);
    parquet::arrow::FileReaderBuilder builder;
    const auto status = builder.OpenFile(path.string());
    if (!status.ok()) fail(file, "is not a Parquet file" + reason(status.message()));
    builder.properties(properties);
    reader = checked(file, "is not a Parquet file", builder.Build());
  }

  std::shared_ptr<arrow::Schema> schema() override {
    std::shared_ptr<arrow::Schema> schema;
    const auto status = reader->GetSchema(&schema);
    if (!status.ok()) fail(file, "cannot read the columns" + reason(status.message()));
    return schema;
  }

  std::int64_t row_count() override { return reader->parquet_reader()->metadata()->num_rows(); }

  void read(const std::vector<int>& fields, const Visitor& visit) override {
    // In the order of the file, whatever order the reader would keep.
    std::vector<int> sorted = fields;
    std::sort(sorted.begin(), sorted.end());
    std::vector<int> leaves;
    for (const int field : sorted) {
      leaves.push_back(
          reader->manifest().schema_fields[static_cast<std::size_t>(field)].column_index);
    }
    const auto metadata = reader->parquet_reader()->metadata();
    std::int64_t first_row = 0;
    std::vector<int> groups;
    std::int64_t rows = 0;
    for (int group = 0; group < reader->num_row_groups(); ++group) {
      groups.push_back(group);
      rows += metadata->RowGroup(group)->num_rows();
      if (rows < kRowsAtOnce && group + 1 < reader->num_row_groups()) continue;
      const auto table = checked(file,
                                 "cannot read rows " + std::to_string(first_row + 1) + " to " +
                                     std::to_string(first_row + rows),
                                 reader->ReadRowGroups(groups, leaves));
      if (table->num_rows() != rows) fail(file, "is damaged: a column has too few rows");
      visit_table(*in_order(*table, sorted, fields), first_row, visit);
      first_row += rows;
      rows = 0;
      groups.clear();
    }
  }

  /// Columns of `table`, which are `sorted`, in the order of `fields`.
  std::shared_ptr<arrow::Table> in_order(const arrow::Table& table, const std::vector<int>& sorted,
                                         const std::vector<int>& fields) const {
    std::vector<int> wanted;
    for (const int field : fields) {
      wanted.push_back(
          static_cast<int>(std::lower_bound(sorted.begin(), sorted.end(), field) - sorted.begin()));
    }
    return checked(file, "cannot select columns", table.SelectColumns(wanted));
  }

  std::filesystem::path file;
  std::unique_ptr<parquet::arrow::FileReader> reader;
};

struct TableFile::CsvSource final : TableFile::Source {
  explicit CsvSource(const std::filesystem::path& path) {
    check_is_utf8(path);
    const auto input =
        checked(path, "cannot be opened", arrow::io::ReadableFile::Open(path.string()));
    auto parse = arrow::csv::ParseOptions::Defaults();
    parse.delimiter = delimiter_of(path);
    const auto reader =
        checked(path, "is not a CSV file",
                arrow::csv::TableReader::Make(arrow::io::default_io_context(), input,
                                              arrow::csv::ReadOptions::Defaults(), parse,
                                              arrow::csv::ConvertOptions::Defaults()));
    table = checked(path, "cannot be read as CSV", reader->Read());
  }

  std::shared_ptr<arrow::Schema> schema() override { return table->schema(); }
  std::int64_t row_count() override { return table->num_rows(); }

  void read(const std::vector<int>& fields, const Visitor& visit) override {
    visit_table(*table->SelectColumns(fields).ValueOrDie(), 0, visit);
  }

  std::shared_ptr<arrow::Table> table;
};

TableFile::TableFile(const std::filesystem::path& file) : file_(file) {
  check_is_file(file);
  try {
    const std::string extension = lower_case(file.extension().string());
    if (extension == ".csv" || extension == ".tsv") {
      source_ = std::make_unique<CsvSource>(file);
    } else {
      source_ = std::make_unique<ParquetSource>(file);
    }
    // Kept by name: a temporary would be gone before the first turn of the loop.
    const auto schema = source_->schema();
    std::set<std::string> names;
    for (const auto& field : schema->fields()) {
      // Several may have no name: they are left out later.
      if (!names.insert(field->name()).second && !field->name().empty()) {
        fail(file, "has two columns named '" + field->name() + "'; rename one");
      }
      columns_.push_back({field->name(), field->type(), kind_of(*field->type())});
    }
    row_count_ = source_->row_count();
  } catch (const parquet::ParquetException& error) {
    fail(file, "is not a Parquet file" + reason(error.what()));
  }
  if (row_count_ == 0) fail(file, "the table has no rows");
}

TableFile::~TableFile() = default;

bool TableFile::has(const std::string& column) const {
  for (const auto& info : columns_) {
    if (info.name == column) return true;
  }
  return false;
}

const ColumnInfo& TableFile::column(const std::string& column, const std::string& role) const {
  std::vector<std::string> names;
  for (const auto& info : columns_) {
    if (info.name == column) return info;
    names.push_back(info.name);
  }
  fail(file_,
       "no column '" + column + "' (named as " + role + "); the columns are " + list_of(names, 40));
}

void TableFile::read(const std::vector<std::string>& names, const Visitor& visit) const {
  std::vector<int> fields;
  for (const auto& name : names) {
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (columns_[i].name == name) fields.push_back(static_cast<int>(i));
    }
  }
  try {
    source_->read(fields, visit);
  } catch (const parquet::ParquetException& error) {
    fail(file_, "cannot read " + list_of(names) + reason(error.what()));
  }
}

}  // namespace reprise::detail
