// SPDX-License-Identifier: Apache-2.0
// Training steps within shares of the memory that a plain step takes for its activations: what is
// run again, and how long the step is beside a plain one in the same run. Prints Markdown, or
// with --json a line of JSON for each share.
//     remat_bench mlp|transformer|chain [--small] [--json] [share...]
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

/// What a training step within a share of the plain step's activations was like.
struct Point {
  bool fits = false;
  std::string why_not;
  std::int64_t plain_peak_bytes = 0;
  double plain_s = std::numeric_limits<double>::infinity();
  double step_s = std::numeric_limits<double>::infinity();
  double share_asked = 0.0;
  double share_taken = 0.0;
  std::int64_t predicted_minus_measured_bytes = 0;
  double replayed_percent = 0.0;  // of a plain step's time; so are the next two
  double predicted_percent = 0.0;
  double bound_percent = 0.0;  // no plan within the share replays less
  std::int64_t replayed_operations = 0;
  double planning_s = 0.0;
  bool is_planned = false;
  bool gradients_equal = false;
};

class Bench {
 public:
  explicit Bench(Model model) : model_(std::move(model)) {
    for (const auto& parameter : model_.parameters)
      parameter.mutable_grad() = torch::zeros_like(parameter);
    plain();
    for (const auto& parameter : model_.parameters)
      plain_gradients_.push_back(parameter.grad().clone());
    reprise::reset_peak_memory();
    start_bytes_ = reprise::memory_stats().current_bytes;
    plain();
    plain_bytes_ = reprise::memory_stats().peak_bytes - start_bytes_;
  }

  std::int64_t plain_bytes() const { return plain_bytes_; }

  Point measure(double share, int steps) {
    Point point;
    point.share_asked = share;
    point.plain_peak_bytes = plain_bytes_;
    time_plain(&point);
    try {
      run_within(share, steps, &point);
      point.fits = true;
    } catch (const reprise::BudgetError& error) {
      point.why_not = error.what();
      return point;
    }
    time_plain(&point);
    for (double* percent :
         {&point.replayed_percent, &point.predicted_percent, &point.bound_percent})
      *percent /= 10.0 * point.plain_s;  // they were milliseconds
    return point;
  }

 private:
  void run_within(double share, int steps, Point* point) {
    const auto budget =
        start_bytes_ + static_cast<std::int64_t>(share * static_cast<double>(plain_bytes_));
    reprise::Rematerializer rematerializer({.budget_bytes = budget});
    reprise::RematerializerStats before;
    for (int i = 0; i < steps; ++i) {
      before = rematerializer.stats();
      reprise::reset_peak_memory();
      const double step_s = seconds_of([&] {
        zero();
        rematerializer.forward(model_.loss).backward();
      });
      if (i > 0) point->step_s = std::min(point->step_s, step_s);  // the first has no plan yet
    }
    const auto after = rematerializer.stats();
    const auto peak = reprise::memory_stats().peak_bytes;
    point->share_taken =
        static_cast<double>(peak - start_bytes_) / static_cast<double>(plain_bytes_);
    point->predicted_minus_measured_bytes = after.predicted_peak_bytes - peak;
    point->replayed_percent = after.replay_ms - before.replay_ms;
    point->predicted_percent = after.predicted_replay_ms;
    point->bound_percent = after.least_replay_ms;
    point->replayed_operations = after.replayed_operations - before.replayed_operations;
    point->planning_s = 1e-3 * after.planning_ms;
    point->is_planned = after.is_planned;
    point->gradients_equal = gradients_are_equal();
  }

  void time_plain(Point* point) {
    for (int i = 0; i < 2; ++i)
      point->plain_s = std::min(point->plain_s, seconds_of([&] { plain(); }));
  }
  bool gradients_are_equal() const {
    for (std::size_t i = 0; i < plain_gradients_.size(); ++i)
      if (!torch::equal(model_.parameters[i].grad(), plain_gradients_[i])) return false;
    return true;
  }
  void zero() {
    for (const auto& parameter : model_.parameters) parameter.mutable_grad().zero_();
  }
  void plain() {
    zero();
    model_.loss().backward();
  }

