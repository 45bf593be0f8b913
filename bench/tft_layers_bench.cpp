// SPDX-License-Identifier: Apache-2.0
// What the tiers of the forecaster save and cost, layer by layer, on TFT-225 (5 static, 210
// historical, 10 future variables, hidden 128, 50 past and 10 future steps). Prints the tables of
// docs/gradient-checkpointing-quick-reference.md as Markdown: see scripts/regenerate-docs.
//     tft_layers_bench [batch size, default 128] [rounds, default 2]
#include "autograd/saved_tensor_hooks.h"
#include "examples/allocation_recorder.h"
#include "reprise/quantile_loss.h"
#include "reprise/tft.h"
#include "tft/layer_runner.h"

#include <malloc.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <map>
#include <set>

namespace {

using reprise::Checkpointing;
using reprise::TemporalFusionTransformer;
using reprise::TftInput;
using reprise::TftOptions;
using reprise::detail::LayerFunction;
using reprise::detail::LayerRunner;
using reprise::detail::PackedTensor;
using torch::Tensor;
using Tensors = std::vector<Tensor>;

struct Tier {
  const char* name;
  Checkpointing checkpointing;
};
constexpr std::array<Tier, 3> kTiers = {{{"off", Checkpointing::kOff},
                                         {"minimal", Checkpointing::kMinimal},
                                         {"aggressive", Checkpointing::kAggressive}}};

double megabytes(std::int64_t bytes) {
  return static_cast<double>(bytes) / 1e6;
}

/// CPU time of the process, which a neighbour's load changes less than wall time.
double cpu_ms() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

/// By default glibc gives large blocks back to the kernel at every free, and the page faults that
/// follow cost as much as a recomputation, on whichever side has more of them.
void keep_freed_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

struct Subject {
  TemporalFusionTransformer model{nullptr};
  TftInput input;
  Tensor target;

  Tensor loss(const LayerRunner& runner) {
    const auto output = reprise::detail::interpret_with(*model, input, runner);
    return reprise::quantile_loss(output.quantiles, target, model->options().quantiles);
  }
};

Subject tft_225(std::int64_t batch) {
  torch::manual_seed(1);
  TftOptions options{.encoder_length = 50, .horizon = 10, .hidden_size = 128, .encoder_grn = true};
  options.static_reals = 5;
  options.known_reals = 10;
  options.observed_reals = 200;  // with the known ones 210 historical variables
  Subject subject{TemporalFusionTransformer(options), {}, torch::randn({batch, 10})};
  subject.input.static_real = torch::randn({batch, 5});
  subject.input.observed_real = torch::randn({batch, 50, 200});
  subject.input.known_real = torch::randn({batch, 60, 10});
  for (auto& parameter : subject.model->parameters())
    parameter.mutable_grad() = torch::zeros_like(parameter);
  return subject;
}

/// Keeps every saved tensor, and counts the memory of each layer's: distinct storages, each at the
/// layer that saves it first; not the parameters and not the batch.
class ActivationCounter : public reprise::detail::SavedTensorHandler {
 public:
  explicit ActivationCounter(const Subject& subject) {
    for (const auto& parameter : subject.model->parameters()) ignore(parameter);
    const auto& input = subject.input;
    for (const auto& tensor :
         {input.static_real, input.observed_real, input.known_real, subject.target})
      ignore(tensor);
  }

  std::unique_ptr<PackedTensor> next() override { return std::make_unique<Kept>(*this); }

  LayerRunner count_by_layer(LayerRunner runner) {
    return [this, runner](const std::string& layer, const LayerFunction& function,
                          const Tensors& inputs) {
      layer_ = layer;
      auto outputs = runner(layer, function, inputs);
      layer_ = "between layers";
      return outputs;
    };
  }

  const std::map<std::string, std::int64_t>& bytes() const { return bytes_; }

 private:
  struct Kept : PackedTensor {
    explicit Kept(ActivationCounter& counter_) : counter(counter_) {}
    void pack(const Tensor& saved) override {
      tensor = reprise::detail::without_history(saved);
      counter.count(saved);
    }
    Tensor unpack() override { return tensor; }
    ActivationCounter& counter;
    Tensor tensor;
  };

  void ignore(const Tensor& tensor) { seen_.insert(tensor.storage().unsafeGetStorageImpl()); }

  void count(const Tensor& tensor) {
    const auto& storage = tensor.storage();
    // Kept, so no other memory gets its address while this counter counts.
    if (seen_.insert(storage.unsafeGetStorageImpl()).second)
      bytes_[layer_] += static_cast<std::int64_t>(storage.nbytes());
  }

