// SPDX-License-Identifier: Apache-2.0
#include "autograd/operator_observer.h"
#include "memory/ledger.h"
#include "reprise/memory_timeline.h"

#include <ATen/core/grad_mode.h>

#include <optional>
#include <unordered_map>

namespace reprise {

struct ParameterLayers::Impl : detail::OperatorObserver {
  explicit Impl(const std::vector<std::pair<std::string, at::Tensor>>& parameters)
      : outer(detail::thread_labels().layer) {
    for (const auto& [path, parameter] : parameters) {
      if (!parameter.defined()) continue;
      const auto dot = path.rfind('.');
      const std::string layer = dot == std::string::npos ? path : path.substr(0, dot);
      layers.emplace(parameter.unsafeGetTensorImpl(), detail::layer_number(layer));
      kept.push_back(parameter);
    }
    operators.emplace(*this, detail::ObservedOperators::kOutermost);
  }

  ~Impl() override { enter(outer); }

  bool before_operator(const detail::OperatorCall& call,
                       std::vector<c10::IValue>& /*results*/) override {
    const auto& labels = detail::thread_labels();
    // Inside a scope, or a recomputation, which know better.
    if (labels.layer != current || labels.category == MemoryCategory::kRecomputed) return false;
    std::optional<std::int32_t> layer;
    if (!at::GradMode::is_enabled()) layer = outer;  // in backward
    for (const auto& argument : call.arguments) {
      detail::visit_tensors_of(argument, [&](const at::Tensor& tensor) {
        const auto found = layers.find(tensor.unsafeGetTensorImpl());
        if (found != layers.end()) layer = found->second;
      });
    }
    if (layer && *layer != current) enter(*layer);
    return false;
  }

  void after_operator(const detail::OperatorInfo& /*info*/,
                      std::span<const c10::IValue> /*results*/) override {}

  void enter(std::int32_t layer) {
    if (current != outer) detail::Ledger::instance().end_layer(current, false, begin);
    begin = std::chrono::steady_clock::now();
    current = layer;
    detail::thread_labels().layer = layer;
  }

  const std::int32_t outer;
  std::int32_t current = outer;
  std::chrono::steady_clock::time_point begin;
  std::unordered_map<const void*, std::int32_t> layers;  // by parameter
  std::vector<at::Tensor> kept;                          // so that their addresses stay theirs
  std::optional<detail::OperatorObserverScope> operators;
};

ParameterLayers::ParameterLayers(const std::vector<std::pair<std::string, at::Tensor>>& parameters)
    : impl_(std::make_unique<Impl>(parameters)) {}

ParameterLayers::~ParameterLayers() = default;

}  // namespace reprise
