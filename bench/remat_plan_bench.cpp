// SPDX-License-Identifier: Apache-2.0
// Prints a Markdown table: how much replayed work plans of synthetic training steps take at
// fractions of the plain activations, and how long they take to find.
//
// Matrix products take their operations at 150 GF/s and other operators their bytes at 5 GB/s; the
// backward pass of an operator takes twice its forward.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "reprise/remat_plan.h"

namespace {

using reprise::RematEvent;
using reprise::RematGraph;

constexpr double kFlopsPerMs = 150e6;
constexpr double kBytesPerMs = 5e6;

/// Writes down a forward pass; `finish` adds its backward pass.
class Recorder {
 public:
  /// Operator that makes one value of so many floats; `saves` are inputs that backward needs.
  std::int32_t add(const std::string& name, double time_ms, std::vector<std::int32_t> inputs,
                   std::int64_t floats, const std::vector<std::int32_t>& saves,
                   bool saves_output = false) {
    const auto operation = static_cast<std::int32_t>(graph_.operations.size());
    const auto value = static_cast<std::int32_t>(graph_.values.size());
    std::sort(inputs.begin(), inputs.end());
    for (const std::int32_t input : inputs) graph_.values[input].held_until = operation;
    graph_.operations.push_back({name, "", time_ms, 0, inputs, {value}, true});
    graph_.values.push_back({4 * floats, operation, operation, true});
    saved_.push_back(saves);
    if (saves_output) saved_.back().push_back(value);
    return value;
  }

  std::int32_t product(std::int32_t input, std::int64_t rows, std::int64_t in, std::int64_t out) {
    return add("aten::addmm", flops_ms(rows, in, out), {input}, rows * out, {input});
  }

  std::int32_t pointwise(const std::string& name, std::int32_t input, std::int64_t floats,
                         bool saves_output = false) {
    return add(name, bytes_ms(2 * floats), {input}, floats,
               saves_output ? std::vector<std::int32_t>{} : std::vector<std::int32_t>{input},
               saves_output);
  }

  std::int32_t sum(std::int32_t a, std::int32_t b, std::int64_t floats) {
    return add("aten::add", bytes_ms(3 * floats), {a, b}, floats, {});
  }

  static double flops_ms(std::int64_t rows, std::int64_t in, std::int64_t out) {
    return 2.0 * static_cast<double>(rows * in * out) / kFlopsPerMs;
  }

  static double bytes_ms(std::int64_t floats) {
    return 4.0 * static_cast<double>(floats) / kBytesPerMs;
  }

  RematGraph finish() {
    for (auto i = graph_.operations.size(); i-- > 0;) {
      const auto& operation = graph_.operations[i];
      std::int64_t gradient_bytes = graph_.values[operation.outputs[0]].bytes;
      for (const std::int32_t v : operation.inputs) gradient_bytes += graph_.values[v].bytes;
      for (std::size_t k = 0; k < saved_[i].size(); ++k) {
        const double time_ms = k + 1 == saved_[i].size() ? 2.0 * operation.time_ms : 0.0;
        graph_.events.push_back({RematEvent::Kind::kNeed, saved_[i][k], time_ms, gradient_bytes});
      }
      for (const std::int32_t v : saved_[i]) {
        graph_.events.push_back({RematEvent::Kind::kRelease, v, 0.0, gradient_bytes});
      }
    }
    return std::move(graph_);
  }

 private:
  RematGraph graph_;
  std::vector<std::vector<std::int32_t>> saved_;  // per operation: values
};

RematGraph mlp(std::int64_t layers, std::int64_t rows, std::int64_t width) {
  Recorder step;
  const std::int64_t floats = rows * width;
  std::int32_t x = step.add("input", 0.0, {}, floats, {});
  for (std::int64_t i = 0; i < layers; ++i) {
    x = step.product(x, rows, width, width);
    x = step.pointwise("aten::gelu", x, floats);
    x = step.pointwise("aten::native_layer_norm", x, floats);
  }
  return step.finish();
}

/// Attention written out, with dropout masks that are kept as bytes and made again.
RematGraph transformer(std::int64_t layers, std::int64_t batch, std::int64_t steps,
                       std::int64_t width, std::int64_t heads) {
  Recorder step;
  const std::int64_t rows = batch * steps;
  const std::int64_t floats = rows * width;
  const std::int64_t scores = batch * heads * steps * steps;
  std::int32_t x = step.add("input", 0.0, {}, floats, {});
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::int32_t normed = step.pointwise("aten::native_layer_norm", x, floats);
    const std::int32_t q = step.product(normed, rows, width, width);
    const std::int32_t k = step.product(normed, rows, width, width);
    const std::int32_t v = step.product(normed, rows, width, width);
    const double attention_ms = Recorder::flops_ms(rows, steps, width);
    const std::int32_t score = step.add("aten::bmm", attention_ms, {q, k}, scores, {q, k});
    const std::int32_t softmax = step.pointwise("aten::_softmax", score, scores, true);
    const std::int32_t dropped = step.pointwise("aten::dropout", softmax, scores);
    const std::int32_t mixed =
        step.add("aten::bmm", attention_ms, {v, dropped}, floats, {v, dropped});
    x = step.sum(x, step.product(mixed, rows, width, width), floats);
    const std::int32_t again = step.pointwise("aten::native_layer_norm", x, floats);
    const std::int32_t hidden = step.product(again, rows, width, 4 * width);
    const std::int32_t active = step.pointwise("aten::gelu", hidden, 4 * floats);
    x = step.sum(x, step.product(active, rows, 4 * width, width), floats);
  }
  return step.finish();
}

