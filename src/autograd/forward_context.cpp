// SPDX-License-Identifier: Apache-2.0
#include "autograd/forward_context.h"

#include <ATen/Context.h>

#include <mutex>

namespace reprise::detail {
namespace {

thread_local int recompute_depth = 0;

constexpr at::DeviceType kAutocastDevices[] = {at::kCPU, at::kCUDA};

std::vector<at::Generator> default_generators() {
  std::vector<at::Generator> generators = {at::globalContext().defaultGenerator(at::kCPU)};
  if (at::hasCUDA()) {
    for (int i = 0; i < static_cast<int>(at::getNumGPUs()); ++i) {
      generators.push_back(at::globalContext().defaultGenerator(
          at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(i))));
    }
  }
  return generators;
}

template <typename Autocast>
std::vector<Autocast> current_autocast() {
  std::vector<Autocast> states;
  for (auto device_type : kAutocastDevices) {
    states.push_back({device_type, at::autocast::is_autocast_enabled(device_type),
                      at::autocast::get_autocast_dtype(device_type)});
  }
  return states;
}

template <typename Autocast>
void set_autocast(const std::vector<Autocast>& states) {
  for (const auto& state : states) {
    at::autocast::set_autocast_enabled(state.device_type, state.is_enabled);
    at::autocast::set_autocast_dtype(state.device_type, state.dtype);
  }
}

}  // namespace

RandomState::RandomState() {
  for (auto& generator : default_generators()) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    states_.emplace_back(generator, generator.get_state());
  }
}

void RandomState::restore() const {
  for (auto [generator, state] : states_) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(state);
  }
}

ForwardContext::ForwardContext() : autocast_(current_autocast<Autocast>()) {}

RecomputeScope::RecomputeScope(const ForwardContext& context)
    : thread_local_guard_(context.thread_local_state_),
      outer_autocast_(current_autocast<ForwardContext::Autocast>()),
      outer_autocast_cache_(at::autocast::is_autocast_cache_enabled()) {
  set_autocast(context.autocast_);
  // A cast made here belongs to a graph that is thrown away: nobody else may find it in the cache.
  at::autocast::set_autocast_cache_enabled(false);
  context.random_state_.restore();
  ++recompute_depth;
}

RecomputeScope::~RecomputeScope() {
  --recompute_depth;
  outer_random_state_.restore();
  at::autocast::set_autocast_cache_enabled(outer_autocast_cache_);
  set_autocast(outer_autocast_);
}

bool RecomputeScope::is_active() {
  return recompute_depth > 0;
}

}  // namespace reprise::detail
