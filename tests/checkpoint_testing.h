// SPDX-License-Identifier: Apache-2.0
/// What the tests of checkpointed regions share: one model, run plainly and as regions.
#pragma once

#include "reprise/checkpoint.h"
#include "tests/testing.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace reprise::testing {

using Tensors = std::vector<at::Tensor>;

/// Seeds before the members of the fixtures that derive from it are made.
class SeededTest : public ::testing::Test {
 protected:
  SeededTest() { torch::manual_seed(1); }
};

/// Numbers that depend on nothing but the arguments.
inline at::Tensor random_tensor(at::IntArrayRef sizes, std::uint64_t seed = 1) {
  return torch::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(seed));
}

/// The same as a leaf that needs a gradient.
inline at::Tensor random_leaf(at::IntArrayRef sizes, std::uint64_t seed = 1) {
  return random_tensor(sizes, seed).requires_grad_();
}

/// Calls functions as regions; without options plainly.
class Caller {
 public:
  Caller() = default;
  explicit Caller(CheckpointOptions options) : options_(std::move(options)) {}

  template <typename Function, typename... Inputs>
  auto operator()(Function function, Inputs... inputs) const {
    if (options_) return checkpoint(*options_, std::move(function), std::move(inputs)...);
    return function(inputs...);
  }
  bool is_plain() const { return !options_.has_value(); }

 private:
  std::optional<CheckpointOptions> options_;
};

inline std::vector<CheckpointOptions> options_without_policy() {
  return {{.name = "default options"},
          {.name = "whole function", .early_stop = false},
          {.name = "values compared", .verification = Verification::kValues}};
}

/// With policies that keep everything, and what a hash of the operator's name says.
inline std::vector<CheckpointOptions> all_options() {
  const SavePolicy everything([](const SaveCandidate&) { return true; });
  const SavePolicy half([](const SaveCandidate& candidate) {
    return std::hash<std::string_view>{}(candidate.name) % 2 == 0;
  });
  auto all = options_without_policy();
  all.push_back({.name = "everything kept", .save_policy = everything});
  all.push_back({.name = "half of the operators kept",
                 .save_policy = half,
                 .verification = Verification::kValues});
  return all;
}

/// Values to go back to.
class Snapshot {
 public:
  explicit Snapshot(Tensors tensors) : tensors_(std::move(tensors)) {
    for (const auto& tensor : tensors_) values_.push_back(tensor.detach().clone());
  }
  void restore() const {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].copy_(values_[i]);
  }

 private:
  Tensors tensors_;
  Tensors values_;
};

inline Tensors clones_of(const Tensors& tensors) {
  Tensors clones;
  for (const auto& tensor : tensors) clones.push_back(tensor.detach().clone());
  return clones;
}

inline void append(Tensors& to, const Tensors& from) {
  to.insert(to.end(), from.begin(), from.end());
}

/// The next numbers of the default generator, whose state includes half of a pair of normal ones.
inline Tensors next_random_numbers() {
  return {torch::randn({1}), torch::rand({3})};
}

using Model = std::function<at::Tensor(const Caller&)>;

/// What a pass leaves: gradients of `leaves`, output, values of `buffers`, next random numbers.
inline Tensors outcome_of(const Model& model, const Caller& caller, const Tensors& leaves,
                          const Tensors& buffers = {}) {
  torch::manual_seed(7);
  torch::randn({1});  // leaves the generator with the other half of a pair
  const auto output = model(caller);
  auto outcome = torch::autograd::grad({(output * output).sum()}, leaves, {}, std::nullopt, false,
                                       /*allow_unused=*/true);
  outcome.push_back(output.detach());
  append(outcome, clones_of(buffers));
  append(outcome, next_random_numbers());
  return outcome;
}

inline void expect_same_bytes(const Tensors& actual, const Tensors& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(is_same_bytes(actual[i], expected[i])) << "tensor " << i << "\n"
                                                       << actual[i] << "\nexpected\n"
                                                       << expected[i];
  }
}

/// What a comparison looks at.
struct Watched {
  Tensors leaves;
  Tensors buffers = {};  ///< put back before each pass
};

/// The regions of `model` leave what plain calls leave, with each of `options`.
inline void expect_exact(const Model& model, const Watched& watched,
                         const std::vector<CheckpointOptions>& options = all_options()) {
  const Snapshot before(watched.buffers);
  const auto expected = outcome_of(model, Caller(), watched.leaves, watched.buffers);
  for (const auto& option : options) {
    SCOPED_TRACE(option.name);
    before.restore();
    expect_same_bytes(outcome_of(model, Caller(option), watched.leaves, watched.buffers), expected);
  }
  before.restore();
}

/// The message of the `CheckpointError` that `action` throws; empty when it throws none.
template <typename Action>
std::string checkpoint_error_of(Action action) {
  try {
    action();
  } catch (const CheckpointError& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not a CheckpointError: " << error.what();
  }
  return {};
}

/// Knows which of the tensors that it was shown still have their memory.
class StorageWatch {
 public:
  void add(const at::Tensor& tensor) { storages_.push_back(tensor.storage().getWeakStorageImpl()); }
  std::size_t count() const { return storages_.size(); }
  std::size_t count_alive() const {
    return static_cast<std::size_t>(
        std::count_if(storages_.begin(), storages_.end(),
                      [](const auto& storage) { return !storage.expired(); }));
  }

 private:
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages_;
};

/// Autocast on the CPU, as Python's context manager.
class AutocastScope {
 public:
  explicit AutocastScope(at::ScalarType type, bool is_enabled = true)
      : was_enabled_(at::autocast::is_autocast_enabled(at::kCPU)),
        previous_type_(at::autocast::get_autocast_dtype(at::kCPU)) {
    at::autocast::set_autocast_enabled(at::kCPU, is_enabled);
    at::autocast::set_autocast_dtype(at::kCPU, type);
    at::autocast::increment_nesting();
  }
  ~AutocastScope() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, was_enabled_);
    at::autocast::set_autocast_dtype(at::kCPU, previous_type_);
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  bool was_enabled_;
  at::ScalarType previous_type_;
};

}  // namespace reprise::testing
