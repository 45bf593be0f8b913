// SPDX-License-Identifier: Apache-2.0
// What recording costs: forward passes through a `Rematerializer` without a budget beside plain
// ones, by operator, and a whole training step. CPU times of one thread, the least of interleaved
// runs. Prints Markdown: see scripts/regenerate-docs.
//     remat_overhead [rounds, default 7]
#include "bench/cpu_time.h"
#include "bench/tft_pass.h"
#include "reprise/rematerializer.h"

#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>

namespace {

using reprise::bench::cpu_s;
using torch::Tensor;

double cpu_s_of(const std::function<void()>& work) {
  const double begin = cpu_s();
  work();
  return cpu_s() - begin;
}

struct Comparison {
  double plain_s = std::numeric_limits<double>::infinity();
  double recorded_s = std::numeric_limits<double>::infinity();
};

/// `pass` is a forward pass and returns its loss; `finish` gets that.
Comparison compare(const std::function<Tensor()>& pass,
                   const std::function<void(const Tensor&)>& finish, int rounds) {
  reprise::Rematerializer rematerializer;
  Comparison least;
  for (int i = 0; i <= rounds; ++i) {
    const double plain_s = cpu_s_of([&] { finish(pass()); });
    const double recorded_s = cpu_s_of([&] { finish(rematerializer.forward(pass)); });
    if (i == 0) continue;  // what a process does once
    least.plain_s = std::min(least.plain_s, plain_s);
    least.recorded_s = std::min(least.recorded_s, recorded_s);
  }
  return least;
}

/// Of small operators; the graph's end is part of it.
void print_operators(const char* name, bool saves, int rounds) {
  constexpr int kOperators = 20'000;
  const auto x = torch::ones({8}).requires_grad_(saves);
  const auto pass = [&] {
    auto y = x;
    for (int i = 0; i < kOperators; ++i) y = saves ? y.tanh() : y.neg();
    return y;
  };
  const auto cost = compare(pass, [](const Tensor&) {}, rounds);
  const double per_operator_us = 1e6 / kOperators;
  std::printf("| %s | %.2f µs | %.2f µs | %.2f µs |\n", name, cost.plain_s * per_operator_us,
              cost.recorded_s * per_operator_us,
              (cost.recorded_s - cost.plain_s) * per_operator_us);
}

/// Forward and backward of the small forecaster that the peers are timed with.
void print_tft(int rounds) {
  constexpr std::int64_t kBatch = 64;
  reprise::TftOptions options{
      .encoder_length = 168, .horizon = 24, .hidden_size = 16, .attention_heads = 4};
  options.static_reals = 2;
  options.observed_reals = 5;
  options.known_reals = 5;
  reprise::bench::TftPass tft(options, kBatch);
  const auto cost = compare([&] { return tft.loss(); },
                            [&](const Tensor& loss) {
                              loss.backward();
                              tft.model()->zero_grad();
                            },
                            15 * rounds);  // the difference is smaller than this machine's noise
  std::printf("| a step of the small TFT (hidden 16, batch 64) | %.2f ms | %.2f ms | %+.1f %% |\n",
              1e3 * cost.plain_s, 1e3 * cost.recorded_s,
              100.0 * (cost.recorded_s / cost.plain_s - 1.0));
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 7;
  torch::manual_seed(1);
  at::set_num_threads(1);
  std::printf("| | plain | recorded | difference |\n|---|---|---|---|\n");
  print_operators("an operator", false, rounds);
  print_operators("an operator whose result autograd saves", true, rounds);
  print_tft(rounds);
}
