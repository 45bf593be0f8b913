// SPDX-License-Identifier: Apache-2.0
#include "remat/operator_kinds.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace reprise::detail {
namespace {

template <std::size_t Size>
bool is_in(const std::array<std::string_view, Size>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

struct KeptOperators {
  std::string_view name;
  const char* reason;
};

/// Those of LibTorch whose tags and schemas do not tell.
constexpr std::array<KeptOperators, 4> kKept = {{
    {"aten::_local_scalar_dense", "it has no tensor to recompute"},
    {"aten::_pin_memory", "where its result lies is not for us to choose"},
    {"aten::_fused_dropout", "it draws from a stream of its own"},
    {"aten::_cudnn_init_dropout_state", "it keeps a state of its own"},
}};

constexpr std::array<std::string_view, 9> kUnfilled = {"aten::empty",
                                                       "aten::empty_like",
                                                       "aten::empty_strided",
                                                       "aten::empty_permuted",
                                                       "aten::new_empty",
                                                       "aten::new_empty_strided",
                                                       "aten::empty_quantized",
                                                       "aten::_empty_affine_quantized",
                                                       "aten::_efficientzerotensor"};

constexpr std::array<std::string_view, 5> kReplacesMemory = {
    "aten::resize_", "aten::resize_as_", "aten::set_", "aten::_resize_output_", "aten::set_data"};

constexpr std::array<std::string_view, 10> kOverwrites = {
    "aten::fill_",   "aten::zero_",      "aten::copy_",   "aten::bernoulli_",
    "aten::normal_", "aten::uniform_",   "aten::random_", "aten::exponential_",
    "aten::cauchy_", "aten::log_normal_"};

}  // namespace

const char* reason_to_keep(const OperatorInfo& info) {
  if (!info.is_of_libtorch) return "it is none of LibTorch's: what else it does is not known";
  if (!info.is_deterministic) return "it is not deterministic: a second run may differ in bits";
  if (!info.handle) return "it has no schema";
  const auto found = std::ranges::find(kKept, std::string_view(info.name), &KeptOperators::name);
  return found == kKept.end() ? nullptr : found->reason;
}

bool makes_unfilled_memory(const OperatorInfo& info) {
  return is_in(kUnfilled, info.name);
}

bool replaces_memory(const OperatorInfo& info) {
  return is_in(kReplacesMemory, info.name);
}

bool overwrites(const OperatorInfo& info, std::size_t index) {
  return (info.has_out_argument && index + 1 == info.arguments.size()) ||
         (index == 0 && is_in(kOverwrites, info.name));
}

}  // namespace reprise::detail
