// SPDX-License-Identifier: Apache-2.0
#include "data/parquet_output_internal.h"

#include "reprise/errors.h"
#include "store/atomic_file.h"

#include <arrow/api.h>
#include <arrow/io/api.h>
#include <parquet/arrow/writer.h>

#include <algorithm>
#include <optional>

namespace reprise::detail {
namespace {

/// What Arrow writes goes into an `AtomicFile`; its error is kept, for a status has room for text
/// alone.
class AtomicStream final : public arrow::io::OutputStream {
 public:
  explicit AtomicStream(const std::filesystem::path& path) : file_(path) {
    set_mode(arrow::io::FileMode::WRITE);
  }

  arrow::Status Write(const void* data, std::int64_t size) override {
    try {
      file_.write({static_cast<const char*>(data), static_cast<std::size_t>(size)});
    } catch (const DataError& error) {
      error_ = error;
      return arrow::Status::IOError(error.what());
    }
    position_ += size;
    return arrow::Status::OK();
  }
  using arrow::io::OutputStream::Write;

  arrow::Status Close() override {
    is_closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return is_closed_; }
  arrow::Result<std::int64_t> Tell() const override { return position_; }

  void commit() { file_.commit(); }
  const std::optional<DataError>& error() const { return error_; }

 private:
  AtomicFile file_;
  std::int64_t position_ = 0;
  bool is_closed_ = false;
  std::optional<DataError> error_;
};

}  // namespace

struct ParquetOutput::Impl {
  std::shared_ptr<AtomicStream> stream;
  std::unique_ptr<parquet::arrow::FileWriter> writer;
};

ParquetOutput::ParquetOutput(const std::filesystem::path& file,
                             const std::shared_ptr<arrow::Schema>& schema)
    : file_(file), impl_(std::make_unique<Impl>()) {
  impl_->stream = std::make_shared<AtomicStream>(file);
  parquet::WriterProperties::Builder properties;
  for (const auto& field : schema->fields()) {
    // Measured values hardly repeat: a dictionary of them would only be built to be thrown away.
    if (arrow::is_floating(field->type()->id())) properties.disable_dictionary(field->name());
  }
  const auto arrow_properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
  auto writer = parquet::arrow::FileWriter::Open(
      *schema, arrow::default_memory_pool(), impl_->stream, properties.build(), arrow_properties);
  check(writer.status());
  impl_->writer = std::move(*writer);
}

ParquetOutput::~ParquetOutput() = default;

void ParquetOutput::write(const arrow::RecordBatch& rows) {
  const auto table = arrow::Table::FromRecordBatches(
      {arrow::RecordBatch::Make(rows.schema(), rows.num_rows(), rows.columns())});
  check(table.status());
  check(impl_->writer->WriteTable(**table, std::max<std::int64_t>(1, rows.num_rows())));
}

void ParquetOutput::commit() {
  check(impl_->writer->Close());
  impl_->stream->commit();
}

void ParquetOutput::check(const arrow::Status& status) const {
  if (status.ok()) return;
  if (impl_->stream->error()) throw DataError(*impl_->stream->error());
  throw DataError(file_.string() + ": cannot be written (" + status.message() + ")");
}

}  // namespace reprise::detail
