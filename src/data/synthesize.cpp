// SPDX-License-Identifier: Apache-2.0
#include "reprise/synthesize.h"

#include "data/parquet_output_internal.h"
#include "data/text_internal.h"
#include "reprise/errors.h"

#include <arrow/api.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace reprise {
namespace {

/// Cells held before they are written as a row group.
constexpr std::int64_t kCellsAtOnce = 1 << 22;
/// Only the first columns of a role carry signal, each with this weight.
constexpr std::int64_t kSignalColumns = 4;
constexpr double kSignalWeight = 0.35;
constexpr std::int64_t kCategories = 5;

/// Random numbers that are the same on every platform (SplitMix64, Box and Muller 1958).
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t stream)
      : state_(seed * 0x9E3779B97F4A7C15ULL ^ mix(stream + 1)) {}

  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

 private:
  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
    return x ^ (x >> 31);
  }
  std::uint64_t next() { return mix(state_ += 0x9E3779B97F4A7C15ULL); }

  std::uint64_t state_;
};

/// The rows of one series, one after another.
class SeriesSource {
 public:
  SeriesSource(const SynthesizeOptions& options, std::int64_t series)
      : options_(options), random_(options.seed, static_cast<std::uint64_t>(series)) {
    for (std::int64_t i = 0; i < options.static_reals; ++i)
      static_reals.push_back(random_.normal());
    for (std::int64_t i = 0; i < options.static_categoricals; ++i) {
      static_codes.push_back(static_cast<std::int64_t>(random_.uniform() * kCategories));
    }
    level_ = static_reals.empty() ? 0.0 : static_reals.front();
    phase_ = static_codes.empty() ? 0.0 : static_cast<double>(static_codes.front()) / kCategories;
    observed.resize(static_cast<std::size_t>(options.observed));
    known.resize(static_cast<std::size_t>(options.known));
    drivers_.assign(static_cast<std::size_t>(options.season * kSignalColumns), 0.0);
  }

  /// Moves on to row `step` of the series.
  void advance(std::int64_t step) {
    for (auto& value : observed)
      value = 0.9 * value + 0.436 * random_.normal();                          // 0.81 + 0.436^2 = 1
    for (auto& value : known) value = 0.7 * value + 0.714 * random_.normal();  // 0.49 + 0.714^2 = 1
    const double cycle =
        static_cast<double>(step % options_.season) / static_cast<double>(options_.season) + phase_;
    target = level_ + std::sin(2.0 * std::numbers::pi * cycle) + options_.noise * random_.normal();
    const auto drivers = static_cast<std::size_t>(step % options_.season * kSignalColumns);
    for (std::size_t i = 0; i < static_cast<std::size_t>(kSignalColumns); ++i) {
      if (i < known.size()) target += kSignalWeight * known[i];
      // The slot still holds what was observed one season ago.
      target += kSignalWeight * drivers_[drivers + i];
      drivers_[drivers + i] = i < observed.size() ? observed[i] : 0.0;
    }
  }

  std::vector<double> static_reals;
  std::vector<std::int64_t> static_codes;
  std::vector<double> observed;
  std::vector<double> known;
  double target = 0.0;

 private:
  const SynthesizeOptions& options_;
  Random random_;
  double level_ = 0.0;
  double phase_ = 0.0;
  std::vector<double> drivers_;  ///< [season, kSignalColumns] a ring of observed values
};

std::shared_ptr<arrow::Schema> table_schema(const SynthesizeOptions& options) {
  arrow::FieldVector fields = {arrow::field("id", arrow::utf8(), false),
                               arrow::field("time", arrow::int64(), false)};
  const auto add = [&](const std::string& prefix, std::int64_t count,
                       const std::shared_ptr<arrow::DataType>& type) {
    for (std::int64_t i = 0; i < count; ++i)
      fields.push_back(arrow::field(prefix + std::to_string(i), type, false));
  };
  add("static_real_", options.static_reals, arrow::float32());
  add("static_category_", options.static_categoricals, arrow::utf8());
  fields.push_back(arrow::field("target", arrow::float32(), false));
  add("observed_", options.observed, arrow::float32());
  add("known_", options.known, arrow::float32());
  return arrow::schema(fields);
}

