// SPDX-License-Identifier: Apache-2.0
/// The state outside its arguments that the result of a forward pass depends on: random number
/// generators, autocast, gradient mode and other thread-local state.
#pragma once

#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Generator.h>

#include <utility>
#include <vector>

namespace reprise::detail {

/// States of the default generators of the CPU and of every CUDA device.
class RandomState {
 public:
  RandomState();  ///< takes the states as they are now
  void restore() const;

 private:
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

/// What `RecomputeScope` needs to run a function as it ran the first time.
class ForwardContext {
 public:
  ForwardContext();  ///< takes the thread's state as it is now

 private:
  friend class RecomputeScope;
  struct Autocast {
    at::DeviceType device_type;
    bool is_enabled;
    at::ScalarType dtype;
  };

  at::ThreadLocalState thread_local_state_;
  std::vector<Autocast> autocast_;
  RandomState random_state_;
};

/// Puts the thread into the state of `context`, and back when it goes, the random number generators
/// included.
class RecomputeScope {
 public:
  explicit RecomputeScope(const ForwardContext& context);
  ~RecomputeScope();
  RecomputeScope(const RecomputeScope&) = delete;
  RecomputeScope& operator=(const RecomputeScope&) = delete;

  /// True inside any such scope of this thread.
  static bool is_active();

 private:
  RandomState outer_random_state_;
  at::ThreadLocalStateGuard thread_local_guard_;
  std::vector<ForwardContext::Autocast> outer_autocast_;
  bool outer_autocast_cache_;
};

}  // namespace reprise::detail
