// SPDX-License-Identifier: Apache-2.0
#include "reprise/quantile_loss.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

namespace reprise {
namespace {

void check(const at::Tensor& prediction, const at::Tensor& target, std::size_t quantiles,
           const char* who) {
  TORCH_CHECK_VALUE(prediction.dim() == 3 && target.dim() == 2 &&
                        prediction.size(0) == target.size(0) &&
                        prediction.size(1) == target.size(1) &&
                        prediction.size(2) == static_cast<std::int64_t>(quantiles),
                    who, ": expected prediction [B, H, ", quantiles, "] and target [B, H], got ",
                    prediction.sizes(), " and ", target.sizes());
}

/// q (y - f) where the forecast is too low, (1 - q) (f - y) where it is too high: [B, H, Q].
at::Tensor pinball(const at::Tensor& prediction, const at::Tensor& target,
                   const std::vector<double>& quantiles) {
  const auto error = target.unsqueeze(-1) - prediction;
  const auto q = at::tensor(quantiles, error.options().dtype(at::kDouble)).to(error.scalar_type());
  return at::maximum(error * q, error * (q - 1));
}

}  // namespace

at::Tensor quantile_loss(const at::Tensor& prediction, const at::Tensor& target,
                         const std::vector<double>& quantiles, const at::Tensor& mask) {
  check(prediction, target, quantiles.size(), "quantile_loss");
  const auto loss = pinball(prediction, target, quantiles).sum(-1);
  if (!mask.defined()) return loss.mean();
  TORCH_CHECK_VALUE(mask.sizes() == target.sizes(), "quantile_loss: expected mask ", target.sizes(),
                    " as the target, got ", mask.sizes());
  const auto counted = mask.to(loss.scalar_type());
  // where, not times: a target that does not count may be NaN
  return at::where(mask.to(at::kBool), loss, at::zeros({}, loss.options())).sum() /
         counted.sum().clamp_min(1);
}

QuantileRisk::QuantileRisk(std::vector<double> quantiles)
    : quantiles_(std::move(quantiles)), loss_sum_(quantiles_.size()), covered_(quantiles_.size()) {}

void QuantileRisk::add(const at::Tensor& prediction, const at::Tensor& target) {
  check(prediction, target, quantiles_.size(), "QuantileRisk");
  const auto forecast = prediction.detach().to(at::kCPU, at::kDouble);
  const auto actual = target.detach().to(at::kCPU, at::kDouble);
  const auto loss = pinball(forecast, actual, quantiles_).sum(at::IntArrayRef{0, 1}).contiguous();
  const auto covered =
      (actual.unsqueeze(-1) <= forecast).to(at::kDouble).sum(at::IntArrayRef{0, 1}).contiguous();
  for (std::size_t i = 0; i < quantiles_.size(); ++i) {
    loss_sum_[i] += loss.data_ptr<double>()[i];
    covered_[i] += covered.data_ptr<double>()[i];
  }
  absolute_target_sum_ += actual.abs().sum().item<double>();
  count_ += static_cast<double>(actual.numel());
}

std::vector<double> QuantileRisk::risk() const {
  std::vector<double> risk;
  for (double sum : loss_sum_) {
    risk.push_back(absolute_target_sum_ > 0 ? 2 * sum / absolute_target_sum_
                                            : std::numeric_limits<double>::quiet_NaN());
  }
  return risk;
}

std::vector<double> QuantileRisk::coverage() const {
  std::vector<double> coverage;
  for (double covered : covered_) {
    coverage.push_back(count_ > 0 ? covered / count_ : std::numeric_limits<double>::quiet_NaN());
  }
  return coverage;
}

}  // namespace reprise
