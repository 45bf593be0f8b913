// SPDX-License-Identifier: Apache-2.0
#include "reprise/memory_budget.h"

#include "autograd/operator_observer.h"
#include "memory/byte_text.h"
#include "memory/ledger.h"
#include "reprise/errors.h"
#include "reprise/memory.h"

#include <c10/util/StringUtil.h>

#include <optional>
#include <utility>

namespace reprise {
namespace {

/// Looks before each operator whether a device has more than its budget.
class DeviceBudget : public detail::OperatorObserver {
 public:
  DeviceBudget(std::int64_t bytes, const c10::Device& device) : bytes_(bytes), device_(device) {
    check("the start");
  }

  bool before_operator(const detail::OperatorCall& call,
                       std::vector<c10::IValue>& /*results*/) override {
    check(call.info.name);
    return false;
  }

  void after_operator(const detail::OperatorInfo& /*info*/,
                      std::span<const c10::IValue> /*results*/) override {}

 private:
  void check(const std::string& before) const {
    const std::int64_t in_use = memory_stats(device_).current_bytes;
    if (in_use <= bytes_) return;
    throw BudgetError(
        in_use, bytes_,
        c10::str("memory: ", detail::byte_text(in_use), " are in use on ", device_, " before ",
                 before, ", and the budget is ", detail::byte_text(bytes_),
                 "; use a smaller batch or model, recompute more activations, or "
                 "allow more memory"));
  }

  std::int64_t bytes_;
  c10::Device device_;
};

}  // namespace

struct MemoryBudget::Impl {
  std::optional<detail::Ledger::Budget> of_ledger;
  std::optional<DeviceBudget> of_device;
  std::optional<detail::OperatorObserverScope> operators;
};

MemoryBudget::MemoryBudget(std::int64_t bytes, const c10::Device& device)
    : impl_(std::make_unique<Impl>()) {
  if (bytes <= 0) {
    throw OptionError("memory_budget",
                      "memory_budget: must be positive, got " + std::to_string(bytes) + " bytes");
  }
  if (device.is_cpu()) {
    impl_->of_ledger = detail::Ledger::instance().add_budget(bytes);
  } else {
    impl_->of_device.emplace(bytes, device);
    impl_->operators.emplace(*impl_->of_device, detail::ObservedOperators::kOutermost);
  }
}

MemoryBudget::~MemoryBudget() {
  if (impl_->of_ledger) detail::Ledger::instance().remove_budget(*impl_->of_ledger);
}

MemoryPressureHandler::MemoryPressureHandler(
    std::function<bool(std::int64_t missing_bytes)> handler)
    : id_(detail::Ledger::instance().add_handler(std::move(handler))) {}

MemoryPressureHandler::~MemoryPressureHandler() {
  detail::Ledger::instance().remove_handler(id_);
}

}  // namespace reprise
