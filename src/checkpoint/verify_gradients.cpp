// SPDX-License-Identifier: Apache-2.0
#include "reprise/verify_gradients.h"

#include "autograd/forward_context.h"
#include "checkpoint/checksum.h"

#include <ATen/core/grad_mode.h>
#include <torch/autograd.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <ranges>
#include <sstream>

namespace reprise {
namespace {

using at::Tensor;
using detail::elements_of;

bool has_same_bytes(const Tensor& a, const Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const auto x = elements_of(a);
  const auto y = elements_of(b);
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (!a.defined() && !b.defined()) return 0;
  if (!a.defined() || !b.defined() || a.sizes() != b.sizes()) return kInfinity;
  if (a.numel() == 0) return 0;
  const auto type = a.is_complex() ? at::kComplexDouble : at::kDouble;
  const auto x = elements_of(a).to(type);
  const auto y = elements_of(b).to(type);
  // Equal infinities and two NaN do not differ.
  const auto is_same = x.eq(y).logical_or(x.isnan().logical_and(y.isnan()));
  const auto largest = (x - y).abs().masked_fill(is_same, 0).max().item<double>();
  return std::isnan(largest) ? kInfinity : largest;
}

/// What one forward and backward pass leaves.
struct Pass {
  Tensor output;
  std::vector<Tensor> gradients;  // of the parameters; undefined: none
  std::vector<Tensor> buffers;    // copies
  detail::RandomState random_state;
};

/// The tensors that the passes work on, and their values before.
class Subject {
 public:
  explicit Subject(const NamedTensors& tensors) {
    for (const auto& [name, tensor] : tensors) {
      auto& names = tensor.requires_grad() ? parameter_names_ : buffer_names_;
      auto& list = tensor.requires_grad() ? parameters_ : buffers_;
      names.push_back(name);
      list.push_back(tensor);
    }
    TORCH_CHECK_VALUE(!parameters_.empty(), "verify_gradients: none of the ", tensors.size(),
                      " tensors given needs a gradient");
    parameters_before_ = copies(parameters_);
    buffers_before_ = copies(buffers_);
  }

  Pass run(const std::function<Tensor()>& function, const char* which) {
    reset();
    const at::AutoGradMode enable_grad(true);
    const auto output = function();
    TORCH_CHECK_VALUE(output.defined() && output.requires_grad(),
                      "verify_gradients: the output of ", which,
                      " needs no gradient: nothing is trained");
    Pass pass;
    pass.gradients = torch::autograd::grad({output.sum()}, parameters_, {}, /*retain_graph=*/false,
                                           /*create_graph=*/false, /*allow_unused=*/true);
    pass.output = output.detach();
    pass.buffers = copies(buffers_);
    pass.random_state = detail::RandomState();
    return pass;
  }

  /// Puts parameters, buffers and generators back.
  void reset() {
    const at::NoGradGuard no_grad;
    restore(parameters_, parameters_before_);
    restore(buffers_, buffers_before_);
    random_state_.restore();
  }

  const std::vector<std::string>& parameter_names() const { return parameter_names_; }
  const std::vector<std::string>& buffer_names() const { return buffer_names_; }

 private:
  static std::vector<Tensor> copies(const std::vector<Tensor>& tensors) {
    std::vector<Tensor> result;
    for (const auto& tensor : tensors) result.push_back(tensor.detach().clone());
    return result;
  }

  static void restore(std::vector<Tensor>& tensors, const std::vector<Tensor>& before) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      // Untouched where equal: a change counts against whoever saved the tensor.
      if (!has_same_bytes(tensors[i], before[i])) tensors[i].copy_(before[i]);
    }
  }

  std::vector<std::string> parameter_names_;
  std::vector<Tensor> parameters_;
  std::vector<std::string> buffer_names_;
  std::vector<Tensor> buffers_;
  std::vector<Tensor> parameters_before_;
  std::vector<Tensor> buffers_before_;
  detail::RandomState random_state_;
};

