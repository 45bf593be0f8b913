// SPDX-License-Identifier: Apache-2.0
#include "data/dataset_internal.h"

#include "reprise/memory.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace reprise::detail {
namespace {

/// Smallest deviation of a window's encoder, in deviations of its series: a flat encoder must not
/// blow up what follows.
constexpr double kSmallestWindowScale = 0.1;

/// Makes `tensor` one of these sizes, keeping it where it already is and nobody else can see it.
template <typename T>
T* prepare(torch::Tensor& tensor, std::initializer_list<std::int64_t> sizes) {
  const std::vector<std::int64_t> wanted(sizes);
  if (wanted.back() == 0) {
    tensor.reset();
    return nullptr;
  }
  const auto type = c10::CppTypeToScalarType<T>::value;
  const bool is_ours = tensor.defined() && tensor.use_count() == 1 && tensor.device().is_cpu() &&
                       tensor.scalar_type() == type &&
                       tensor.sizes() == torch::IntArrayRef(wanted) && tensor.is_contiguous() &&
                       tensor.storage().use_count() == 1 && !tensor.requires_grad();
  if (!is_ours) {
    const MemoryCategoryScope category(MemoryCategory::kBatch);
    tensor.reset();  // first, so that both are never there at once
    tensor = torch::empty(wanted, torch::dtype(type));
  }
  return tensor.mutable_data_ptr<T>();
}

/// Pointers to where a batch is written.
struct Output {
  Output(const DatasetRows& rows, std::int64_t batch_size, Batch& batch) {
    const auto& options = rows.schema.options;
    const std::int64_t encoder = options.encoder_length;
    const std::int64_t steps = encoder + options.horizon;
    auto& input = batch.input;
    static_real = prepare<float>(input.static_real, {batch_size, rows.static_real.columns});
    static_categorical = prepare<std::int64_t>(input.static_categorical,
                                               {batch_size, rows.static_categorical.columns});
    observed_real =
        prepare<float>(input.observed_real, {batch_size, encoder, rows.observed_real.columns});
    observed_categorical = prepare<std::int64_t>(
        input.observed_categorical, {batch_size, encoder, rows.observed_categorical.columns});
    known_real = prepare<float>(input.known_real, {batch_size, steps, rows.known_real.columns});
    known_categorical = prepare<std::int64_t>(input.known_categorical,
                                              {batch_size, steps, rows.known_categorical.columns});
    target = prepare<float>(batch.target, {batch_size, options.horizon});
    center = prepare<double>(batch.center, {batch_size});
    scale = prepare<double>(batch.scale, {batch_size});
  }

  float* static_real;
  std::int64_t* static_categorical;
  float* observed_real;
  std::int64_t* observed_categorical;
  float* known_real;
  std::int64_t* known_categorical;
  float* target;
  double* center;
  double* scale;
};

/// Copies rows [row, row + count) as they lie.
void copy_rows(const Matrix<float>& from, std::int64_t row, std::int64_t count, float*& out) {
  if (from.columns == 0) return;
  std::memcpy(out, from.row(row), static_cast<std::size_t>(count * from.columns) * sizeof(float));
  out += count * from.columns;
}

template <typename T>
void copy_codes(const Matrix<T>& from, std::int64_t row, std::int64_t count, std::int64_t*& out) {
  if (from.columns == 0) return;
  const T* codes = from.row(row);
  out = std::copy(codes, codes + count * from.columns, out);
}

/// Scaler of a window within its series: of the encoder's rows alone, never the horizon's.
Scaler window_scaler(const float* past, std::int64_t count) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < count; ++i) sum += past[i];
  const double mean = sum / static_cast<double>(count);
  double squares = 0.0;
  for (std::int64_t i = 0; i < count; ++i) squares += (past[i] - mean) * (past[i] - mean);
  return {mean, std::max(std::sqrt(squares / static_cast<double>(count)), kSmallestWindowScale)};
}

/// Writes `count` values, scaled once more, into a column of a row-major block.
void write_column(const float* values, std::int64_t count, const Scaler& scaler, float* out,
                  std::int64_t columns) {
  if (scaler == Scaler{}) {
    for (std::int64_t i = 0; i < count; ++i) out[i * columns] = values[i];
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    out[i * columns] = static_cast<float>((values[i] - scaler.center) / scaler.scale);
  }
}

/// A draw from [0, 1) that depends on its arguments alone (the finaliser of SplitMix64).
double draw(std::uint64_t seed, const Window& window, std::uint64_t variable) {
  const auto mix = [](std::uint64_t x) {
    x += 0x9E3779B97F4A7C15ULL;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
    return x ^ (x >> 31);
  };
  const auto place = (static_cast<std::uint64_t>(static_cast<std::uint32_t>(window.series)) << 32) |
                     static_cast<std::uint32_t>(window.origin);
  return static_cast<double>(mix(mix(mix(seed) ^ place) ^ variable) >> 11) * 0x1.0p-53;
}

class Gatherer {
 public:
  Gatherer(const DatasetRows& rows, const GatherOptions& options, std::int64_t batch_size,
           Batch& batch)
      : rows_(rows), options_(options), out_(rows, batch_size, batch) {
    const auto& calendar = rows.schema.options.calendar;
    calendar_ = calendar == std::vector<std::string>{"none"}
                    ? 0
                    : static_cast<std::int64_t>(calendar.size());
    target_name_ = rows.schema.options.target.size() > 1 ? 1 : 0;
  }

