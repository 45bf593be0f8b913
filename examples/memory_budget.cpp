// SPDX-License-Identifier: Apache-2.0
/// Prints who holds the memory at the peak of a training step of 16 layers, plain and checkpointed,
/// and trains inside a budget that only the checkpointed step fits: "plain step refused: yes".
#include <reprise/checkpoint.h>
#include <reprise/errors.h>
#include <reprise/memory_budget.h>
#include <reprise/memory_timeline.h>
#include <torch/torch.h>

#include <cstdio>
#include <vector>

namespace nn = torch::nn;

class Mlp {
 public:
  Mlp() {
    for (int i = 0; i < 16; ++i) {
      layers_.emplace_back(nn::Linear(256, 1024), nn::GELU(), nn::Linear(1024, 256), nn::Tanh());
      const auto parameters = layers_.back()->parameters();
      reprise::label_parameters(parameters);
    }
  }

  void step(bool is_checkpointed) {
    auto x = input_;
    for (auto layer : layers_) {
      layer->zero_grad();
      auto run = [layer](const at::Tensor& v) mutable {
        return layer->forward(v);
      };
      x = is_checkpointed ? reprise::checkpoint(run, x) : run(x);
    }
    x.square().mean().backward();
  }

 private:
  std::vector<nn::Sequential> layers_;
  torch::Tensor input_ = torch::randn({1024, 256});
};

struct Peak {
  std::int64_t bytes;
  reprise::MemoryBreakdown breakdown;
};

static Peak measure(Mlp& mlp, bool is_checkpointed) {
  reprise::MemoryTimeline timeline;
  mlp.step(is_checkpointed);
  timeline.stop();
  return {timeline.peak_bytes(), timeline.at_peak()};
}

static void print(const char* name, const Peak& peak) {
  std::printf("%s: %.1f MB\n", name, static_cast<double>(peak.bytes) / 1e6);
  for (std::size_t i = 0; i < reprise::kMemoryCategories; ++i) {
    const auto category = static_cast<reprise::MemoryCategory>(i);
    std::printf("  %-18s %6.1f MB\n", reprise::to_string(category).c_str(),
                static_cast<double>(peak.breakdown[category]) / 1e6);
  }
}

int main() {
  Mlp mlp;
  const Peak plain = measure(mlp, false);
  const Peak checkpointed = measure(mlp, true);
  print("plain", plain);
  print("checkpointed", checkpointed);

  const reprise::MemoryBudget budget(checkpointed.bytes);
  bool is_refused = false;
  try {
    mlp.step(false);
  } catch (const reprise::BudgetError& error) {
    is_refused = true;
    std::printf("%s\n", error.what());
  }
  mlp.step(true);
  std::printf("plain step refused: %s\n", is_refused ? "yes" : "no");
  return is_refused && 2 * checkpointed.bytes < plain.bytes ? 0 : 1;
}