void must(const arrow::Status& status) {
  if (!status.ok()) throw DataError("synthesize: " + status.message());
}

/// Collects rows and writes them as row groups.
class TableBuilder {
 public:
  TableBuilder(const std::filesystem::path& file, const SynthesizeOptions& options)
      : schema_(table_schema(options)), output_(file, schema_) {
    auto builder = arrow::RecordBatchBuilder::Make(schema_, arrow::default_memory_pool());
    must(builder.status());
    builder_ = std::move(*builder);
    rows_at_once_ = std::clamp<std::int64_t>(kCellsAtOnce / schema_->num_fields(), 1024, 1 << 18);
  }

  void add(std::int64_t series, std::int64_t time, const SeriesSource& source) {
    int column = 0;
    const auto add_real = [&](double value) {
      must(builder_->GetFieldAs<arrow::FloatBuilder>(column++)->Append(static_cast<float>(value)));
    };
    must(builder_->GetFieldAs<arrow::StringBuilder>(column++)->Append("series_" +
                                                                      std::to_string(series)));
    must(builder_->GetFieldAs<arrow::Int64Builder>(column++)->Append(time));
    for (const double value : source.static_reals) add_real(value);
    for (const std::int64_t code : source.static_codes) {
      must(builder_->GetFieldAs<arrow::StringBuilder>(column++)->Append("kind_" +
                                                                        std::to_string(code)));
    }
    add_real(source.target);
    for (const double value : source.observed) add_real(value);
    for (const double value : source.known) add_real(value);
    if (++rows_ == rows_at_once_) flush();
  }

  void finish() {
    if (rows_ > 0) flush();
    output_.commit();
  }

 private:
  void flush() {
    auto batch = builder_->Flush();
    must(batch.status());
    output_.write(**batch);
    rows_ = 0;
  }

  std::shared_ptr<arrow::Schema> schema_;
  detail::ParquetOutput output_;
  std::unique_ptr<arrow::RecordBatchBuilder> builder_;
  std::int64_t rows_ = 0;
  std::int64_t rows_at_once_ = 0;
};

}  // namespace

void SynthesizeOptions::validate() const {
  const auto check = [](const char* field, std::int64_t value, std::int64_t least) {
    constexpr std::int64_t kMost = std::int64_t{1} << 40;
    if (value < least || value > kMost) {
      throw OptionError(field, std::string(field) + ": is " + std::to_string(value) + ", must be " +
                                   std::to_string(least) + " to " + std::to_string(kMost));
    }
  };
  check("series", series, 1);
  check("steps", steps, 1);
  check("static_reals", static_reals, 0);
  check("static_categoricals", static_categoricals, 0);
  check("observed", observed, 0);
  check("known", known, 0);
  check("start", start, -(std::int64_t{1} << 40));
  check("season", season, 1);
  if (static_reals + static_categoricals + observed + known > 100'000) {
    throw OptionError("observed", "observed: with the other columns there are more than 100000");
  }
  if (!(noise >= 0.0) || !std::isfinite(noise))
    throw OptionError("noise", "noise: must be finite and not negative");
}

SynthesizeOptions synthesize_preset(const std::string& name) {
  if (name != "tft-225")
    throw OptionError("preset", "preset: '" + name + "' is not known; there is 'tft-225'");
  return {.series = 100,
          .steps = 1000,
          .static_reals = 3,
          .static_categoricals = 2,
          .observed = 199,
          .known = 10};
}

void synthesize(const std::filesystem::path& file, const SynthesizeOptions& options) {
  options.validate();
  TableBuilder table(file, options);
  for (std::int64_t series = 0; series < options.series; ++series) {
    SeriesSource source(options, series);
    for (std::int64_t step = 0; step < options.steps; ++step) {
      source.advance(step);
      table.add(series, options.start + step, source);
    }
  }
  table.finish();
}

}  // namespace reprise
