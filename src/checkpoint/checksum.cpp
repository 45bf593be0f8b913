// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checksum.h"

#include "autograd/operator_observer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <bit>
#include <cstring>

namespace reprise::detail {
namespace {

/// One round: multiply, rotate, multiply, as in the xxHash family.
std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  constexpr std::uint64_t kFirst = 0x9E3779B185EBCA87;  // both odd, both with mixed bits
  constexpr std::uint64_t kSecond = 0xC2B2AE3D27D4EB4F;
  return std::rotl(hash ^ (std::rotl(word * kSecond, 31) * kFirst), 27) * kFirst + kSecond;
}

std::uint64_t checksum_of_bytes(const char* data, std::size_t size) {
  std::uint64_t hash = size;
  std::size_t i = 0;
  for (; i + sizeof(std::uint64_t) <= size; i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, data + i, sizeof(word));
    hash = mix(hash, word);
  }
  std::uint64_t rest = 0;
  if (i < size) std::memcpy(&rest, data + i, size - i);
  return mix(hash, rest);
}

}  // namespace

at::Tensor elements_of(const at::Tensor& tensor) {
  const auto strided = tensor.layout() == at::kStrided ? tensor : tensor.to_dense();
  return strided.detach().resolve_conj().resolve_neg().to(at::kCPU).contiguous();
}

std::uint64_t checksum_of(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const UnobservedScope unobserved;
  if (tensor.is_sparse()) {
    return mix(checksum_of(tensor._indices()), checksum_of(tensor._values()));
  }
  const auto bytes = elements_of(tensor);
  return checksum_of_bytes(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes());
}

}  // namespace reprise::detail
