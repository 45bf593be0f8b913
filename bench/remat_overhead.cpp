// SPDX-License-Identifier: Apache-2.0
// What recording costs: forward passes through a `Rematerializer` without a budget beside plain
// ones, by operator, and a whole training step. CPU times of one thread, the least of interleaved
// runs. Prints Markdown: see scripts/regenerate-docs.
//     remat_overhead [rounds, default 7]
#include "reprise/quantile_loss.h"
#include "reprise/rematerializer.h"
#include "reprise/tft.h"

#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <limits>

namespace {

using torch::Tensor;

double cpu_s() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

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
  reprise::TemporalFusionTransformer model(options);
  const auto steps = options.encoder_length + options.horizon;
  reprise::TftInput input;
  input.static_real = torch::randn({kBatch, options.static_reals});
  input.observed_real = torch::randn({kBatch, options.encoder_length, options.observed_reals});
  input.known_real = torch::randn({kBatch, steps, options.known_reals});
  const auto target = torch::randn({kBatch, options.horizon});
  const auto cost = compare(
      [&] { return reprise::quantile_loss(model->forward(input), target, options.quantiles); },
      [&](const Tensor& loss) {
        loss.backward();
        model->zero_grad();
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