GradientReport compare(const Subject& subject, const Pass& plain, const Pass& checkpointed) {
  GradientReport report;
  for (std::size_t i = 0; i < plain.gradients.size(); ++i) {
    const auto& a = plain.gradients[i];
    const auto& b = checkpointed.gradients[i];
    report.parameters.push_back({.name = subject.parameter_names()[i],
                                 .has_plain_gradient = a.defined(),
                                 .has_checkpointed_gradient = b.defined(),
                                 .is_equal = has_same_bytes(a, b),
                                 .largest_difference = largest_difference(a, b)});
  }
  for (std::size_t i = 0; i < plain.buffers.size(); ++i) {
    if (!has_same_bytes(plain.buffers[i], checkpointed.buffers[i]))
      report.differing_buffers.push_back(subject.buffer_names()[i]);
  }
  report.has_equal_outputs = has_same_bytes(plain.output, checkpointed.output);
  report.has_equal_random_stream = plain.random_state == checkpointed.random_state;
  return report;
}

GradientReport compare_passes(Subject& subject, const std::function<Tensor()>& plain,
                              const std::function<Tensor()>& checkpointed) {
  const auto plain_pass = subject.run(plain, "the plain pass");
  const auto checkpointed_pass = subject.run(checkpointed, "the checkpointed pass");
  auto report = compare(subject, plain_pass, checkpointed_pass);
  if (!report.is_equal()) {
    report.is_plain_repeatable =
        compare(subject, plain_pass, subject.run(plain, "the plain pass")).is_equal();
  }
  return report;
}

void write_parameter(std::ostream& out, const GradientComparison& parameter) {
  out << "  " << parameter.name << ": ";
  if (parameter.has_plain_gradient && parameter.has_checkpointed_gradient) {
    out << "differs by up to " << parameter.largest_difference << "\n";
  } else if (parameter.has_plain_gradient) {
    out << "gets no gradient in the checkpointed pass\n";
  } else {
    out << "gets a gradient in the checkpointed pass only\n";
  }
}

}  // namespace

NamedTensors named_tensors(const torch::nn::Module& module) {
  NamedTensors tensors;
  for (const auto& item : module.named_parameters()) tensors.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

bool GradientReport::is_equal() const {
  return std::ranges::all_of(parameters, &GradientComparison::is_equal) &&
         differing_buffers.empty() && has_equal_outputs && has_equal_random_stream;
}

std::vector<std::string> GradientReport::without_gradient() const {
  std::vector<std::string> names;
  for (const auto& parameter : parameters) {
    if (!parameter.has_plain_gradient && !parameter.has_checkpointed_gradient)
      names.push_back(parameter.name);
  }
  return names;
}

std::string GradientReport::to_text() const {
  std::ostringstream out;
  const auto differing =
      std::ranges::count_if(parameters, [](const auto& parameter) { return !parameter.is_equal; });
  out << "gradients of " << parameters.size() << " parameters compared, " << differing
      << " differ\n";
  for (const auto& parameter : parameters) {
    if (!parameter.is_equal) write_parameter(out, parameter);
  }
  const auto unused = without_gradient();
  if (!unused.empty()) out << "no gradient in either pass:\n";
  for (const auto& name : unused) out << "  " << name << "\n";
  for (const auto& name : differing_buffers)
    out << "buffer " << name << " is left with other values\n";
  if (!has_equal_outputs) out << "the outputs differ\n";
  if (!has_equal_random_stream) out << "the random number generators are left in other states\n";
  if (!is_plain_repeatable)
    out << "two plain passes differ too: the model is not repeatable, so this says nothing about "
           "checkpointing\n";
  out << (is_equal() ? "equal: bit for bit\n" : "not equal\n");
  return out.str();
}

GradientReport verify_gradients(const NamedTensors& parameters,
                                const std::function<Tensor()>& plain,
                                const std::function<Tensor()>& checkpointed) {
  Subject subject(parameters);
  try {
    auto report = compare_passes(subject, plain, checkpointed);
    subject.reset();
    return report;
  } catch (...) {
    subject.reset();
    throw;
  }
}

}  // namespace reprise
