// SPDX-License-Identifier: Apache-2.0
#include "data/scaling_internal.h"

#include "reprise/errors.h"

#include <cmath>
#include <limits>
#include <string>

namespace reprise::detail {

void Moments::merge(const Moments& other) {
  if (other.count == 0) return;
  const auto total = static_cast<double>(count + other.count);
  const double distance = other.mean - mean;
  squares += other.squares + distance * distance * static_cast<double>(count) *
                                 static_cast<double>(other.count) / total;
  mean += distance * static_cast<double>(other.count) / total;
  count += other.count;
}

double Moments::deviation() const {
  return count == 0 ? 0.0 : std::sqrt(squares / static_cast<double>(count));
}

bool Moments::is_constant() const {
  // Equal doubles differ from their computed mean by about 1e-16 of it; below 1e-30 the scaled
  // values would overflow.
  return deviation() <= 1e-12 * std::abs(mean) || deviation() < 1e-30;
}

Scaler Moments::scaler() const {
  return {mean, is_constant() ? 1.0 : deviation()};
}

float normalise(double raw, const Scaler& scaler, const char* column) {
  const double value = (raw - scaler.center) / scaler.scale;
  if (std::abs(value) > std::numeric_limits<float>::max()) {
    throw DataError(std::string("column '") + column + "': " + std::to_string(raw) +
                    " is too far from the training rows (center " + std::to_string(scaler.center) +
                    ", scale " + std::to_string(scaler.scale) + ")");
  }
  return static_cast<float>(value);
}

}  // namespace reprise::detail