  std::set<const void*> seen_;
  std::map<std::string, std::int64_t> bytes_;
  std::string layer_ = "between layers";
};

LayerRunner runner_of(const Subject& subject, Checkpointing checkpointing) {
  auto options = subject.model->options();
  options.checkpointing = checkpointing;
  return reprise::detail::checkpointing_runner(options);
}

std::map<std::string, std::int64_t> activation_bytes(Subject& subject, Checkpointing tier) {
  ActivationCounter counter(subject);
  const reprise::detail::SavedTensorScope scope(counter);
  const auto loss = subject.loss(counter.count_by_layer(runner_of(subject, tier)));
  return counter.bytes();
}

/// Forward time of each layer: what recomputing it costs.
std::map<std::string, double> forward_ms(Subject& subject) {
  std::map<std::string, double> times;
  const auto loss = subject.loss(
      [&](const std::string& layer, const LayerFunction& function, const Tensors& inputs) {
        const double start = cpu_ms();
        auto outputs = function(inputs);
        times[layer] = cpu_ms() - start;
        return outputs;
      });
  return times;
}

struct Step {
  double ms = 1e30;
  std::int64_t peak_bytes = 0;
};

Step run_step(Subject& subject, Checkpointing tier) {
  const reprise_examples::AllocationRecorder recorder;
  const double start = cpu_ms();
  subject.loss(runner_of(subject, tier)).backward();
  return {cpu_ms() - start, recorder.peak_bytes()};
}

/// Minima of interleaved steps, so that a neighbour's load meets all tiers.
std::array<Step, 3> run_steps(Subject& subject, int rounds) {
  std::array<Step, 3> best;
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < kTiers.size(); ++i) {
      const auto step = run_step(subject, kTiers[i].checkpointing);
      best[i] = {std::min(best[i].ms, step.ms), step.peak_bytes};
    }
  }
  return best;
}

bool is_selection(const std::string& layer) {
  return layer.ends_with("_vsn");
}

struct Sum {
  std::int64_t all = 0;
  std::int64_t outside_selection = 0;
};

Sum sum_of(const std::map<std::string, std::int64_t>& bytes) {
  Sum sum;
  for (const auto& [layer, value] : bytes) {
    sum.all += value;
    if (!is_selection(layer)) sum.outside_selection += value;
  }
  return sum;
}

void print_layers(Subject& subject, const std::map<std::string, std::int64_t>& plain,
                  const std::map<std::string, std::int64_t>& aggressive, double step_ms) {
  auto options = subject.model->options();
  options.checkpointing = Checkpointing::kAggressive;
  const auto times = forward_ms(subject);
  std::printf(
      "| layer | activations, MB | aggressive recomputes it | then kept, MB | "
      "recomputing costs, ms | MB saved per 1%% of the step |\n");
  std::printf("| --- | ---: | --- | ---: | ---: | ---: |\n");
  auto names = reprise::layer_names(options);
  names.push_back("between layers");
  for (const auto& name : names) {
    const auto value_in = [&](const auto& map) {
      return map.contains(name) ? map.at(name) : 0;
    };
    const bool is_chosen = reprise::is_checkpointed(options, name);
    const double saved = megabytes(value_in(plain) - value_in(aggressive));
    const double ms = times.contains(name) ? times.at(name) : 0;
    std::printf("| %s | %.1f | %s | %.1f | %.1f | ", name.c_str(), megabytes(value_in(plain)),
                is_chosen ? "yes" : "no", megabytes(value_in(aggressive)), ms);
    std::printf(is_chosen ? "%.0f |\n" : "|\n", saved / (100 * ms / step_ms));
  }
}

void print_tiers(const std::array<std::map<std::string, std::int64_t>, 3>& bytes,
                 const std::array<Step, 3>& steps) {
  std::printf(
      "\n| tier | activations, MB | outside the selection networks, MB | saved of those | "
      "step, ms | against off | peak of a step, MB | MB saved per 1%% of time |\n");
  std::printf("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
  const auto plain = sum_of(bytes[0]);
  for (std::size_t i = 0; i < kTiers.size(); ++i) {
    const auto sum = sum_of(bytes[i]);
    const auto saved = plain.outside_selection - sum.outside_selection;
    const double percent = 100 * (steps[i].ms / steps[0].ms - 1);
    std::printf("| %s | %.0f | %.1f | %.1f MB, %.0f%% | %.0f | %+.1f%% | %.0f | ", kTiers[i].name,
                megabytes(sum.all), megabytes(sum.outside_selection), megabytes(saved),
                100.0 * static_cast<double>(saved) / static_cast<double>(plain.outside_selection),
                steps[i].ms, percent, megabytes(steps[i].peak_bytes));
    std::printf(i > 0 && percent > 0 ? "%.0f |\n" : "|\n", megabytes(saved) / percent);
  }
}

}  // namespace

int main(int count, char** arguments) {
  const std::int64_t batch = count > 1 ? std::atoll(arguments[1]) : 128;
  const int rounds = count > 2 ? std::atoi(arguments[2]) : 2;
  keep_freed_memory();
  torch::set_num_threads(1);
  auto subject = tft_225(batch);
  std::printf(
      "TFT-225, batch %d, float32, one thread, CPU time, freed memory kept by the process.\n\n",
      static_cast<int>(batch));
  std::array<std::map<std::string, std::int64_t>, 3> bytes;
  for (std::size_t i = 0; i < kTiers.size(); ++i)
    bytes[i] = activation_bytes(subject, kTiers[i].checkpointing);
  const auto steps = run_steps(subject, rounds);
  print_layers(subject, bytes[0], bytes[2], steps[0].ms);
  print_tiers(bytes, steps);
}
