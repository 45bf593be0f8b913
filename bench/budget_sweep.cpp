// SPDX-License-Identifier: Apache-2.0
// Trains TFT-225 under 50 budgets between the smallest that it can be trained in and what it takes
// without one, and 2% below the smallest. Exit code 1 where a peak is above its budget, or a step
// is made below the smallest.
//     budget_sweep [batch size, default 4] [budgets, default 50]
#include "reprise/errors.h"
#include "reprise/memory.h"
#include "reprise/synthesize.h"
#include "reprise/trainer.h"

#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace {

using reprise::TemporalFusionTransformer;
using reprise::TrainResult;

struct Subject {
  reprise::Dataset dataset;
  reprise::TftOptions model;
  reprise::TrainOptions options;

  TrainResult train(std::int64_t budget_bytes) {
    options.memory_budget_bytes = budget_bytes;
    torch::manual_seed(1);
    TemporalFusionTransformer fresh(model);
    return reprise::train(fresh, dataset, options);
  }
};

Subject tft_225(std::int64_t batch_size) {
  const auto file = std::filesystem::temp_directory_path() / "reprise_budget_sweep.parquet";
  auto table = reprise::synthesize_preset("tft-225");
  table.series = 2;
  table.steps = 160;
  reprise::synthesize(file, table);
  reprise::DataOptions data;
  data.encoder_length = 50;
  data.horizon = 10;
  Subject subject{reprise::Dataset::fit(file, data), {.hidden_size = 128, .encoder_grn = true}, {}};
  std::filesystem::remove(file);
  subject.dataset.describe(subject.model);
  subject.options.batch_size = batch_size;
  subject.options.max_steps = 1;
  subject.options.validate_every = 1000;
  return subject;
}

const char* name_of(reprise::Checkpointing tier) {
  return tier == reprise::Checkpointing::kOff    ? "off"
         : tier == reprise::Checkpointing::kAuto ? "auto"
                                                 : "aggressive";
}

/// The smallest budget, from the error of a hopeless one.
std::int64_t smallest_budget(Subject& subject) {
  try {
    subject.train(1'000'000);
  } catch (const reprise::BudgetError& error) {
    return error.needed_bytes();
  }
  return 0;
}

bool is_refused(Subject& subject, std::int64_t budget_bytes) {
  try {
    subject.train(budget_bytes);
    return false;
  } catch (const reprise::BudgetError& error) {
    std::printf("%.1f MB refused: %s\n", static_cast<double>(budget_bytes) / 1e6, error.what());
    return true;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t batch_size = argc > 1 ? std::atoll(argv[1]) : 4;
  const int budgets = argc > 2 ? std::atoi(argv[2]) : 50;
  auto subject = tft_225(batch_size);
  const std::int64_t plain = subject.train(0).peak_bytes;
  const std::int64_t smallest = smallest_budget(subject);
  std::printf("TFT-225, batch %lld: %.1f MB without a budget, smallest budget %.1f MB\n",
              static_cast<long long>(batch_size), static_cast<double>(plain) / 1e6,
              static_cast<double>(smallest) / 1e6);
  bool is_right = smallest > 0 && smallest < plain;
  for (int i = 0; i < budgets && is_right; ++i) {
    const std::int64_t budget = smallest + (plain - smallest) * i / std::max(1, budgets - 1);
    const auto result = subject.train(budget);
    is_right = result.steps == 1 && result.peak_bytes <= budget;
    std::printf("budget %lld peak %lld %s micro-batches of %lld%s\n",
                static_cast<long long>(budget), static_cast<long long>(result.peak_bytes),
                name_of(result.checkpointing), static_cast<long long>(result.micro_batch_size),
                is_right ? "" : " WRONG");
    std::fflush(stdout);
  }
  is_right = is_right && is_refused(subject, smallest - smallest / 50);
  std::printf("%s\n", is_right ? "every peak is within its budget" : "WRONG");
  return is_right ? 0 : 1;
}
