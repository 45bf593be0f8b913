// SPDX-License-Identifier: Apache-2.0
/// Quantile (pinball) loss and q-risk.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace reprise {

/// Quantile loss (Lim et al. 2021, eq. 24 and 25): sum over quantiles of the mean over samples and
/// steps.
///
/// `prediction` [B, H, Q], `target` [B, H]; `mask` [B, H] is 1 where the target counts (undefined:
/// everywhere); steps that do not count are left out of the denominator too. Returns a scalar.
at::Tensor quantile_loss(const at::Tensor& prediction, const at::Tensor& target,
                         const std::vector<double>& quantiles, const at::Tensor& mask = {});

/// q-risk (Lim et al. 2021, eq. 26) per quantile, summed over any number of batches: a ratio of
/// sums in float64.
class QuantileRisk {
 public:
  explicit QuantileRisk(std::vector<double> quantiles);

  /// `prediction` [B, H, Q] and `target` [B, H] in the original units.
  void add(const at::Tensor& prediction, const at::Tensor& target);

  const std::vector<double>& quantiles() const { return quantiles_; }
  /// 2 sum QL / sum |y| per quantile; NaN while nothing was added or when every target is zero.
  std::vector<double> risk() const;
  /// Share of targets at or below each quantile's forecast, in [0, 1].
  std::vector<double> coverage() const;

 private:
  std::vector<double> quantiles_;
  std::vector<double> loss_sum_;
  std::vector<double> covered_;
  double absolute_target_sum_ = 0.0;
  double count_ = 0.0;
};

}  // namespace reprise
