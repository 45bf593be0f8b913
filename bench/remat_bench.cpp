// SPDX-License-Identifier: Apache-2.0
// Training steps within shares of the memory that a plain step takes for its activations: what is
// run again, and how long the step is beside a plain one in the same run. Prints Markdown.
//     remat_bench mlp|transformer|chain [share...]
#include "reprise/errors.h"
#include "reprise/memory.h"
#include "reprise/rematerializer.h"

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace {

using torch::Tensor;

struct Model {
  std::function<Tensor()> loss;
  std::vector<Tensor> parameters;
};

/// 32 x [Linear 1024, GELU, LayerNorm], batch 2048.
Model mlp(int layers, std::int64_t width, std::int64_t batch) {
  torch::nn::Sequential model;
  for (int i = 0; i < layers; ++i) {
    model->push_back(torch::nn::Linear(width, width));
    model->push_back(torch::nn::GELU());
    model->push_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
  }
  const auto x = torch::randn({batch, width});
  return {[model, x]() mutable { return model->forward(x).square().mean(); }, model->parameters()};
}

/// Equal layers.
Model chain(int layers, std::int64_t width, std::int64_t batch) {
  torch::nn::Sequential model;
  for (int i = 0; i < layers; ++i) {
    model->push_back(torch::nn::Linear(width, width));
    model->push_back(torch::nn::Tanh());
  }
  const auto x = torch::randn({batch, width});
  return {[model, x]() mutable { return model->forward(x).square().mean(); }, model->parameters()};
}

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(std::int64_t width, std::int64_t head_count)
      : heads(head_count),
        norm1(register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        norm2(register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        qkv(register_module("qkv", torch::nn::Linear(width, 3 * width))),
        out(register_module("out", torch::nn::Linear(width, width))),
        up(register_module("up", torch::nn::Linear(width, 4 * width))),
        down(register_module("down", torch::nn::Linear(4 * width, width))) {}

  Tensor forward(const Tensor& x) {
    const auto batch = x.size(0);
    const auto steps = x.size(1);
    const auto width = x.size(2);
    const auto parts =
        qkv(norm1(x)).view({batch, steps, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
    const auto attended = at::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
    const auto y = x + out(attended.transpose(1, 2).reshape({batch, steps, width}));
    return y + down(torch::gelu(up(norm2(y))));
  }

  std::int64_t heads;
  torch::nn::LayerNorm norm1, norm2;
  torch::nn::Linear qkv, out, up, down;
};
TORCH_MODULE(Block);

/// 12 layers, d 512, 8 heads, sequence 256, batch 16.
Model transformer(int layers, std::int64_t width, std::int64_t steps, std::int64_t batch) {
  torch::nn::Sequential model;
  for (int i = 0; i < layers; ++i) model->push_back(Block(width, 8));
  const auto x = torch::randn({batch, steps, width});
  return {[model, x]() mutable { return model->forward(x).square().mean(); }, model->parameters()};
}

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

class Bench {
 public:
  explicit Bench(Model model) : model_(std::move(model)) {
    for (const auto& parameter : model_.parameters)
      parameter.mutable_grad() = torch::zeros_like(parameter);
    plain();
    reprise::reset_peak_memory();
    start_bytes_ = reprise::memory_stats().current_bytes;
    plain();
    plain_bytes_ = reprise::memory_stats().peak_bytes - start_bytes_;
    std::printf("plain: %.1f MB of activations at the peak\n\n",
                1e-6 * static_cast<double>(plain_bytes_));
    std::printf(
        "| share asked | share taken | foretold - taken [bytes] | replayed / plain step [%%] | "
        "foretold "
        "[%%] | step / plain step | replayed operations |\n|---|---|---|---|---|---|---|\n");
  }

  void run(double share, int steps) {
    double plain_s = std::numeric_limits<double>::infinity();
    double ours_s = plain_s;
    reprise::RematerializerStats before;
    reprise::RematerializerStats after;
    const auto budget =
        start_bytes_ + static_cast<std::int64_t>(share * static_cast<double>(plain_bytes_));
    std::int64_t peak = 0;
    for (int i = 0; i < 2; ++i) plain_s = std::min(plain_s, seconds_of([&] { plain(); }));
    try {
      reprise::Rematerializer rematerializer({.budget_bytes = budget});
      for (int i = 0; i < steps; ++i) {
        before = rematerializer.stats();
        reprise::reset_peak_memory();
        ours_s = std::min(ours_s, seconds_of([&] {
                            zero();
                            rematerializer.forward(model_.loss).backward();
                          }));
        after = rematerializer.stats();
        peak = reprise::memory_stats().peak_bytes;
      }
    } catch (const reprise::BudgetError& error) {
      std::printf("| %.3f | does not fit | %s\n", share, error.what());
      return;
    }
    const auto share_of = [&](std::int64_t bytes) {
      return static_cast<double>(bytes - start_bytes_) / static_cast<double>(plain_bytes_);
    };
    std::printf("| %.3f | %.3f | %+lld | %.1f | %.1f | %.3f | %lld |%s\n", share, share_of(peak),
                static_cast<long long>(after.predicted_peak_bytes - peak),
                (after.replay_ms - before.replay_ms) / (plain_s * 10.0),
                after.predicted_replay_ms / (plain_s * 10.0), ours_s / plain_s,
                static_cast<long long>(after.replayed_operations - before.replayed_operations),
                after.is_planned ? "" : " (without a plan)");
    std::fflush(stdout);
  }

 private:
  void zero() {
    for (const auto& parameter : model_.parameters) parameter.mutable_grad().zero_();
  }
  void plain() {
    zero();
    model_.loss().backward();
  }

  Model model_;
  std::int64_t start_bytes_ = 0;
  std::int64_t plain_bytes_ = 0;
};

Model model_of(const std::string& name) {
  if (name == "mlp") return mlp(32, 1024, 2048);
  if (name == "transformer") return transformer(12, 512, 256, 16);
  if (name == "chain") return chain(1000, 64, 256);
  std::fprintf(stderr, "remat_bench: mlp, transformer or chain\n");
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "mlp";
  torch::manual_seed(1);
  Bench bench(model_of(name));
  std::vector<double> shares;
  for (int i = 2; i < argc; ++i) shares.push_back(std::atof(argv[i]));
  if (shares.empty()) shares = {1.0, 0.73, 0.5, 0.36, 0.3, 0.23, 0.16};
  for (const double share : shares) bench.run(share, 4);
}
