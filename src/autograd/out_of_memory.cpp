// SPDX-License-Identifier: Apache-2.0
#include "autograd/out_of_memory.h"

#include "reprise/errors.h"

#include <c10/util/Exception.h>

#include <new>
#include <string_view>

#if __has_include(<oneapi/dnnl/dnnl_common.hpp>)
#include <oneapi/dnnl/dnnl_common.hpp>
#endif

namespace reprise::detail {
namespace {

bool is_of_onednn([[maybe_unused]] const std::exception& error) {
#if __has_include(<oneapi/dnnl/dnnl_common.hpp>)
  const auto* of_onednn = dynamic_cast<const dnnl::error*>(&error);
  return of_onednn != nullptr && (of_onednn->status == dnnl_out_of_memory ||
                                  // no memory for the code of a kernel
                                  of_onednn->status == dnnl_runtime_error);
#else
  return false;
#endif
}

}  // namespace

bool is_out_of_memory(const std::exception& error) {
  return dynamic_cast<const BudgetError*>(&error) != nullptr ||
         dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         dynamic_cast<const std::bad_alloc*>(&error) != nullptr || is_of_onednn(error) ||
         std::string_view(error.what()).find("can't allocate memory") != std::string_view::npos;
}

}  // namespace reprise::detail
