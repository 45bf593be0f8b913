// SPDX-License-Identifier: Apache-2.0
/// The state outside its arguments that the result of a forward pass depends on: random number
/// generators, autocast, gradient mode, default type, device, threads.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/core/Generator.h>
#include <c10/util/typeid.h>

#include <mutex>
#include <optional>
#include <vector>

namespace reprise::detail {

/// A random number generator and the state that it had.
class GeneratorState {
 public:
  explicit GeneratorState(at::Generator generator);  ///< takes the state as it is now

  const at::Generator& generator() const { return generator_; }
  void restore() const;
  bool operator==(const GeneratorState& other) const;

 private:
  struct Cpu {
    at::mt19937 engine;
    std::optional<float> next_float_normal_sample;
    std::optional<double> next_double_normal_sample;
  };

  at::Generator generator_;
  std::optional<Cpu> cpu_;  // without the 5 KB tensor that `get_state` makes, ten times as fast
  at::Tensor other_;        // of generators that are no CPU generators
};

/// The one lock of all recomputations that draw random numbers, whoever makes them: they set the
/// generators and put them back.
std::unique_lock<std::recursive_mutex> lock_generators();

/// States of random number generators: the default ones of the CPU and of every CUDA device, and
/// others that were added.
class RandomState {
 public:
  RandomState();  ///< takes the states of the default generators as they are now
  static RandomState empty() { return RandomState(std::vector<GeneratorState>()); }
  /// Takes the state of `generator` too, unless it is there already.
  void add(const at::Generator& generator);
  RandomState now() const;  ///< the states that the same generators have now
  void restore() const;
  bool is_empty() const { return states_.empty(); }
  bool operator==(const RandomState& other) const = default;

 private:
  explicit RandomState(std::vector<GeneratorState> states) : states_(std::move(states)) {}

  std::vector<GeneratorState> states_;
};

/// State of the thread and of the process besides random numbers, as `ExecutionState::now` finds
/// it.
struct ExecutionState {
  struct Autocast {
    at::DeviceType device_type;
    bool is_enabled;
    at::ScalarType dtype;
    bool operator==(const Autocast&) const = default;
  };

  std::vector<Autocast> autocast;
  bool is_autocast_cache_enabled;
  int autocast_nesting;
  bool is_mkldnn_enabled;
  caffe2::TypeMeta default_dtype;
  std::optional<c10::Device> current_device;  ///< of CUDA
  int thread_count;

  static ExecutionState now();
  /// Sets what differs from `from`.
  void restore(const ExecutionState& from) const;
};

/// What `RecomputeScope` needs to run a function as it ran the first time.
class ForwardContext {
 public:
  ForwardContext();  ///< takes the thread's state as it is now

  /// Notes that the function uses `generator`, which must not have been used yet.
  void add(const at::Generator& generator) { random_state_.add(generator); }
  /// Notes that the function may have drawn random numbers.
  void note_random_numbers() { may_draw_ = true; }
  /// Forgets the default generators where the function has drawn nothing: another thread may use
  /// them.
  void end_forward();
  /// Keeps other recomputations that draw random numbers from running; locks nothing where the
  /// function draws none. To be held before and in a `RecomputeScope`.
  std::unique_lock<std::recursive_mutex> lock_generators() const;

 private:
  friend class RecomputeScope;
  at::ThreadLocalState thread_local_state_;
  ExecutionState execution_state_ = ExecutionState::now();
  RandomState random_state_;
  bool may_draw_ = false;
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
  ExecutionState outer_execution_state_;
  ExecutionState execution_state_;
  at::ThreadLocalStateGuard thread_local_guard_;
};

}  // namespace reprise::detail
