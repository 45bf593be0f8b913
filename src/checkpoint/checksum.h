// SPDX-License-Identifier: Apache-2.0
/// Recognise a tensor's values without keeping them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace reprise::detail {

/// The elements of `tensor` in order, dense, on the CPU, as the bytes that they stand for.
at::Tensor elements_of(const at::Tensor& tensor);

/// A hash of the bytes of `tensor` in the order of its elements. Equal bytes give equal checksums;
/// two different tensors agree with a chance of about 2^-64.
std::uint64_t checksum_of(const at::Tensor& tensor);

}  // namespace reprise::detail
