// SPDX-License-Identifier: Apache-2.0
#include "reprise/forecast_table.h"

#include "data/parquet_output_internal.h"
#include "data/text_internal.h"
#include "reprise/errors.h"

#include <arrow/api.h>

#include <algorithm>
#include <charconv>

namespace reprise {
namespace {

std::string quantile_name(double quantile) {
  char buffer[32];
  return "q" + std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, quantile).ptr);
}

std::shared_ptr<arrow::DataType> time_type(const Schema& schema) {
  switch (schema.time_unit) {
    case TimeUnit::kStep:
      return arrow::int64();
    case TimeUnit::kDay:
      return arrow::date32();
    case TimeUnit::kSecond:
      return arrow::timestamp(arrow::TimeUnit::SECOND, schema.time_zone);
    case TimeUnit::kMillisecond:
      return arrow::timestamp(arrow::TimeUnit::MILLI, schema.time_zone);
    case TimeUnit::kMicrosecond:
      return arrow::timestamp(arrow::TimeUnit::MICRO, schema.time_zone);
    case TimeUnit::kNanosecond:
      return arrow::timestamp(arrow::TimeUnit::NANO, schema.time_zone);
  }
  TORCH_INTERNAL_ASSERT(false, "unknown time unit");
}

void must(const arrow::Status& status) {
  if (!status.ok()) throw DataError("write_forecasts: " + status.message());
}

std::shared_ptr<arrow::Schema> table_schema(const Schema& schema,
                                            const std::vector<double>& quantiles) {
  std::vector<std::string> own = {"origin", "time", "horizon"};
  if (schema.options.target.size() > 1) own.insert(own.begin(), "target");
  for (const double quantile : quantiles) own.push_back(quantile_name(quantile));
  arrow::FieldVector fields;
  for (auto name : schema.options.id) {
    while (std::find(own.begin(), own.end(), name) != own.end()) name += "_";
    fields.push_back(arrow::field(name, arrow::utf8(), false));
  }
  for (const auto& name : own) {
    auto type = arrow::float64();
    if (name == "target") type = arrow::utf8();
    if (name == "origin" || name == "time") type = time_type(schema);
    if (name == "horizon") type = arrow::int32();
    fields.push_back(arrow::field(name, type, false));
  }
  return arrow::schema(fields);
}

void append_time(arrow::ArrayBuilder& builder, std::int64_t time) {
  switch (builder.type()->id()) {
    case arrow::Type::DATE32:
      return must(
          static_cast<arrow::Date32Builder&>(builder).Append(static_cast<std::int32_t>(time)));
    case arrow::Type::TIMESTAMP:
      return must(static_cast<arrow::TimestampBuilder&>(builder).Append(time));
    default:
      return must(static_cast<arrow::Int64Builder&>(builder).Append(time));
  }
}

}  // namespace

struct ForecastWriter::Impl {
  Impl(const std::filesystem::path& file, const Schema& schema, std::vector<double> levels)
      : quantiles(std::move(levels)),
        horizon(schema.options.horizon),
        table(table_schema(schema, quantiles)),
        output(file, table) {}

  std::vector<double> quantiles;
  std::int64_t horizon;
  std::shared_ptr<arrow::Schema> table;
  detail::ParquetOutput output;
};

ForecastWriter::ForecastWriter(const std::filesystem::path& file, const Schema& schema,
                               std::vector<double> quantiles)
    : impl_(std::make_unique<Impl>(file, schema, std::move(quantiles))) {}

ForecastWriter::~ForecastWriter() = default;

void ForecastWriter::append(const Dataset& dataset, std::span<const Window> windows,
                            const torch::Tensor& forecasts) {
  const auto count = static_cast<std::int64_t>(windows.size());
  const auto quantiles = static_cast<std::int64_t>(impl_->quantiles.size());
  TORCH_CHECK_VALUE(forecasts.sizes() == torch::IntArrayRef({count, impl_->horizon, quantiles}),
                    "ForecastWriter: expected forecasts [", count, ", ", impl_->horizon, ", ",
                    quantiles, "], got ", forecasts.sizes());
  if (windows.empty()) return;
  const auto values = forecasts.detach().to(torch::kCPU, torch::kDouble).contiguous();
  const double* value = values.const_data_ptr<double>();
  auto builder = arrow::RecordBatchBuilder::Make(impl_->table, arrow::default_memory_pool(),
                                                 count * impl_->horizon);
  must(builder.status());
  for (const auto& window : windows) {
    const auto& key = dataset.series_key(window);
    const std::int64_t origin = dataset.time_at(window, -1);
    for (std::int64_t step = 0; step < impl_->horizon; ++step) {
      int column = 0;
      for (const auto& part : key)
        must((*builder)->GetFieldAs<arrow::StringBuilder>(column++)->Append(part));
      append_time(*(*builder)->GetField(column++), origin);
      append_time(*(*builder)->GetField(column++), dataset.time_at(window, step));
      must((*builder)->GetFieldAs<arrow::Int32Builder>(column++)->Append(
          static_cast<std::int32_t>(step + 1)));
      for (std::int64_t q = 0; q < quantiles; ++q) {
        must((*builder)->GetFieldAs<arrow::DoubleBuilder>(column++)->Append(*value++));
      }
    }
  }
  auto batch = (*builder)->Flush();
  must(batch.status());
  impl_->output.write(**batch);
}

void ForecastWriter::finish() {
  impl_->output.commit();
}

void write_forecasts(const std::filesystem::path& file, const Dataset& dataset,
                     std::span<const Window> windows, const torch::Tensor& forecasts,
                     const std::vector<double>& quantiles) {
  ForecastWriter writer(file, dataset.schema(), quantiles);
  writer.append(dataset, windows, forecasts);
  writer.finish();
}

}  // namespace reprise
