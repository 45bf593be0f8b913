// SPDX-License-Identifier: Apache-2.0
#include "autograd/operator_observer.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/ScopeExit.h>
#include <c10/util/flat_hash_map.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

namespace reprise::detail {
namespace {

// A key that LibTorch reserves for modes of this kind; it sits above autograd and autocast.
constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;
constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, kKey);

struct ThreadState {
  std::vector<OperatorObserver*> observers;
  int leaf_depth = 0;                     // observers that ask for leaves
  const OperatorInfo* casting = nullptr;  // the operator whose arguments autocast is casting
  ska::flat_hash_map<const void*, const OperatorInfo*> known_infos;
};

ThreadState& thread_state() {
  thread_local ThreadState state;
  return state;
}

// These change running statistics without saying so in their schemas.
constexpr std::array<std::string_view, 9> kWritesRunningStatistics = {
    "aten::batch_norm",
    "aten::_batch_norm_impl_index",
    "aten::native_batch_norm",
    "aten::cudnn_batch_norm",
    "aten::miopen_batch_norm",
    "aten::instance_norm",
    "aten::batch_norm_update_stats",
    "aten::batch_norm_gather_stats",
    "aten::batch_norm_gather_stats_with_counts"};

bool writes(const c10::Argument& argument) {
  const auto* alias = argument.alias_info();
  if (alias == nullptr) return false;
  return alias->isWrite() || std::ranges::any_of(alias->containedTypes(), &c10::AliasInfo::isWrite);
}

OperatorInfo describe(const c10::OperatorHandle& op) {
  OperatorInfo info;
  info.name = op.operator_name().name;
  info.overload = op.operator_name().overload_name;
  info.handle = std::make_shared<const c10::OperatorHandle>(op);
  if (!op.hasSchema()) return info;
  info.is_of_libtorch = info.name.starts_with("aten::");
  info.is_deterministic = !op.hasTag(at::Tag::nondeterministic_bitwise);
  const bool is_silent_writer = std::ranges::count(kWritesRunningStatistics, info.name) > 0;
  info.may_draw_random_numbers =
      op.hasTag(at::Tag::nondeterministic_seeded) || !info.is_of_libtorch;
  info.changes_metadata_in_place = op.hasTag(at::Tag::inplace_view);
  for (const auto& argument : op.schema().arguments()) {
    if (writes(argument) || (is_silent_writer && argument.name().starts_with("running_")))
      info.written.push_back(info.arguments.size());
    info.may_draw_random_numbers |= argument.name() == "generator";
    info.has_out_argument |= argument.is_out();
    info.arguments.push_back(argument.name());
  }
  info.makes_views = std::ranges::any_of(op.schema().returns(), [](const auto& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
  info.is_composite = op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
                      !op.hasKernelForDispatchKey(c10::DispatchKey::AutogradCPU);
  return info;
}

const OperatorInfo& shared_info_of(const c10::OperatorHandle& op) {
  static std::mutex mutex;
  static auto* infos = new std::unordered_map<c10::OperatorName, std::unique_ptr<OperatorInfo>>;
  const std::lock_guard<std::mutex> lock(mutex);
  auto& info = (*infos)[op.operator_name()];
  if (!info) info = std::make_unique<OperatorInfo>(describe(op));
  return *info;
}

const OperatorInfo& info_of(const c10::OperatorHandle& op, ThreadState& state) {
  auto& info = state.known_infos[&op.operator_name()];
  // Another operator may have taken the place of one that was deregistered.
  if (info == nullptr || info->name != op.operator_name().name) info = &shared_info_of(op);
  return *info;
}

using Observers = std::vector<OperatorObserver*>;

at::Tensor replacement_of(const at::Tensor& argument, const Observers& observers) {
  // The innermost observer knows best what its function saw there.
  for (std::size_t i = observers.size(); i-- > 0;) {
    if (auto tensor = observers[i]->replacement(argument); tensor.defined()) return tensor;
  }
  return {};
}

/// `value` with its tensors replaced; None when none of them is.
c10::IValue replaced(const c10::IValue& value, const Observers& observers) {
  if (value.isTensor() && value.toTensor().defined()) {
    auto tensor = replacement_of(value.toTensor(), observers);
    return tensor.defined() ? c10::IValue(std::move(tensor)) : c10::IValue();
  }
  if (!value.isList()) return {};
  const auto elements = value.toListRef();
  if (elements.empty() || elements.front().isInt()) return {};
  c10::List<c10::IValue> changed = value.toList().copy();
  bool has_changed = false;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    auto element = replaced(elements[i], observers);
    if (element.isNone()) continue;
    changed.set(i, std::move(element));
    has_changed = true;
  }
  return has_changed ? c10::IValue(std::move(changed)) : c10::IValue();
}

/// Replaces arguments on the stack; the originals, or nothing when all stay.
std::vector<c10::IValue> replace_arguments(std::span<c10::IValue> arguments,
                                           const Observers& observers) {
  std::vector<c10::IValue> originals;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    auto value = replaced(arguments[i], observers);
    if (value.isNone()) continue;
    if (originals.empty()) originals.assign(arguments.begin(), arguments.end());
    arguments[i] = std::move(value);
  }
  return originals;
}

bool autocast_casts(const c10::OperatorHandle& op, c10::DispatchKeySet keys) {
  for (auto key : {c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA}) {
    if (keys.has(key) && op.hasKernelForDispatchKey(key)) return true;
  }
  return false;
}

/// An operator on the stack, its arguments replaced.
class PendingCall {
 public:
  PendingCall(const OperatorInfo& info, torch::jit::Stack& stack, const Observers& observers)
      : base_(stack.size() - info.arguments.size()),
        arguments_(stack.data() + base_, info.arguments.size()),
        originals_(replace_arguments(arguments_, observers)),
        call_{info, originals_.empty() ? arguments_ : std::span<c10::IValue>(originals_),
              arguments_} {}

