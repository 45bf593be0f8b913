// SPDX-License-Identifier: Apache-2.0
#include "memory/saved_activations.h"

#include "autograd/tensor_version.h"
#include "memory/ledger.h"

#include <optional>

namespace reprise::detail {
namespace {

class LabelledTensor : public PackedTensor {
 public:
  ~LabelledTensor() override {
    if (number_ >= 0) Ledger::instance().unlabel_saved(memory_, number_);
  }

  void pack(const at::Tensor& tensor) override {
    tensor_ = without_history(tensor);
    version_.emplace(tensor_);
    memory_ = memory_of(tensor_);
    number_ = Ledger::instance().label_saved(memory_, thread_labels().layer);
  }

  at::Tensor unpack() override {
    TORCH_CHECK(version_->is_current(),
                "one of the variables needed for gradient computation has been modified by an "
                "inplace operation: ",
                tensor_.toString(), " ", tensor_.sizes(), " is at version ", version_->current(),
                "; expected version ", version_->expected(), " instead");
    return tensor_;
  }

 private:
  at::Tensor tensor_;
  std::optional<TensorVersion> version_;
  const void* memory_ = nullptr;
  std::int64_t number_ = -1;
};

}  // namespace

std::unique_ptr<PackedTensor> SavedActivations::next() {
  return std::make_unique<LabelledTensor>();
}

}  // namespace reprise::detail
