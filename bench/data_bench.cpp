// SPDX-License-Identifier: Apache-2.0
// Windows per second and core: encoder 168, horizon 24, 20 real columns (the target, 9 known, 10
// observed), 200 series of 2,000 steps, in shuffled order.
#include "reprise/dataset.h"
#include "reprise/synthesize.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <filesystem>
#include <random>

namespace reprise {
namespace {

constexpr std::int64_t kBatchSize = 64;

/// The table of every benchmark, in a temporary file.
std::filesystem::path write_table() {
  const auto file = std::filesystem::temp_directory_path() / "reprise_data_bench.parquet";
  synthesize(file, {.series = 200,
                    .steps = 2000,
                    .static_reals = 0,
                    .static_categoricals = 0,
                    .observed = 10,
                    .known = 9});
  return file;
}

const Dataset& dataset() {
  static const Dataset kDataset = [] {
    const auto file = write_table();
    DataOptions options;
    options.valid_fraction = 0.0;
    options.test_fraction = 0.0;
    auto made = Dataset::fit(file, options);
    std::filesystem::remove(file);
    return made;
  }();
  return kDataset;
}

const std::vector<Window>& windows() {
  static const std::vector<Window> kWindows = [] {
    auto all = dataset().windows(Split::kTrain);
    std::mt19937 random(1);
    std::shuffle(all.begin(), all.end(), random);
    return all;
  }();
  return kWindows;
}

void gather_in_one_thread(benchmark::State& state) {
  const std::span all(windows());
  Batch batch;
  std::size_t first = 0;
  for (auto _ : state) {
    dataset().gather_into(all.subspan(first, kBatchSize), {}, batch);
    benchmark::DoNotOptimize(batch.target.data_ptr());
    first = first + 2 * kBatchSize <= all.size() ? first + kBatchSize : 0;
  }
  state.SetItemsProcessed(state.iterations() * kBatchSize);
}
BENCHMARK(gather_in_one_thread);

void load_an_epoch(benchmark::State& state) {
  std::int64_t gathered = 0;
  for (auto _ : state) {
    BatchLoader loader(dataset(), windows(), kBatchSize, static_cast<int>(state.range(0)));
    Batch batch;
    while (loader.next(batch)) gathered += batch.target.size(0);
  }
  state.SetItemsProcessed(gathered);
}
BENCHMARK(load_an_epoch)
    ->Arg(0)
    ->Arg(1)
    ->Arg(2)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->MeasureProcessCPUTime();

void fit_a_table(benchmark::State& state) {
  const auto file = write_table();
  for (auto _ : state) benchmark::DoNotOptimize(Dataset::fit(file, {}).row_count());
  std::filesystem::remove(file);
}
BENCHMARK(fit_a_table)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace reprise

BENCHMARK_MAIN();
