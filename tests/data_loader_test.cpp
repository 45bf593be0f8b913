// SPDX-License-Identifier: Apache-2.0
#include "tests/data_tables.h"
#include "tests/memory_testing.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>

namespace reprise {
namespace {

using testing::Panel;
using testing::short_windows;
using testing::wave;

Dataset small_dataset() {
  const Panel panel{
      .series = 4, .steps = 80, .values = {{"y", wave}, {"observed_x", wave}, {"known_z", wave}}};
  return Dataset::fit(panel.write("loader.parquet"), short_windows());
}

std::vector<Window> shuffled_windows(const Dataset& dataset) {
  auto windows = dataset.windows(Split::kTrain);
  std::mt19937 random(3);
  std::shuffle(windows.begin(), windows.end(), random);
  return windows;
}

bool same(const torch::Tensor& a, const torch::Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || torch::equal(a, b));
}

bool same(const Batch& a, const Batch& b) {
  return same(a.input.static_categorical, b.input.static_categorical) &&
         same(a.input.observed_real, b.input.observed_real) &&
         same(a.input.known_real, b.input.known_real) && same(a.target, b.target) &&
         same(a.center, b.center) && same(a.scale, b.scale);
}

TEST(BatchLoader, GivesTheSameBatchesWithAnyNumberOfThreads) {
  const auto dataset = small_dataset();
  const auto windows = shuffled_windows(dataset);
  for (const int threads : {0, 1, 3, 8}) {
    BatchLoader loader(dataset, windows, 7, threads, {.unknown_rate = 0.3, .seed = 5});
    ASSERT_EQ(loader.batch_count(), static_cast<std::int64_t>((windows.size() + 6) / 7));
    Batch batch;
    std::size_t first = 0;
    while (loader.next(batch)) {
      const auto count = std::min<std::size_t>(7, windows.size() - first);
      EXPECT_TRUE(same(batch, dataset.gather(std::span(windows).subspan(first, count),
                                             {.unknown_rate = 0.3, .seed = 5})));
      first += count;
    }
    EXPECT_EQ(first, windows.size());
    EXPECT_FALSE(loader.next(batch));
    EXPECT_GE(loader.wait_s(), 0.0);
  }
}

TEST(BatchLoader, DoesWithoutThreadsThatCannotBeStarted) {
  if (testing::kIsSanitized) GTEST_SKIP() << "the address space cannot be limited";
  const auto dataset = small_dataset();
  const auto windows = shuffled_windows(dataset);
  const auto load = [&](int threads, std::int64_t free_bytes) {
    std::optional<testing::AddressSpaceLimit> limit(free_bytes);  // a thread takes 8 MB
    BatchLoader loader(dataset, windows, 7, threads);
    limit.reset();
    std::vector<Batch> batches(static_cast<std::size_t>(loader.batch_count()));
    for (Batch& batch : batches) EXPECT_TRUE(loader.next(batch));
    return batches;
  };
  const std::vector<Batch> expected = load(0, std::int64_t{1} << 40);
  for (const std::int64_t free_bytes : {6'000'000, 30'000'000}) {
    const std::vector<Batch> batches = load(8, free_bytes);
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(same(batches[i], expected[i]));
  }
}

TEST(BatchLoader, NeverChangesABatchThatIsStillHeld) {
  const auto dataset = small_dataset();
  const auto windows = shuffled_windows(dataset);
  for (const int threads : {0, 2}) {
    BatchLoader loader(dataset, windows, 5, threads);
    Batch batch;
    std::vector<Batch> held;
    std::vector<torch::Tensor> views;  // of batches that are otherwise given back
    while (loader.next(batch)) {
      if (held.size() % 2 == 0) {
        held.push_back(batch);
      } else {
        held.emplace_back();
      }
      views.push_back(batch.input.observed_real.select(1, 0));
    }
    for (std::size_t i = 0; i < held.size(); ++i) {
      const auto expected = dataset.gather(
          std::span(windows).subspan(5 * i, std::min<std::size_t>(5, windows.size() - 5 * i)));
      if (held[i].target.defined()) {
        EXPECT_TRUE(same(held[i], expected));
      }
      EXPECT_TRUE(torch::equal(views[i], expected.input.observed_real.select(1, 0)));
    }
  }
}

TEST(BatchLoader, FillsTensorsThatComeBackAgain) {
  const auto dataset = small_dataset();
  const auto windows = shuffled_windows(dataset);
  BatchLoader loader(dataset, windows, 5, 0);
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  const void* data = batch.input.observed_real.const_data_ptr();
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(batch.input.observed_real.const_data_ptr(), data);
}

TEST(BatchLoader, ThrowsWhatAThreadThrew) {
  const auto dataset = small_dataset();
  auto windows = shuffled_windows(dataset);
  windows[12] = {0, 0};  // has no encoder: in the third batch
  for (const int threads : {0, 2}) {
    BatchLoader loader(dataset, windows, 5, threads);
    Batch batch;
    EXPECT_TRUE(loader.next(batch));
    EXPECT_TRUE(loader.next(batch));
    EXPECT_THROW(loader.next(batch), c10::ValueError);
    EXPECT_THROW(loader.next(batch), c10::ValueError);
  }
}

TEST(BatchLoader, MayBeLeftHalfway) {
  const auto dataset = small_dataset();
  for (int taken = 0; taken < 4; ++taken) {
    BatchLoader loader(dataset, shuffled_windows(dataset), 3, 4);
    Batch batch;
    for (int i = 0; i < taken; ++i) EXPECT_TRUE(loader.next(batch));
  }
}

TEST(BatchLoader, HandsOutNothingForNoWindows) {
  const auto dataset = small_dataset();
  BatchLoader loader(dataset, {}, 3, 2);
  Batch batch;
  EXPECT_FALSE(loader.next(batch));
  EXPECT_THROW(BatchLoader(dataset, {}, 0, 1), c10::ValueError);
}

// Reported elsewhere: a slot for unknown ids that was never trained made forecasts of new series
// far worse.
TEST(Gather, HidesCategoriesAtTheRateAskedFor) {
  const auto dataset = small_dataset();
  auto windows = dataset.windows(Split::kTrain);
  const auto hidden = [&](const GatherOptions& options) {
    return (dataset.gather(windows, options).input.static_categorical == 0)
        .to(torch::kDouble)
        .mean()
        .item<double>();
  };
  EXPECT_EQ(hidden({}), 0.0);
  EXPECT_EQ(hidden({.unknown_rate = 1.0}), 1.0);
  // 192 windows: the deviation of the share is sqrt(0.25 * 0.75 / 192) = 0.031.
  EXPECT_EQ(windows.size(), 192U);
  EXPECT_NEAR(hidden({.unknown_rate = 0.25, .seed = 1}), 0.25, 0.1);
  const auto codes = [&](std::uint64_t seed) {
    return dataset.gather(windows, {.unknown_rate = 0.25, .seed = seed}).input.static_categorical;
  };
  EXPECT_TRUE(torch::equal(codes(1), codes(1)));
  EXPECT_FALSE(torch::equal(codes(1), codes(2)));
}

TEST(Gather, RefusesWindowsThatDoNotFit) {
  const auto dataset = small_dataset();
  for (const Window window :
       {Window{-1, 10}, Window{4, 10}, Window{0, 5}, Window{0, 78}, Window{0, -3}}) {
    EXPECT_THROW(dataset.gather({&window, 1}), c10::ValueError)
        << window.series << " " << window.origin;
  }
  EXPECT_THROW(dataset.gather({}), c10::ValueError);
}

}  // namespace
}  // namespace reprise
