// SPDX-License-Identifier: Apache-2.0
#include "reprise/save_policy.h"

#include "autograd/operator_observer.h"
#include "checkpoint/kept_results.h"
#include "reprise/errors.h"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <set>

namespace reprise {
namespace {

void check_can_be_kept(const std::string& name) {
  const auto operators = detail::find_operators(name);
  if (operators.empty()) {
    throw OptionError("save_policy", "LibTorch has no operator '" + name +
                                         "'; names are like aten::mm or aten::add.Tensor");
  }
  if (std::ranges::any_of(operators, [](const auto* info) { return detail::can_keep(*info); }))
    return;
  const auto& info = *operators.front();
  const std::string why = info.makes_views        ? "it is a view of the argument"
                          : !info.written.empty() ? "the operator changes its argument in place"
                                                  : "it only calls other operators: name those";
  throw OptionError("save_policy", "the result of '" + name + "' cannot be kept: " + why);
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

bool is_matmul(std::string_view name) {
  return is_one_of(name, {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::addbmm",
                          "aten::mv", "aten::addmv", "aten::dot", "aten::linear", "aten::_int_mm",
                          "aten::_scaled_mm", "aten::mkldnn_linear"});
}

bool is_attention(std::string_view name) {
  // Every fused kernel's name begins so; its backward is no operator of a forward pass.
  return name.starts_with("aten::_scaled_dot_product_") && name.find("backward") == name.npos;
}

bool is_convolution(std::string_view name) {
  return is_one_of(name, {"aten::convolution", "aten::convolution_overrideable",
                          "aten::_convolution", "aten::mkldnn_convolution",
                          "aten::cudnn_convolution", "aten::cudnn_convolution_transpose"});
}

}  // namespace

SavePolicy::SavePolicy(Predicate predicate) {
  if (!predicate) throw OptionError("save_policy", "the predicate of a SavePolicy is empty");
  predicate_ = std::make_shared<const Predicate>(std::move(predicate));
}

SavePolicy::SavePolicy(const std::vector<std::string>& operators) {
  for (const auto& name : operators) check_can_be_kept(name);
  predicate_ = std::make_shared<const Predicate>(
      [names = std::set<std::string, std::less<>>(operators.begin(), operators.end())](
          const SaveCandidate& candidate) {
        return names.contains(candidate.name) ||
               names.contains(std::string(candidate.name) + "." + std::string(candidate.overload));
      });
}

SavePolicy SavePolicy::matmuls() {
  return SavePolicy([](const SaveCandidate& candidate) { return is_matmul(candidate.name); });
}

SavePolicy SavePolicy::attention() {
  return SavePolicy([](const SaveCandidate& candidate) { return is_attention(candidate.name); });
}

SavePolicy SavePolicy::convolutions() {
  return SavePolicy([](const SaveCandidate& candidate) { return is_convolution(candidate.name); });
}

SavePolicy SavePolicy::compute_heavy() {
  return SavePolicy([](const SaveCandidate& candidate) {
    return is_matmul(candidate.name) || is_attention(candidate.name) ||
           is_convolution(candidate.name);
  });
}

}  // namespace reprise
