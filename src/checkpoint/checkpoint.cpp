// SPDX-License-Identifier: Apache-2.0
#include "reprise/checkpoint.h"

#include "autograd/forward_context.h"
#include "autograd/operator_observer.h"
#include "autograd/saved_tensor_hooks.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <ostream>
#include <utility>
#include <vector>

namespace reprise {
namespace {

using detail::PackedTensor;
using detail::SavedInput;
using detail::SavedTensorHandler;
using detail::SavedTensorScope;

/// Thrown through the user's function when everything that backward needs has been recomputed. A
/// std::exception, so that a backward pass inside the function unwinds cleanly.
struct EarlyStop : std::exception {};

struct TensorMetadata {
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype;
  at::Device device;

  explicit TensorMetadata(const at::Tensor& tensor)
      : sizes(tensor.sizes().vec()), dtype(tensor.scalar_type()), device(tensor.device()) {}
  bool operator==(const TensorMetadata&) const = default;
};

std::ostream& operator<<(std::ostream& out, const TensorMetadata& metadata) {
  return out << metadata.dtype << at::IntArrayRef(metadata.sizes) << " on " << metadata.device;
}

std::int64_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<std::int64_t>(tensor._version());
}

/// Null where a tensor has none of its own: a sparse one.
c10::intrusive_ptr<c10::StorageImpl> storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().getIntrusivePtr() : nullptr;
}

/// One tensor that forward saved: not its value, only how to recognise it.
struct Slot {
  TensorMetadata metadata;
  // A storage that is still there in backward was not computed inside the region: a parameter or a
  // captured tensor.
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  std::int64_t version;
  at::Tensor recomputed;  // between recomputation and use
  std::int64_t recomputed_version = 0;
  bool is_wanted = true;  // autograd still holds it

  explicit Slot(const at::Tensor& tensor)
      : metadata(tensor), storage(storage_of(tensor)), version(version_of(tensor)) {}
};

/// A region between its forward pass and the end of its backward pass. Owned by the tensors that
/// autograd saved in it.
class Region : public std::enable_shared_from_this<Region> {
 public:
  Region(CheckpointFunction function, const std::vector<at::Tensor>& inputs)
      : function_(std::move(function)) {
    for (const auto& input : inputs) inputs_.emplace_back(input);
  }

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) const {
    return function_(inputs);
  }

  std::size_t add_slot(const at::Tensor& tensor) {
    slots_.emplace_back(tensor);
    return slots_.size() - 1;
  }

  at::Tensor take(std::size_t index) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& slot = slots_[index];
    if (!slot.recomputed.defined()) recompute();
    TORCH_CHECK(version_of(slot.recomputed) == slot.recomputed_version, "checkpoint: saved tensor ",
                index, ", ", slot.metadata,
                ", was modified by an inplace operation inside the checkpointed function");
    return std::exchange(slot.recomputed, at::Tensor());
  }

  void release(std::size_t index) {
    const std::lock_guard<std::mutex> lock(mutex_);
    slots_[index].is_wanted = false;
    slots_[index].recomputed.reset();
  }

 private:
  class Recorder;

  void recompute();
  void record(std::size_t index, const at::Tensor& tensor);
  std::vector<at::Tensor> detached_inputs() const;
  std::size_t last_wanted() const;

  CheckpointFunction function_;
  std::vector<SavedInput> inputs_;
  detail::ForwardContext context_;
  std::vector<Slot> slots_;
  std::mutex mutex_;
};

/// What autograd holds in place of a tensor saved by a region's forward pass.
class SlotReference : public PackedTensor {
 public:
  SlotReference(std::shared_ptr<Region> region, std::size_t index)
      : region_(std::move(region)), index_(index) {}
  ~SlotReference() override { region_->release(index_); }

  at::Tensor unpack() override {
    // A node may ask twice while it runs; it must not cost a second recomputation.
    if (auto tensor = last_unpacked_.lock()) return at::Tensor(std::move(tensor));
    auto tensor = region_->take(index_);
    last_unpacked_ = c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr());
    return tensor;
  }

 private:
  std::shared_ptr<Region> region_;
  std::size_t index_;
  c10::weak_intrusive_ptr<c10::TensorImpl> last_unpacked_{c10::intrusive_ptr<c10::TensorImpl>()};
};

/// Handles the saved tensors of the first run.
class ForwardHandler : public SavedTensorHandler {
 public:
  explicit ForwardHandler(std::shared_ptr<Region> region) : region_(std::move(region)) {}

  std::unique_ptr<PackedTensor> pack(const at::Tensor& tensor) override {
    const std::size_t index = region_->add_slot(tensor);
    return std::make_unique<SlotReference>(region_, index);
  }

 private:
  std::shared_ptr<Region> region_;
};

