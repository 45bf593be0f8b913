// SPDX-License-Identifier: Apache-2.0
#include "memory/thread_labels.h"

#include "memory/ledger.h"

#include <map>
#include <mutex>

namespace reprise::detail {
namespace {

struct LayerNames {
  std::mutex mutex;
  std::map<std::string, std::int32_t> numbers;
  std::vector<std::string> names;

  static LayerNames& instance() {
    static auto* const names = new LayerNames;
    return *names;
  }
};

}  // namespace

ThreadLabels& thread_labels() {
  thread_local ThreadLabels labels;
  return labels;
}

std::mutex& layer_names_mutex() {
  return LayerNames::instance().mutex;
}

std::int32_t layer_number(const std::string& name) {
  auto& all = LayerNames::instance();
  const std::lock_guard lock(all.mutex);
  const auto [entry, is_new] =
      all.numbers.try_emplace(name, static_cast<std::int32_t>(all.names.size()));
  if (is_new) all.names.push_back(name);
  return entry->second;
}

std::string layer_name(std::int32_t number) {
  auto& all = LayerNames::instance();
  const std::lock_guard lock(all.mutex);
  return all.names[static_cast<std::size_t>(number)];
}

std::vector<std::string> known_layers() {
  auto& all = LayerNames::instance();
  const std::lock_guard lock(all.mutex);
  return all.names;
}

RecomputationLabels::RecomputationLabels(std::int32_t layer)
    : outer_(thread_labels()), layer_(layer), begin_(std::chrono::steady_clock::now()) {
  thread_labels() = {MemoryCategory::kRecomputed, layer};
}

RecomputationLabels::~RecomputationLabels() {
  Ledger::instance().end_layer(layer_, true, begin_);
  thread_labels() = outer_;
}

}  // namespace reprise::detail

namespace reprise {

using detail::thread_labels;

MemoryCategoryScope::MemoryCategoryScope(MemoryCategory category)
    : outer_(thread_labels().category) {
  thread_labels().category = category;
}

MemoryCategoryScope::~MemoryCategoryScope() {
  thread_labels().category = outer_;
}

LayerScope::LayerScope(const std::string& name)
    : outer_(thread_labels().layer), begin_(std::chrono::steady_clock::now()) {
  thread_labels().layer = detail::layer_number(
      outer_ == detail::kNoLayer ? name : detail::layer_name(outer_) + "/" + name);
}

LayerScope::~LayerScope() {
  auto& labels = thread_labels();
  detail::Ledger::instance().end_layer(labels.layer, labels.category == MemoryCategory::kRecomputed,
                                       begin_);
  labels.layer = outer_;
}

}  // namespace reprise