  void add(const Window& window) {
    check(window);
    const auto& series = rows_.series[static_cast<std::size_t>(window.series)];
    const auto& group = rows_.groups[static_cast<std::size_t>(series.group)];
    const std::int64_t first = group.begin + window.origin - encoder_;
    const float* target = rows_.target[static_cast<std::size_t>(series.target)].data();
    Scaler scaler;
    if (rows_.schema.options.normalize == Normalization::kWindow)
      scaler = window_scaler(target + first, encoder_);

    float* const observed = out_.observed_real;
    float* const known = out_.known_real;
    copy_rows(rows_.observed_real, first, encoder_, out_.observed_real);
    copy_rows(rows_.known_real, first, encoder_ + horizon_, out_.known_real);
    copy_rows(rows_.static_real, window.series, 1, out_.static_real);
    write_column(target + first, encoder_, scaler, observed, rows_.observed_real.columns);
    const auto& lags = rows_.schema.options.lags;
    for (std::size_t i = 0; i < lags.size(); ++i) {
      const std::int64_t column =
          rows_.known_real.columns - static_cast<std::int64_t>(lags.size() - i);
      write_column(target + first - lags[i], encoder_ + horizon_, scaler, known + column,
                   rows_.known_real.columns);
    }
    write_column(target + first + encoder_, horizon_, scaler, out_.target, 1);
    out_.target += horizon_;
    *out_.center++ = series.scaler.center + series.scaler.scale * scaler.center;
    *out_.scale++ = series.scaler.scale * scaler.scale;
    add_codes(window, first);
  }

 private:
  void add_codes(const Window& window, std::int64_t first) {
    std::int64_t* const statics = out_.static_categorical;
    std::int64_t* const observed = out_.observed_categorical;
    std::int64_t* const known = out_.known_categorical;
    copy_codes(rows_.static_categorical, window.series, 1, out_.static_categorical);
    copy_codes(rows_.observed_categorical, first, encoder_, out_.observed_categorical);
    copy_codes(rows_.known_categorical, first, encoder_ + horizon_, out_.known_categorical);
    if (options_.unknown_rate <= 0.0) return;
    hide(window, 0, statics, 1, rows_.static_categorical.columns, target_name_);
    hide(window, 1, observed, encoder_, rows_.observed_categorical.columns, 0);
    hide(window, 2, known, encoder_ + horizon_, rows_.known_categorical.columns, calendar_);
  }

  /// Makes code 0 of some variables, all but the last `spared` of a block.
  void hide(const Window& window, std::uint64_t block, std::int64_t* codes, std::int64_t steps,
            std::int64_t columns, std::int64_t spared) const {
    for (std::int64_t column = 0; column < columns - spared; ++column) {
      const auto variable = (block << 32) | static_cast<std::uint64_t>(column);
      if (draw(options_.seed, window, variable) >= options_.unknown_rate) continue;
      for (std::int64_t step = 0; step < steps; ++step) codes[step * columns + column] = 0;
    }
  }

  void check(const Window& window) const {
    TORCH_CHECK_VALUE(
        window.series >= 0 && window.series < static_cast<std::int64_t>(rows_.series.size()),
        "gather: window of series ", window.series, ", the data set has ", rows_.series.size());
    const auto& series = rows_.series[static_cast<std::size_t>(window.series)];
    const auto& group = rows_.groups[static_cast<std::size_t>(series.group)];
    const std::int64_t first = window.origin - rows_.history_rows();
    const std::int64_t end = window.origin + horizon_;
    TORCH_CHECK_VALUE(first >= 0 && end <= group.rows && window.origin <= series.known_rows,
                      "gather: a window at row ", window.origin, " of series ", window.series,
                      " needs rows ", first, " to ", end, ", the series has ", group.rows,
                      " of which ", series.known_rows, " with a known target");
    const std::int32_t run_begin = rows_.run_begin[static_cast<std::size_t>(group.begin + end - 1)];
    TORCH_CHECK_VALUE(run_begin <= first, "gather: the window at row ", window.origin,
                      " of series ", window.series, " crosses the gap in time before row ",
                      run_begin);
  }

  const DatasetRows& rows_;
  const GatherOptions& options_;
  Output out_;
  std::int64_t calendar_ = 0;
  std::int64_t target_name_ = 0;
  const std::int64_t encoder_ = rows_.schema.options.encoder_length;
  const std::int64_t horizon_ = rows_.schema.options.horizon;
};

}  // namespace

void allocate_batch(const DatasetRows& rows, std::int64_t batch_size, Batch& batch) {
  const Output output(rows, batch_size, batch);
}

void gather_rows(const DatasetRows& rows, std::span<const Window> windows,
                 const GatherOptions& options, Batch& batch) {
  TORCH_CHECK_VALUE(!windows.empty(), "gather: no windows");
  Gatherer gatherer(rows, options, static_cast<std::int64_t>(windows.size()), batch);
  for (const auto& window : windows) gatherer.add(window);
}

}  // namespace reprise::detail
