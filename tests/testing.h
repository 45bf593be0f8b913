// SPDX-License-Identifier: Apache-2.0
/// What several test programs share.
#pragma once

#include <ATen/ATen.h>

#include <cstring>
#include <exception>
#include <string>

namespace reprise::testing {

/// Equal shapes, types and bytes: NaN equals itself, -0 differs from 0.
inline bool is_same_bytes(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const auto x = a.contiguous();
  const auto y = b.contiguous();
  // memcmp must not see the null pointers of empty tensors.
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

/// The message of the exception that `action` throws; empty when it throws none.
template <typename Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

}  // namespace reprise::testing
