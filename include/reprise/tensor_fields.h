// SPDX-License-Identifier: Apache-2.0
/// Say which tensors a value holds, so that a checkpointed region can treat each of them as an
/// input.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <complex>
#include <concepts>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace reprise {

/// Opt-in for a struct of the user: `fields` returns `std::tie` of every member that holds
/// tensors, directly or inside a type that has a `TensorFields` itself.
///
///     struct Batch { at::Tensor x; std::optional<at::Tensor> mask; };
///     template <> struct reprise::TensorFields<Batch> {
///       static auto fields(Batch& batch) { return std::tie(batch.x, batch.mask); }
///     };
template <typename T>
struct TensorFields {};

namespace detail {

template <typename T>
concept HasTensorFields = requires(T& value) { TensorFields<T>::fields(value); };

template <typename T>
struct IsComplex : std::false_type {};
template <typename T>
struct IsComplex<std::complex<T>> : std::true_type {};
template <typename T>
struct IsComplex<c10::complex<T>> : std::true_type {};

/// Values that hold no tensors. Views of memory that others own (std::string_view, at::ArrayRef)
/// are not among them: a region keeps its inputs until backward.
template <typename T>
concept Plain =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_pointer_v<T> ||
    std::same_as<T, std::nullptr_t> || std::same_as<T, std::nullopt_t> ||
    std::same_as<T, std::string> || IsComplex<T>::value || std::same_as<T, at::TensorOptions> ||
    std::same_as<T, c10::Scalar> || std::same_as<T, c10::Device> || std::same_as<T, at::Generator>;

template <typename T>
struct IsPairOrTuple : std::false_type {};
template <typename A, typename B>
struct IsPairOrTuple<std::pair<A, B>> : std::true_type {};
template <typename... T>
struct IsPairOrTuple<std::tuple<T...>> : std::true_type {};

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <typename T>
struct IsSequence : std::false_type {};
template <typename T, typename A>
struct IsSequence<std::vector<T, A>> : std::true_type {};
template <typename T, std::size_t N>
struct IsSequence<std::array<T, N>> : std::true_type {};

template <typename T>
struct IsMap : std::false_type {};
template <typename K, typename V, typename C, typename A>
struct IsMap<std::map<K, V, C, A>> : std::true_type {};
template <typename K, typename V, typename H, typename E, typename A>
struct IsMap<std::unordered_map<K, V, H, E, A>> : std::true_type {};

template <typename T>
inline constexpr bool kHasNoTensorFields = false;

/// Calls `visit(at::Tensor&)` for every tensor in `value`, the undefined ones included; the order
/// is that of the members and elements.
template <typename T, typename Visit>
void visit_tensors(T& value, Visit&& visit) {
  if constexpr (std::same_as<T, at::Tensor>) {
    visit(value);
  } else if constexpr (HasTensorFields<T>) {
    std::apply([&](auto&... field) { (visit_tensors(field, visit), ...); },
               TensorFields<T>::fields(value));
  } else if constexpr (IsOptional<T>::value) {
    if (value) visit_tensors(*value, visit);
  } else if constexpr (IsPairOrTuple<T>::value) {
    std::apply([&](auto&... element) { (visit_tensors(element, visit), ...); }, value);
  } else if constexpr (IsMap<T>::value) {
    for (auto& [key, element] : value) visit_tensors(element, visit);
  } else if constexpr (std::same_as<T, std::vector<bool>>) {
    // Its elements are no objects of their own, and hold no tensors.
  } else if constexpr (IsSequence<T>::value) {
    for (auto& element : value) visit_tensors(element, visit);
  } else {
    static_assert(Plain<T> || kHasNoTensorFields<T>,
                  "this type may hold tensors: specialise reprise::TensorFields for it (return "
                  "std::tie() where it holds none)");
  }
}

}  // namespace detail
}  // namespace reprise