  const OperatorCall& call() const { return call_; }
  std::size_t base() const { return base_; }

 private:
  std::size_t base_;
  std::span<c10::IValue> arguments_;
  std::vector<c10::IValue> originals_;
  OperatorCall call_;
};

void call_observed(const c10::OperatorHandle& op, const OperatorInfo& info,
                   c10::DispatchKeySet keys, torch::jit::Stack* stack, const Observers& observers) {
  const c10::impl::ExcludeDispatchKeyGuard exclude(kKey);
  const PendingCall pending(info, *stack, observers);
  std::vector<c10::IValue> results;
  bool has_results = false;
  // By index: the operator may run code that adds observers and takes them away again.
  for (std::size_t i = 0; i < observers.size(); ++i) {
    std::vector<c10::IValue> ignored;
    has_results |= observers[i]->before_operator(pending.call(), has_results ? ignored : results);
  }
  if (has_results) {
    stack->resize(pending.base());
    std::ranges::move(results, std::back_inserter(*stack));
  } else {
    op.redispatchBoxed(keys & kBelow, stack);
  }
  const std::span returned(stack->data() + pending.base(), stack->size() - pending.base());
  for (std::size_t i = 0; i < observers.size(); ++i) observers[i]->after_operator(info, returned);
}

/// Lets autocast cast and call the operator again, which is then observed.
void call_casting(const c10::OperatorHandle& op, const OperatorInfo& info, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack, ThreadState& state) {
  {
    const c10::impl::ExcludeDispatchKeyGuard exclude(kKey);
    const PendingCall pending(info, *stack, state.observers);
    for (std::size_t i = 0; i < state.observers.size(); ++i)
      state.observers[i]->before_casts(pending.call());
  }
  const auto put_back =
      c10::make_scope_exit([&state, outer = state.casting] { state.casting = outer; });
  state.casting = &info;
  op.redispatchBoxed(keys & kBelow, stack);
}

void call_unobserved(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                     torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard exclude(kKey);
  op.redispatchBoxed(keys & kBelow, stack);
}

void call_cast(const c10::OperatorHandle& op, const OperatorInfo& info, c10::DispatchKeySet keys,
               torch::jit::Stack* stack, const Observers& observers) {
  Observers hearing;
  std::ranges::copy_if(observers, std::back_inserter(hearing), &OperatorObserver::hears_casts);
  if (hearing.empty()) return call_unobserved(op, keys, stack);
  if (info.is_composite) return op.redispatchBoxed(keys & kBelow, stack);
  call_observed(op, info, keys, stack, hearing);
}

void observe(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  auto& state = thread_state();
  // LibTorch carries the key to other threads and into backward passes, but not our list.
  if (state.observers.empty()) return call_unobserved(op, keys, stack);
  const auto& info = info_of(op, state);
  if (state.leaf_depth > 0) {
    if (state.casting != nullptr && state.casting != &info)
      return call_cast(op, info, keys, stack, state.observers);
    if (autocast_casts(op, keys)) return call_casting(op, info, keys, stack, state);
    if (info.is_composite) {
      // What the cast operator calls is observed again.
      const auto put_back =
          c10::make_scope_exit([&state, outer = state.casting] { state.casting = outer; });
      state.casting = nullptr;
      return op.redispatchBoxed(keys & kBelow, stack);
    }
  }
  call_observed(op, info, keys, stack, state.observers);
}

c10::DispatchKey registered_key() {
  // From a function: a static registration in an archive may be dropped by the linker. Never
  // destroyed: see HookedEngine.
  static auto* library = [] {
    auto* made = new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
    made->fallback(torch::CppFunction::makeFromBoxedFunction<&observe>());
    return made;
  }();
  static_cast<void>(library);
  return kKey;
}

}  // namespace

OperatorObserverScope::OperatorObserverScope(OperatorObserver& observer, ObservedOperators observed)
    : outer_leaf_depth_(thread_state().leaf_depth),
      was_excluded_(c10::impl::tls_is_dispatch_key_excluded(kKey)),
      include_(registered_key()) {
  auto& state = thread_state();
  if (was_excluded_) {
    hidden_observers_.swap(state.observers);
    state.leaf_depth = 0;
    c10::impl::tls_set_dispatch_key_excluded(kKey, false);
  }
  state.observers.push_back(&observer);
  if (observed == ObservedOperators::kLeaves) ++state.leaf_depth;
}

OperatorObserverScope::~OperatorObserverScope() {
  auto& state = thread_state();
  state.leaf_depth = outer_leaf_depth_;
  state.observers.pop_back();
  if (!was_excluded_) return;
  hidden_observers_.swap(state.observers);
  c10::impl::tls_set_dispatch_key_excluded(kKey, true);
}

bool are_leaves_observed() {
  return thread_state().leaf_depth > 0;
}

UnobservedScope::UnobservedScope() : exclude_(kKey) {}

void run_again(const OperatorInfo& info, std::vector<c10::IValue>& stack) {
  constexpr auto kSkipped = c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                            c10::autocast_dispatch_keyset | c10::DispatchKeySet(kKey);
  const c10::impl::ExcludeDispatchKeyGuard exclude(kSkipped);
  info.handle->callBoxed(&stack);
}

std::vector<const OperatorInfo*> find_operators(const std::string& name) {
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<const OperatorInfo*> found;
  for (const auto& known : dispatcher.getAllOpNames()) {
    if (known.name != name && known.name + "." + known.overload_name != name) continue;
    if (const auto op = dispatcher.findOp(known)) found.push_back(&shared_info_of(*op));
  }
  return found;
}

}  // namespace reprise::detail
