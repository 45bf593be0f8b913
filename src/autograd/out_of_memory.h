// SPDX-License-Identifier: Apache-2.0
/// Tell that memory ran out from other errors.
#pragma once

#include <exception>

namespace reprise::detail {

/// Whether an error says that there is no more memory, whoever says it: the ledger, LibTorch's
/// allocators, oneDNN (which cannot make a kernel then), or the C++ library.
bool is_out_of_memory(const std::exception& error);

}  // namespace reprise::detail
