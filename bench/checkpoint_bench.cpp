// SPDX-License-Identifier: Apache-2.0
// What a checkpointed region costs beyond the kernels it runs again. The same measurements as
// peers/checkpoint_overhead.py, in the same format; bench/overhead.py runs both.
//
// A step is forward and backward of a chain of 16 regions of k operators on a tensor of one
// element, in one thread; its time is CPU time, the minimum of many repetitions. `sin` saves one
// tensor, `neg` none; a region of `neg` or `mm` ends in one `sin`, so that backward recomputes it.
// Modes:
//   plain       the step without checkpointing
//   forward     its forward pass alone, which builds the graph and drops it
//   checkpoint  each region checkpointed, with default options
//   selective   the same with a policy that keeps the results of aten::mm
//   hooks       plain, each saved tensor through a hook that keeps it and gives it back
//   hooks, forward   the forward pass of that alone
// One line of JSON for each pair of operator and mode: seconds per region for each k. From the
// lines over k overhead.py takes, where extra = checkpoint - plain:
//   per region                     intercept of extra of sin
//   per operator                   slope of extra of neg - slope of its forward, which is run again
//   per operator, one saved tensor the same of sin
//   per saved tensor               the difference of these two
//   empty hooks                    what a saved tensor costs (sin - neg) in hooks - plain, and once
//                                  more in hooks, forward - forward: both runs save it. No way of
//                                  checkpointing by hooks can cost less
//   policy, per other operator     slope of neg's selective - slope of its checkpoint
//   policy, per kept operator      slope of selective - plain of mm
#include "autograd/saved_tensor_hooks.h"
#include "reprise/checkpoint.h"

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <iomanip>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

constexpr int kRegions = 16;
constexpr std::array kOperatorsPerRegion = {1, 2, 4, 8, 16, 32};

enum class Mode { kPlain, kForward, kCheckpoint, kSelective, kHooks, kHooksForward };
constexpr std::array<std::string_view, 6> kModeNames = {"plain",     "forward", "checkpoint",
                                                        "selective", "hooks",   "hooks, forward"};

using Operator = at::Tensor (*)(const at::Tensor&);

at::Tensor take_sin(const at::Tensor& x) {
  return at::sin(x);
}
at::Tensor negate(const at::Tensor& x) {
  return at::neg(x);
}
at::Tensor multiply(const at::Tensor& x) {
  static const at::Tensor kWeight = torch::ones({1, 1});
  return at::mm(x, kWeight);
}

/// One operator in one mode, and the shortest time of a step for each number of operators.
struct Series {
  std::string_view name;
  Operator apply;
  Mode mode;
  std::array<double, kOperatorsPerRegion.size()> seconds = {};
};

struct Region {
  Operator apply;
  int operators;

  at::Tensor operator()(at::Tensor x) const {
    for (int i = 0; i < operators; ++i) x = apply(x);
    return apply == take_sin ? x : at::sin(x);
  }
};

std::vector<Series> all_series() {
  return {{"sin", take_sin, Mode::kPlain},      {"sin", take_sin, Mode::kForward},
          {"sin", take_sin, Mode::kCheckpoint}, {"neg", negate, Mode::kPlain},
          {"neg", negate, Mode::kForward},      {"neg", negate, Mode::kCheckpoint},
          {"neg", negate, Mode::kSelective},    {"mm", multiply, Mode::kPlain},
          {"mm", multiply, Mode::kSelective},   {"sin", take_sin, Mode::kHooks},
          {"neg", negate, Mode::kHooks},        {"sin", take_sin, Mode::kHooksForward},
          {"neg", negate, Mode::kHooksForward}};
}

/// Keeps each saved tensor, and nothing else.
class EmptyHooks : public reprise::detail::SavedTensorHandler {
 public:
  std::unique_ptr<reprise::detail::PackedTensor> next() override {
    return std::make_unique<Kept>();
  }

