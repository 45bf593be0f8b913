// SPDX-License-Identifier: Apache-2.0
#include "data/scaling_internal.h"

#include "reprise/errors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace reprise::detail {
namespace {

// Of the mean: a deviation below it is taken for rounding.
constexpr double kConstantShare = 1e-12;

}  // namespace

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
  return deviation() <= kConstantShare * std::abs(mean) || deviation() < 1e-30;
}

Scaler Moments::scaler() const {
  if (!is_constant()) return {mean, deviation()};
  // The mean of equal values of 1e30 is off by 1e14: divided by 1, that would be a loss beyond all
  // others.
  return {mean, std::max(1.0, kConstantShare * std::abs(mean))};
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
