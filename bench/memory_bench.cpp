// SPDX-License-Identifier: Apache-2.0
// What the ledger costs and what its pool gains, against LibTorch's own allocator (glibc's malloc)
// in the same run. Times are CPU times, the least of interleaved runs. Prints the table of
// docs/memory.md as Markdown: see scripts/regenerate-docs.
//     memory_bench [rounds, default 5]
#include "bench/cpu_time.h"
#include "bench/tft_pass.h"
#include "reprise/checkpoint.h"
#include "reprise/memory.h"

#include <c10/core/CPUAllocator.h>
#include <torch/torch.h>

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace {

using reprise::bench::cpu_s;
using reprise::bench::TftPass;
using torch::Tensor;

std::int64_t page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

struct Cost {
  double cpu_s = std::numeric_limits<double>::infinity();
  std::int64_t page_faults = std::numeric_limits<std::int64_t>::max();
};

/// Least cost of each function with each allocator, interleaved.
struct Comparison {
  Cost glibc;
  Cost ledger;
};

Comparison compare(const std::function<void()>& work, int rounds) {
  auto* const ledger = c10::GetAllocator(c10::kCPU);
  auto* const glibc = c10::GetDefaultCPUAllocator();
  constexpr std::uint8_t kHighest = 255;
  Comparison comparison;
  for (int i = 0; i <= rounds; ++i) {
    for (auto* allocator : {glibc, ledger}) {
      c10::SetAllocator(c10::kCPU, allocator, kHighest);
      const auto faults = page_faults();
      const double start = cpu_s();
      work();
      if (i == 0) continue;  // what is done once
      auto& cost = allocator == ledger ? comparison.ledger : comparison.glibc;
      cost.cpu_s = std::min(cost.cpu_s, cpu_s() - start);
      cost.page_faults = std::min(cost.page_faults, page_faults() - faults);
    }
  }
  return comparison;
}

void print_row(const std::string& what, const Comparison& comparison) {
  std::printf("| %s | %.3f | %.3f | %.2f | %lld | %lld |\n", what.c_str(), comparison.glibc.cpu_s,
              comparison.ledger.cpu_s, comparison.glibc.cpu_s / comparison.ledger.cpu_s,
              static_cast<long long>(comparison.glibc.page_faults),
              static_cast<long long>(comparison.ledger.page_faults));
  std::fflush(stdout);
}

/// One step of 16 layers of width 512, plain or with a region for every four of them.
class Mlp {
 public:
  explicit Mlp(std::int64_t rows) : input_(torch::full({rows, 512}, 0.01).requires_grad_(true)) {
    for (int i = 0; i < 16; ++i) {
      layers_.emplace_back(torch::nn::Linear(512, 512), torch::nn::GELU(),
                           torch::nn::LayerNorm(torch::nn::LayerNormOptions({512})));
    }
  }

  void step(bool is_checkpointed) {
    for (auto& layer : layers_) layer->zero_grad();
    Tensor x = input_;
    constexpr std::size_t kPerRegion = 4;
    for (std::size_t first = 0; first < layers_.size(); first += kPerRegion) {
      const auto region = [&, first](const Tensor& v) {
        Tensor y = v;
        for (std::size_t i = first; i < first + kPerRegion; ++i) y = layers_[i]->forward(y);
        return y;
      };
      x = is_checkpointed ? reprise::checkpoint(region, x) : region(x);
    }
    (x * x).sum().backward();
  }

 private:
  std::vector<torch::nn::Sequential> layers_;
  Tensor input_;
};

/// One step of a Temporal Fusion Transformer.
void step(TftPass& pass) {
  pass.model()->zero_grad();
  pass.loss().backward();
}

/// Cost of a tensor that is made and freed at once, nanoseconds.
void print_tensor_row(std::int64_t elements, int rounds) {
  constexpr int kTensors = 100'000;
  const auto cost = compare(
      [&] {
        for (int i = 0; i < kTensors; ++i) torch::empty({elements});
      },
      rounds);
  std::printf("| %lld bytes | %.0f | %.0f |\n", static_cast<long long>(4 * elements),
              cost.glibc.cpu_s / kTensors * 1e9, cost.ledger.cpu_s / kTensors * 1e9);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 5;
  torch::manual_seed(1);
  std::printf("%d threads.\n\n", at::get_num_threads());
  std::printf(
      "| one step | glibc, CPU s | ledger, CPU s | glibc / ledger | page faults, glibc | "
      "page faults, ledger |\n| --- | ---: | ---: | ---: | ---: | ---: |\n");
  for (const std::int64_t rows : {2048, 20480}) {
    Mlp mlp(rows);
    const std::string blocks = std::to_string(rows * 512 * 4 / 1'000'000) + " MB blocks";
    for (const bool is_checkpointed : {false, true}) {
      print_row("16 layers, " + blocks + (is_checkpointed ? ", checkpointed" : ", plain"),
                compare([&] { mlp.step(is_checkpointed); }, rounds));
    }
  }
  TftPass small({.encoder_length = 48, .horizon = 24, .hidden_size = 16, .known_reals = 4}, 32);
  print_row("small TFT (hidden 16, batch 32)", compare([&] { step(small); }, rounds));
  TftPass wide({.encoder_length = 50,
                .horizon = 10,
                .hidden_size = 128,
                .encoder_grn = true,
                .static_reals = 5,
                .known_reals = 10,
                .observed_reals = 200},
               16);
  print_row("TFT-225, batch 16", compare([&] { step(wide); }, std::max(1, rounds / 2)));

  std::printf("\n| a tensor made and freed | glibc, ns | ledger, ns |\n| --- | ---: | ---: |\n");
  for (const std::int64_t elements : {16, 4096, 262144}) print_tensor_row(elements, rounds);
  return 0;
}