 private:
  struct Kept : reprise::detail::PackedTensor {
    void pack(const at::Tensor& saved) override {
      tensor = reprise::detail::without_history(saved);
    }
    at::Tensor unpack() override { return tensor; }
    at::Tensor tensor;
  };
};

at::Tensor run_with_hooks(const Region& region, const at::Tensor& x) {
  EmptyHooks hooks;
  const reprise::detail::SavedTensorScope scope(hooks);
  return region(x);
}

at::Tensor run_region(const Region& region, Mode mode, const at::Tensor& x) {
  static const reprise::CheckpointOptions kKeepMatrixProducts = {
      .save_policy = reprise::SavePolicy(std::vector<std::string>{"aten::mm"})};
  switch (mode) {
    case Mode::kCheckpoint:
      return reprise::checkpoint(region, x);
    case Mode::kSelective:
      return reprise::checkpoint(kKeepMatrixProducts, region, x);
    case Mode::kHooks:
    case Mode::kHooksForward:
      return run_with_hooks(region, x);
    default:
      return region(x);
  }
}

void run_step(const Region& region, Mode mode, const at::Tensor& leaf) {
  at::Tensor x = leaf;
  for (int i = 0; i < kRegions; ++i) x = run_region(region, mode, x);
  if (mode != Mode::kForward && mode != Mode::kHooksForward) x.backward();
}

double cpu_seconds() {
  std::timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// The shortest of three, because the first finds the caches as the step before left them.
double time_step(const Region& region, Mode mode, const at::Tensor& leaf) {
  double shortest = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {
    const double begin = cpu_seconds();
    run_step(region, mode, leaf);
    shortest = std::min(shortest, cpu_seconds() - begin);
  }
  return shortest;
}

at::Tensor new_leaf() {
  auto leaf = torch::full({1, 1}, 0.5).requires_grad_();
  leaf.mutable_grad() = torch::zeros({1, 1});
  return leaf;
}

/// Nothing is timed before checkpointed gradients equal plain ones.
void check_gradients(const std::vector<Series>& all) {
  for (const auto& series : all) {
    if (series.mode != Mode::kCheckpoint && series.mode != Mode::kSelective) continue;
    const Region region{series.apply, 4};
    const auto plain = new_leaf();
    const auto other = new_leaf();
    run_step(region, Mode::kPlain, plain);
    run_step(region, series.mode, other);
    TORCH_CHECK(torch::equal(plain.grad(), other.grad()), "gradients of ", series.name,
                " differ from plain ones");
  }
}

/// Goes through all series in each repetition: a slow moment of the machine hits all of them.
void measure(std::vector<Series>& all, int repetitions) {
  const auto leaf = new_leaf();
  for (auto& series : all) series.seconds.fill(std::numeric_limits<double>::infinity());
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    for (auto& series : all) {
      for (std::size_t i = 0; i < kOperatorsPerRegion.size(); ++i) {
        const Region region{series.apply, kOperatorsPerRegion[i]};
        series.seconds[i] = std::min(series.seconds[i], time_step(region, series.mode, leaf));
      }
    }
  }
}

void print(const Series& series) {
  std::cout << std::setprecision(9) << R"({"operator": ")" << series.name << R"(", "mode": ")"
            << kModeNames.at(static_cast<std::size_t>(series.mode))
            << R"(", "operators_per_region": [)";
  const char* separator = "";
  for (const int operators : kOperatorsPerRegion) {
    std::cout << std::exchange(separator, ", ") << operators;
  }
  std::cout << R"(], "seconds_per_region": [)";
  separator = "";
  for (const double seconds : series.seconds) {
    std::cout << std::exchange(separator, ", ") << seconds / kRegions;
  }
  std::cout << "]}\n";
}

}  // namespace

/// checkpoint_bench [REPETITIONS]
int main(int argument_count, char** arguments) {
  const int repetitions = argument_count > 1 ? std::atoi(arguments[1]) : 20;
  at::set_num_threads(1);
  auto all = all_series();
  check_gradients(all);
  measure(all, repetitions);
  for (const auto& series : all) print(series);
}