/// Skips from every level of the way down to the same level of the way up.
RematGraph unet(std::int64_t levels, std::int64_t floats) {
  Recorder step;
  std::vector<std::int32_t> skips;
  std::int32_t x = step.add("input", 0.0, {}, floats, {});
  const auto convolve = [&](std::int32_t input) {
    const double time_ms = 60.0 * Recorder::bytes_ms(floats) / 4.0;
    const std::int32_t y = step.add("aten::convolution", time_ms, {input}, floats, {input});
    return step.pointwise("aten::relu", y, floats, true);
  };
  for (std::int64_t i = 0; i < levels; ++i) {
    x = convolve(convolve(x));
    skips.push_back(x);
    floats /= 2;
    x = step.add("aten::max_pool2d", Recorder::bytes_ms(3 * floats), {x}, floats, {x});
  }
  for (; !skips.empty(); skips.pop_back()) {
    floats *= 2;
    x = step.add("aten::upsample", Recorder::bytes_ms(3 * floats), {x}, floats, {});
    x = step.add("aten::cat", Recorder::bytes_ms(4 * floats), {x, skips.back()}, floats, {});
    x = convolve(convolve(x));
  }
  return step.finish();
}

/// Layers of equal size and time.
RematGraph equal_layers(std::int64_t layers) {
  Recorder step;
  std::int32_t x = step.add("input", 0.0, {}, 1000, {});
  for (std::int64_t i = 0; i < layers; ++i) x = step.add("layer", 1.0, {x}, 1000, {x});
  return step.finish();
}

/// Layers of which no two are alike.
RematGraph different_layers(std::int64_t layers) {
  Recorder step;
  std::int32_t x = step.add("input", 0.0, {}, 1000, {});
  for (std::int64_t i = 0; i < layers; ++i) {
    x = step.add("layer", 1.0 + 0.01 * static_cast<double>(i * 37 % 101), {x}, 1000 + i * 53 % 211,
                 {x});
  }
  return step.finish();
}

void print_rows(const std::string& name, const RematGraph& graph,
                const std::vector<double>& fractions) {
  const auto plain = simulate(graph, plan_without_replay(graph));
  const double step_ms = plain.forward_ms + plain.backward_ms;
  const auto plain_bytes = static_cast<double>(plain.peak_bytes);
  for (const double fraction : fractions) {
    const auto budget = static_cast<std::int64_t>(fraction * plain_bytes);
    const auto start = std::chrono::steady_clock::now();
    const auto solution = plan_rematerialisation(graph, budget);
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - start;
    std::printf("| %s | %zu | %.2f | %.3f%s | %.2f | %.2f | %.0f |\n", name.c_str(),
                graph.operations.size(), fraction,
                static_cast<double>(solution.forecast.peak_bytes) / plain_bytes,
                solution.is_feasible ? "" : " (does not fit)",
                100.0 * solution.forecast.replay_ms / step_ms,
                100.0 * solution.least_replay_ms / step_ms, taken.count());
  }
}

}  // namespace

int main() {
  std::printf(
      "| graph | operations | budget, of plain peak | peak | replay, %% of plain step | "
      "lower bound, %% | solve, ms |\n|---|---|---|---|---|---|---|\n");
  print_rows("MLP 32 x [Linear 1024, GELU, LayerNorm]", mlp(32, 512, 1024),
             {0.70, 0.50, 0.36, 0.30, 0.23, 0.16});
  print_rows("transformer, 12 layers", transformer(12, 8, 512, 768, 12),
             {0.73, 0.50, 0.36, 0.30, 0.23, 0.16});
  print_rows("U-Net, 5 levels", unet(5, 1 << 20), {0.70, 0.50, 0.36});
  print_rows("1,000 equal layers", equal_layers(1000), {0.50, 0.10, 0.05});
  print_rows("200 different layers", different_layers(200), {0.50, 0.10});
  print_rows("MLP of 3,333 layers", mlp(3333, 512, 1024), {0.36, 0.05});
  print_rows("10,000 different layers", different_layers(10000), {0.50, 0.10});
}