  Model model_;
  std::vector<Tensor> plain_gradients_;
  std::int64_t start_bytes_ = 0;
  std::int64_t plain_bytes_ = 0;
};

void print_header(std::int64_t plain_bytes) {
  std::printf("plain: %.1f MB of activations at the peak\n\n",
              1e-6 * static_cast<double>(plain_bytes));
  std::printf(
      "| share asked | share taken | foretold - taken [bytes] | replayed / plain step [%%] | "
      "foretold [%%] | no plan below [%%] | step / plain step | replayed operations |\n"
      "|---|---|---|---|---|---|---|---|\n");
}

void print_row(const Point& point) {
  if (!point.fits) {
    std::printf("| %.3f | does not fit | %s\n", point.share_asked, point.why_not.c_str());
    return;
  }
  std::printf("| %.3f | %.3f | %+lld | %.1f | %.1f | %.1f | %.3f | %lld |%s%s\n", point.share_asked,
              point.share_taken, static_cast<long long>(point.predicted_minus_measured_bytes),
              point.replayed_percent, point.predicted_percent, point.bound_percent,
              point.step_s / point.plain_s, static_cast<long long>(point.replayed_operations),
              point.is_planned ? "" : " (without a plan)",
              point.gradients_equal ? "" : " (other gradients)");
}

void print_json(const std::string& model, const Point& point) {
  std::printf("{\"model\": \"%s\", \"share_asked\": %.6f, \"fits\": %s", model.c_str(),
              point.share_asked, point.fits ? "true" : "false");
  if (point.fits)
    std::printf(
        ", \"plain_peak_bytes\": %lld, \"plain_s\": %.6f, \"share_taken\": %.6f, "
        "\"predicted_minus_measured_bytes\": %lld, \"replayed_percent\": %.4f, "
        "\"predicted_percent\": %.4f, \"bound_percent\": %.4f, \"step_ratio\": %.6f, "
        "\"step_s\": %.6f, \"replayed_operations\": %lld, \"planning_s\": %.6f, "
        "\"is_planned\": %s, \"gradients_equal\": %s",
        static_cast<long long>(point.plain_peak_bytes), point.plain_s, point.share_taken,
        static_cast<long long>(point.predicted_minus_measured_bytes), point.replayed_percent,
        point.predicted_percent, point.bound_percent, point.step_s / point.plain_s, point.step_s,
        static_cast<long long>(point.replayed_operations), point.planning_s,
        point.is_planned ? "true" : "false", point.gradients_equal ? "true" : "false");
  std::printf("}\n");
}

Model model_of(const std::string& name, bool small) {
  if (name == "mlp") return small ? mlp(8, 256, 512) : mlp(32, 1024, 2048);
  if (name == "transformer")
    return small ? transformer(8, 128, 64, 4) : transformer(12, 512, 256, 16);
  if (name == "chain") return small ? chain(100, 64, 256) : chain(1000, 64, 256);
  std::fprintf(stderr, "remat_bench: mlp, transformer or chain\n");
  std::exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool is_json = std::erase(arguments, "--json") > 0;
  const bool is_small = std::erase(arguments, "--small") > 0;
  const std::string name = arguments.empty() ? "mlp" : arguments[0];
  torch::manual_seed(1);
  Bench bench(model_of(name, is_small));
  std::vector<double> shares;
  for (std::size_t i = 1; i < arguments.size(); ++i)
    shares.push_back(std::atof(arguments[i].c_str()));
  if (shares.empty()) shares = {1.0, 0.73, 0.5, 0.36, 0.3, 0.23, 0.16};
  if (!is_json) print_header(bench.plain_bytes());
  for (const double share : shares) {
    const auto point = bench.measure(share, 4);
    is_json ? print_json(name, point) : print_row(point);
    std::fflush(stdout);
  }
}