/// Keeps a tensor as plain autograd does: the recomputed graph can be differentiated inside the
/// function itself.
class KeptTensor : public PackedTensor {
 public:
  explicit KeptTensor(at::Tensor tensor) : tensor_(std::move(tensor)) {}
  at::Tensor unpack() override { return tensor_; }

 private:
  at::Tensor tensor_;
};

/// Handles the saved tensors of a recomputation, and ends it when the last of them is there. Not
/// before its operator has returned: an operator may save a buffer first and have its kernel fill
/// it then.
class Region::Recorder : public SavedTensorHandler, public detail::OperatorObserver {
 public:
  Recorder(Region& region, std::size_t last_wanted) : region_(region), last_wanted_(last_wanted) {}

  std::unique_ptr<PackedTensor> pack(const at::Tensor& tensor) override {
    if (has_stopped_) return std::make_unique<KeptTensor>(tensor.detach());
    const std::size_t index = count_;
    TORCH_CHECK(index < region_.slots_.size(),
                "checkpoint: the recomputation saves more tensors than forward (",
                region_.slots_.size(), "), the next is ", TensorMetadata(tensor),
                "; the function must do the same in both runs");
    region_.record(index, tensor);
    auto kept = std::make_unique<KeptTensor>(tensor.detach());
    ++count_;  // last: the operators above are observed too, and must not end the recomputation
    return kept;
  }

  void after_operator() override {
    // Once: destructors that run operators while the function unwinds must not throw.
    if (count_ > last_wanted_ && !std::exchange(has_stopped_, true)) throw EarlyStop{};
  }

  std::size_t count() const { return count_; }

 private:
  Region& region_;
  std::size_t last_wanted_;
  std::size_t count_ = 0;
  bool has_stopped_ = false;
};

void Region::record(std::size_t index, const at::Tensor& tensor) {
  auto& slot = slots_[index];
  const TensorMetadata metadata(tensor);
  TORCH_CHECK(metadata == slot.metadata, "checkpoint: saved tensor ", index, " was ", slot.metadata,
              " in forward and is ", metadata,
              " in the recomputation; the function must do the same in both runs");
  const auto storage = slot.storage.lock();
  const bool is_same_storage = storage && storage == storage_of(tensor);
  TORCH_CHECK(!is_same_storage || version_of(tensor) == slot.version, "checkpoint: saved tensor ",
              index, ", ", slot.metadata,
              ", was modified by an inplace operation after forward: it is at version ",
              version_of(tensor), ", expected version ", slot.version);
  if (!slot.is_wanted || slot.recomputed.defined()) return;
  slot.recomputed = tensor.detach();
  slot.recomputed_version = version_of(tensor);
}

std::vector<at::Tensor> Region::detached_inputs() const {
  std::vector<at::Tensor> inputs;
  for (const auto& saved : inputs_) {
    auto input = saved.unpack();
    inputs.push_back(input.defined() ? input.detach().requires_grad_(input.requires_grad())
                                     : input);
  }
  return inputs;
}

std::size_t Region::last_wanted() const {
  std::size_t last = 0;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].is_wanted) last = i;
  }
  return last;
}

void Region::recompute() {
  const auto inputs = detached_inputs();
  const detail::RecomputeScope scope(context_);
  Recorder recorder(*this, last_wanted());
  {
    const SavedTensorScope hooks(recorder);
    const detail::OperatorObserverScope operators(recorder);
    try {
      run(inputs);
    } catch (const EarlyStop&) {
    } catch (...) {
      // The operator that failed may have saved a tensor that it never filled.
      for (auto& slot : slots_) slot.recomputed.reset();
      throw;
    }
  }
  TORCH_CHECK(recorder.count() > last_wanted(), "checkpoint: the recomputation saved ",
              recorder.count(), " tensors, forward saved ", slots_.size(),
              "; the function must do the same in both runs");
}

}  // namespace

std::vector<at::Tensor> checkpoint(CheckpointFunction function, std::vector<at::Tensor> inputs) {
  if (!at::GradMode::is_enabled()) return function(inputs);
  auto region = std::make_shared<Region>(std::move(function), inputs);
  ForwardHandler handler(region);
  std::vector<at::Tensor> outputs;
  {
    const SavedTensorScope hooks(handler);
    outputs = region->run(inputs);
  }
  return outputs;
}

at::Tensor checkpoint(std::function<at::Tensor(const at::Tensor&)> function,
                      const at::Tensor& input) {
  return checkpoint(
      [function = std::move(function)](const std::vector<at::Tensor>& inputs) {
        return std::vector<at::Tensor>{function(inputs.front())};
      },
      std::vector<at::Tensor>{input})[0];
}

bool in_recompute() {
  return detail::RecomputeScope::is_active();
}

}  // namespace reprise
