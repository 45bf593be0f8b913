// SPDX-License-Identifier: Apache-2.0
/// Means and standard deviations, and the scalers made of them.
#pragma once

#include "reprise/schema.h"

#include <cstdint>

namespace reprise::detail {

/// Count, mean and sum of squared deviations.
struct Moments {
  std::int64_t count = 0;
  double mean = 0.0;
  double squares = 0.0;

  /// Of `count` values `at(i)`, in two passes: exact also where the mean is large.
  template <typename At>
  static Moments of(std::int64_t count, const At& at) {
    Moments moments{.count = count};
    if (count == 0) return moments;
    double sum = 0.0;
    for (std::int64_t i = 0; i < count; ++i) sum += at(i);
    moments.mean = sum / static_cast<double>(count);
    for (std::int64_t i = 0; i < count; ++i) {
      const double deviation = at(i) - moments.mean;
      moments.squares += deviation * deviation;
    }
    return moments;
  }

  /// Joins the values of `other` to these (Chan, Golub and LeVeque 1979).
  void merge(const Moments& other);

  /// Population standard deviation.
  double deviation() const;
  /// Whether the deviation is nothing but rounding.
  bool is_constant() const;
  /// Mean and deviation; scale 1 where the values are constant or missing.
  Scaler scaler() const;
};

/// `raw` normalised, as it is stored. Throws `DataError` naming `column` where the result is beyond
/// float32.
float normalise(double raw, const Scaler& scaler, const char* column);

}  // namespace reprise::detail
