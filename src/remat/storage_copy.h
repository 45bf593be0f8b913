// SPDX-License-Identifier: Apache-2.0
/// New storages, empty or with the bytes of another one.
#pragma once

#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>

#include <cstddef>
#include <cstdint>

namespace reprise::detail {

inline c10::Storage new_storage(std::int64_t bytes, const c10::Device& device) {
  auto* const allocator = c10::GetAllocator(device.type());
  const auto size = static_cast<std::size_t>(bytes);
  return c10::Storage(c10::Storage::use_byte_size_t(), size, allocator->allocate(size), allocator,
                      /*resizable=*/true);
}

inline c10::Storage copy_of(const c10::Storage& storage) {
  auto copy = new_storage(static_cast<std::int64_t>(storage.nbytes()), storage.device());
  const auto view = [](const c10::Storage& of) {
    const auto options = at::TensorOptions().dtype(at::kByte).device(of.device());
    return at::empty({0}, options).set_(of, 0, {static_cast<std::int64_t>(of.nbytes())}, {1});
  };
  view(copy).copy_(view(storage));
  return copy;
}

}  // namespace reprise::detail
