// SPDX-License-Identifier: Apache-2.0
#include "data/parquet_output_internal.h"

#include "reprise/errors.h"

#include <arrow/api.h>
#include <arrow/io/api.h>
#include <parquet/arrow/writer.h>

#include <unistd.h>

#include <fcntl.h>

namespace reprise::detail {

struct ParquetOutput::Impl {
  std::shared_ptr<arrow::io::FileOutputStream> stream;
  std::unique_ptr<parquet::arrow::FileWriter> writer;
};

ParquetOutput::ParquetOutput(const std::filesystem::path& file,
                             const std::shared_ptr<arrow::Schema>& schema)
    : file_(file),
      partial_(file.string() + ".partial-" + std::to_string(::getpid())),
      impl_(std::make_unique<Impl>()) {
  auto stream = arrow::io::FileOutputStream::Open(partial_.string());
  check(stream.status());
  impl_->stream = *stream;
  parquet::WriterProperties::Builder properties;
  for (const auto& field : schema->fields()) {
    // Measured values hardly repeat: a dictionary of them would only be built to be thrown away.
    if (arrow::is_floating(field->type()->id())) properties.disable_dictionary(field->name());
  }
  const auto arrow_properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
  auto writer = parquet::arrow::FileWriter::Open(
      *schema, arrow::default_memory_pool(), impl_->stream, properties.build(), arrow_properties);
  if (!writer.ok()) std::filesystem::remove(partial_);
  check(writer.status());
  impl_->writer = std::move(*writer);
}

ParquetOutput::~ParquetOutput() {
  if (partial_.empty()) return;
  impl_.reset();
  std::error_code ignored;
  std::filesystem::remove(partial_, ignored);
}

void ParquetOutput::write(const arrow::RecordBatch& rows) {
  const auto table = arrow::Table::FromRecordBatches(
      {arrow::RecordBatch::Make(rows.schema(), rows.num_rows(), rows.columns())});
  check(table.status());
  check(impl_->writer->WriteTable(**table, std::max<std::int64_t>(1, rows.num_rows())));
}

void ParquetOutput::commit() {
  check(impl_->writer->Close());
  check(impl_->stream->Close());
  const int descriptor = ::open(partial_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor >= 0) {
    ::fsync(descriptor);
    ::close(descriptor);
  }
  std::error_code error;
  std::filesystem::rename(partial_, file_, error);
  if (error) throw DataError(file_.string() + ": cannot be written (" + error.message() + ")");
  partial_.clear();
}

void ParquetOutput::check(const arrow::Status& status) const {
  if (!status.ok())
    throw DataError(file_.string() + ": cannot be written (" + status.message() + ")");
}

}  // namespace reprise::detail
