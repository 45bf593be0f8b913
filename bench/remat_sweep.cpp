// SPDX-License-Identifier: Apache-2.0
// Small models of many kinds, each trained within 50 budgets: whether every peak stays within its
// budget with the gradients, buffers and random numbers of a plain step, and how far from the
// foretold peaks it was. Prints Markdown; exit code 1 where anything is wrong.
#include "bench/tft_pass.h"
#include "reprise/errors.h"
#include "reprise/memory.h"
#include "reprise/rematerializer.h"
#include "tests/remat_models.h"

#include <torch/torch.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

namespace {

using reprise::testing::TrainingStep;
using torch::Tensor;

constexpr int kBudgets = 50;
constexpr int kSteps = 4;  // the first goes without a plan

std::vector<Tensor> clones_of(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> clones;
  for (const auto& tensor : tensors) clones.push_back(tensor.clone());
  return clones;
}

bool has_same_bytes(const Tensor& a, const Tensor& b) {
  return a.nbytes() == b.nbytes() &&
         std::memcmp(a.contiguous().data_ptr(), b.contiguous().data_ptr(), a.nbytes()) == 0;
}

class Sweep {
 public:
  explicit Sweep(TrainingStep step) : step_(std::move(step)), buffers_(clones_of(step_.buffers)) {
    outcome(nullptr);  // what a process does once
    start_bytes_ = reprise::memory_stats().current_bytes;
    reprise::reset_peak_memory();
    expected_ = outcome(nullptr);
    plain_bytes_ = reprise::memory_stats().peak_bytes - start_bytes_;
    start_bytes_ = reprise::memory_stats().current_bytes;  // with what is expected
  }

  bool run(const char* name) {
    for (int i = kBudgets; i > 0 && run_within(start_bytes_ + plain_bytes_ * i / kBudgets); --i)
      ++fitting_;
    const int rises = times_that_replays_rise();
    std::printf("| %s | %.1f | %d | %d | %d of %d | %lld | %d |\n", name,
                1e-6 * static_cast<double>(plain_bytes_), fitting_, wrong_, exact_, fitting_,
                static_cast<long long>(largest_difference_), rises);
    std::fflush(stdout);
    return wrong_ == 0 && fitting_ > 0 && rises == 0;
  }

 private:
  std::vector<Tensor> outcome(reprise::Rematerializer* rematerializer) {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < buffers_.size(); ++i) step_.buffers[i].copy_(buffers_[i]);
    torch::manual_seed(7);
    std::vector<Tensor> all;
    {
      const torch::AutoGradMode with_grad(true);
      const auto loss =
          rematerializer == nullptr ? step_.loss() : rematerializer->forward(step_.loss);
      all = torch::autograd::grad({loss}, step_.leaves);
      all.push_back(loss.detach());
    }
    for (const auto& buffer : step_.buffers) all.push_back(buffer.clone());
    all.push_back(torch::rand({4}));
    return all;
  }

  bool is_right(reprise::Rematerializer& rematerializer, std::int64_t budget_bytes) {
    reprise::reset_peak_memory();
    const auto found = outcome(&rematerializer);
    const bool is_equal =
        std::equal(found.begin(), found.end(), expected_.begin(), expected_.end(), has_same_bytes);
    return is_equal && reprise::memory_stats().peak_bytes <= budget_bytes;
  }

  /// False where the budget does not do.
  bool run_within(std::int64_t budget_bytes) {
    try {
      reprise::Rematerializer rematerializer({.budget_bytes = budget_bytes});
      for (int i = 0; i < kSteps; ++i) wrong_ += is_right(rematerializer, budget_bytes) ? 0 : 1;
      const auto stats = rematerializer.stats();
      const auto difference = std::abs(stats.predicted_peak_bytes - stats.measured_peak_bytes);
      if (stats.is_planned) {
        exact_ += difference == 0 ? 1 : 0;
        largest_difference_ = std::max(largest_difference_, difference);
      }
      if (!graph_) {
        if (auto planned = rematerializer.planned_step()) graph_ = std::move(planned->graph);
      }
      return true;
    } catch (const reprise::BudgetError&) {
      return false;
    }
  }

  /// Of plans of one recorded step: its times are the same for all budgets.
  int times_that_replays_rise() const {
    if (!graph_) return -1;
    int rises = 0;
    double least_ms = std::numeric_limits<double>::infinity();
    for (int i = 1; i <= kBudgets; ++i) {
      const auto solution = reprise::plan_rematerialisation(
          *graph_, graph_->base_bytes + plain_bytes_ * i / kBudgets);
      if (!solution.is_feasible) continue;
      rises += solution.forecast.replay_ms > least_ms ? 1 : 0;
      least_ms = solution.forecast.replay_ms;
    }
    return rises;
  }

  TrainingStep step_;
  std::vector<Tensor> buffers_;
  std::vector<Tensor> expected_;
  std::int64_t start_bytes_ = 0;
  std::int64_t plain_bytes_ = 0;
  int fitting_ = 0;
  int wrong_ = 0;  // steps
  int exact_ = 0;  // budgets whose peak was foretold to the byte
  std::int64_t largest_difference_ = 0;
  std::optional<reprise::RematGraph> graph_;
};

/// With dropout.
TrainingStep tft_step() {
  reprise::TftOptions options{
      .encoder_length = 24, .horizon = 6, .hidden_size = 16, .attention_heads = 2};
  options.dropout = 0.1;
  options.encoder_grn = true;
  options.static_reals = 2;
  options.known_reals = 2;
  options.observed_reals = 4;
  const auto tft = std::make_shared<reprise::bench::TftPass>(options, 32);
  return {.loss = [tft] { return tft->loss(); }, .leaves = tft->model()->parameters()};
}

}  // namespace

int main() {
  using namespace reprise::testing;
  torch::manual_seed(1);
  std::printf(
      "| model | plain step [MB] | budgets that fit, of %d | steps that were wrong | peaks "
      "foretold "
      "to the byte | largest difference [bytes] | replayed time rises with the budget |\n"
      "|---|---|---|---|---|---|---|\n",
      kBudgets);
  bool is_right = Sweep(step_of(mlp(12, 128), torch::randn({512, 128}))).run("MLP");
  is_right = Sweep(step_of(chain(100, 64), torch::randn({256, 64}))).run("chain") && is_right;
  is_right = Sweep(transformer_step(12, 64, 64, 4)).run("transformer, 12 layers") && is_right;
  is_right = Sweep(step_of(residual_network(4, 8), torch::randn({8, 8, 24, 24})))
                 .run("ResNet with BatchNorm") &&
             is_right;
  is_right = Sweep(lstm_step(32, 16, 20)).run("LSTM, 2 layers") && is_right;
  is_right = Sweep(step_of(UNet(), torch::randn({4, 4, 32, 32}))).run("U-Net") && is_right;
  is_right = Sweep(tft_step()).run("TFT with dropout") && is_right;
  return is_right ? 0 : 1;
}
