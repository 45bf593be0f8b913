// SPDX-License-Identifier: Apache-2.0
#include "tests/data_tables.h"

#include <arrow/io/api.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/writer.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>

namespace reprise::testing {
namespace {

struct TempFolder {
  TempFolder()
      : path(std::filesystem::temp_directory_path() /
             ("reprise_data_test_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::filesystem::path path;
};

}  // namespace

std::filesystem::path temp_path(const std::string& name) {
  static const TempFolder folder;
  return folder.path / name;
}

std::filesystem::path write_text(const std::string& name, const std::string& content) {
  const auto path = temp_path(name);
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

std::filesystem::path write_parquet(const std::string& name, const Columns& columns,
                                    std::int64_t rows_per_group, bool int96) {
  arrow::FieldVector fields;
  arrow::ArrayVector arrays;
  for (const auto& [column, array] : columns) {
    fields.push_back(arrow::field(column, array->type()));
    arrays.push_back(array);
  }
  const auto table = arrow::Table::Make(arrow::schema(fields), arrays);
  auto arrow_properties = parquet::ArrowWriterProperties::Builder();
  if (int96) {
    arrow_properties.enable_deprecated_int96_timestamps();
  } else {
    arrow_properties.store_schema();
  }
  const auto path = temp_path(name);
  const auto stream = arrow::io::FileOutputStream::Open(path.string()).ValueOrDie();
  const auto status =
      parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), stream, rows_per_group,
                                 parquet::default_writer_properties(), arrow_properties.build());
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_TRUE(stream->Close().ok());
  return path;
}

std::shared_ptr<arrow::Table> read_parquet(const std::filesystem::path& file) {
  const auto input = arrow::io::ReadableFile::Open(file.string()).ValueOrDie();
  const auto reader = parquet::arrow::OpenFile(input, arrow::default_memory_pool()).ValueOrDie();
  return reader->ReadTable().ValueOrDie();
}

std::shared_ptr<arrow::Array> reals(const std::vector<double>& values) {
  arrow::DoubleBuilder builder;
  EXPECT_TRUE(builder.AppendValues(values).ok());
  return builder.Finish().ValueOrDie();
}

std::shared_ptr<arrow::Array> integers(const std::vector<std::int64_t>& values) {
  arrow::Int64Builder builder;
  EXPECT_TRUE(builder.AppendValues(values).ok());
  return builder.Finish().ValueOrDie();
}

std::shared_ptr<arrow::Array> texts(const std::vector<std::string>& values) {
  arrow::StringBuilder builder;
  EXPECT_TRUE(builder.AppendValues(values).ok());
  return builder.Finish().ValueOrDie();
}

Columns Panel::columns() const {
  std::vector<std::string> ids;
  std::vector<std::int64_t> times;
  for (int s = 0; s < series; ++s) {
    for (int t = 0; t < steps; ++t) {
      ids.emplace_back(1, static_cast<char>('a' + s));
      times.push_back(t);
    }
  }
  Columns result = {{"id", texts(ids)}, {"time", integers(times)}};
  for (const auto& [name, value] : values) {
    std::vector<double> column;
    for (int s = 0; s < series; ++s) {
      for (int t = 0; t < steps; ++t) column.push_back(value(s, t));
    }
    result.emplace_back(name, reals(column));
  }
  return result;
}

std::filesystem::path Panel::write(const std::string& name) const {
  return write_parquet(name, columns());
}

double wave(int series, int step) {
  return 10.0 * series + std::sin(0.7 * step) + 0.01 * step;
}

DataOptions short_windows(std::int64_t encoder, std::int64_t horizon) {
  DataOptions options;
  options.encoder_length = encoder;
  options.horizon = horizon;
  return options;
}

std::string findings_of(const Dataset& dataset) {
  std::string text;
  for (const auto& finding : dataset.findings())
    text += finding.what + " -> " + finding.action + "\n";
  return text;
}

std::string fit_error(const std::filesystem::path& file, const DataOptions& options) {
  return error_of<DataError>([&] { Dataset::fit(file, options); });
}

bool same_bytes(const torch::Tensor& a, const torch::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  if (a.sizes() != b.sizes()) return false;
  // memcmp must not see the null pointers of empty tensors.
  return a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

bool same_inputs(const TftInput& a, const TftInput& b) {
  return same_bytes(a.static_real, b.static_real) &&
         same_bytes(a.static_categorical, b.static_categorical) &&
         same_bytes(a.observed_real, b.observed_real) &&
         same_bytes(a.observed_categorical, b.observed_categorical) &&
         same_bytes(a.known_real, b.known_real) &&
         same_bytes(a.known_categorical, b.known_categorical);
}

Panel perturbed(int from, double shift) {
  const auto shifted = [=](int s, int t) {
    return wave(s, t) + (t >= from ? shift : 0.0);
  };
  return {.series = 3,
          .steps = 100,
          .values = {{"y", shifted}, {"observed_x", shifted}, {"known_z", wave}}};
}

}  // namespace reprise::testing
