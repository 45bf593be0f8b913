// SPDX-License-Identifier: Apache-2.0
#include "autograd/forward_context.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <mutex>

namespace reprise::detail {
namespace {

thread_local int recompute_depth = 0;

const std::vector<at::Generator>& default_generators() {
  static const auto generators = [] {
    std::vector<at::Generator> found = {at::globalContext().defaultGenerator(at::kCPU)};
    const int gpu_count = at::hasCUDA() ? static_cast<int>(at::getNumGPUs()) : 0;
    for (int i = 0; i < gpu_count; ++i) {
      found.push_back(at::globalContext().defaultGenerator(
          at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(i))));
    }
    return found;
  }();
  return generators;
}

/// Field by field: the bytes between them are nobody's.
bool is_same(const at::mt19937_data_pod& a, const at::mt19937_data_pod& b) {
  return a.seed_ == b.seed_ && a.left_ == b.left_ && a.seeded_ == b.seeded_ && a.next_ == b.next_ &&
         a.state_ == b.state_;
}

int autocast_nesting_now() {
  at::autocast::increment_nesting();
  return at::autocast::decrement_nesting();
}

}  // namespace

GeneratorState::GeneratorState(at::Generator generator) : generator_(std::move(generator)) {
  const std::lock_guard<std::mutex> lock(generator_.mutex());
  if (generator_.device().is_cpu()) {
    auto* cpu = at::check_generator<at::CPUGeneratorImpl>(generator_);
    cpu_.emplace(
        Cpu{cpu->engine(), cpu->next_float_normal_sample(), cpu->next_double_normal_sample()});
  } else {
    other_ = generator_.get_state();
  }
}

void GeneratorState::restore() const {
  auto generator = generator_;
  const std::lock_guard<std::mutex> lock(generator.mutex());
  if (!cpu_) return generator.set_state(other_);
  auto* cpu = at::check_generator<at::CPUGeneratorImpl>(generator);
  cpu->set_engine(cpu_->engine);
  cpu->set_next_float_normal_sample(cpu_->next_float_normal_sample);
  cpu->set_next_double_normal_sample(cpu_->next_double_normal_sample);
}

bool GeneratorState::operator==(const GeneratorState& other) const {
  if (generator_ != other.generator_) return false;
  if (cpu_) {
    return is_same(cpu_->engine.data(), other.cpu_->engine.data()) &&
           cpu_->next_float_normal_sample == other.cpu_->next_float_normal_sample &&
           cpu_->next_double_normal_sample == other.cpu_->next_double_normal_sample;
  }
  return other_.equal(other.other_);
}

RandomState::RandomState() {
  for (const auto& generator : default_generators()) states_.emplace_back(generator);
}

void RandomState::add(const at::Generator& generator) {
  const bool is_known = std::ranges::any_of(
      states_, [&](const auto& state) { return state.generator() == generator; });
  if (!is_known) states_.emplace_back(generator);
}

RandomState RandomState::now() const {
  auto current = *this;
  for (auto& state : current.states_) state = GeneratorState(state.generator());
  return current;
}

void RandomState::restore() const {
  for (const auto& state : states_) state.restore();
}

ExecutionState ExecutionState::now() {
  ExecutionState state{.autocast = {},
                       .is_autocast_cache_enabled = at::autocast::is_autocast_cache_enabled(),
                       .autocast_nesting = autocast_nesting_now(),
                       .is_mkldnn_enabled = at::globalContext().userEnabledMkldnn(),
                       .default_dtype = c10::get_default_dtype(),
                       .current_device = std::nullopt,
                       .thread_count = at::get_num_threads()};
  for (auto device_type : {at::kCPU, at::kCUDA}) {
    state.autocast.push_back({device_type, at::autocast::is_autocast_enabled(device_type),
                              at::autocast::get_autocast_dtype(device_type)});
  }
  if (at::hasCUDA()) state.current_device = c10::impl::VirtualGuardImpl(at::kCUDA).getDevice();
  return state;
}

void ExecutionState::restore(const ExecutionState& from) const {
  for (std::size_t i = 0; i < autocast.size(); ++i) {
    if (autocast[i] == from.autocast[i]) continue;
    at::autocast::set_autocast_enabled(autocast[i].device_type, autocast[i].is_enabled);
    at::autocast::set_autocast_dtype(autocast[i].device_type, autocast[i].dtype);
  }
  at::autocast::set_autocast_cache_enabled(is_autocast_cache_enabled);
  // The function may have been ended between the beginning and the end of its own autocast.
  for (int i = from.autocast_nesting; i < autocast_nesting; ++i) at::autocast::increment_nesting();
  for (int i = from.autocast_nesting; i > autocast_nesting; --i) at::autocast::decrement_nesting();
  if (is_mkldnn_enabled != from.is_mkldnn_enabled)
    at::globalContext().setUserEnabledMkldnn(is_mkldnn_enabled);
  if (default_dtype != from.default_dtype) c10::set_default_dtype(default_dtype);
  if (current_device != from.current_device)
    c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(*current_device);
  if (thread_count != from.thread_count) at::set_num_threads(thread_count);
}

ForwardContext::ForwardContext() = default;

void ForwardContext::end_forward() {
  if (!may_draw_) random_state_ = RandomState::empty();
}

std::unique_lock<std::recursive_mutex> lock_generators() {
  // Never destroyed: backward may still run while static objects go.
  static auto* mutex = new std::recursive_mutex;
  return std::unique_lock<std::recursive_mutex>(*mutex);
}

std::unique_lock<std::recursive_mutex> ForwardContext::lock_generators() const {
  return random_state_.is_empty() ? std::unique_lock<std::recursive_mutex>()
                                  : detail::lock_generators();
}

RecomputeScope::RecomputeScope(const ForwardContext& context)
    // Only of the generators that forward has drawn from: another thread may use the others.
    : outer_random_state_(context.random_state_.now()),
      outer_execution_state_(ExecutionState::now()),
      execution_state_(context.execution_state_),
      thread_local_guard_(context.thread_local_state_) {
  // A cast made here belongs to a graph that is thrown away: nobody else may find it in the cache.
  execution_state_.is_autocast_cache_enabled = false;
  execution_state_.restore(outer_execution_state_);
  context.random_state_.restore();
  ++recompute_depth;
}

RecomputeScope::~RecomputeScope() {
  --recompute_depth;
  outer_random_state_.restore();
  // What the function itself changed goes too.
  outer_execution_state_.restore(ExecutionState::now());
}

bool RecomputeScope::is_active() {
  return recompute_depth > 0;
}

}  // namespace reprise::detail
