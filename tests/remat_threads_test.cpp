// SPDX-License-Identifier: Apache-2.0
/// Several threads train within one budget.
#include "reprise/checkpoint.h"
#include "reprise/memory.h"
#include "reprise/rematerializer.h"

#include "tests/checkpoint_testing.h"
#include "tests/memory_testing.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

namespace reprise {
namespace {

using testing::Tensors;
using torch::Tensor;

constexpr int kThreads = 4;

/// A model of its own for each thread.
struct Worker {
  explicit Worker(int number) {
    torch::manual_seed(static_cast<std::uint64_t>(number));
    for (int i = 0; i < 6; ++i) {
      model->push_back(torch::nn::Linear(64, 64));
      model->push_back(torch::nn::GELU());
      model->push_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({64})));
    }
    input = torch::randn({128, 64});
  }

  Tensors gradients(Rematerializer* rematerializer) {
    const auto loss_of = [&] {
      return model->forward(input).square().mean();
    };
    const auto loss = rematerializer == nullptr ? loss_of() : rematerializer->forward(loss_of);
    return torch::autograd::grad({loss}, model->parameters());
  }

  torch::nn::Sequential model;
  Tensor input;
  Tensors expected;
  bool is_exact = true;
};

TEST(RematThreads, TrainWithinOneBudget) {
  std::vector<Worker> workers;
  for (int i = 0; i < kThreads; ++i) workers.emplace_back(i);
  const auto start = testing::in_use();
  reprise::reset_peak_memory();
  for (auto& worker : workers) worker.expected = worker.gradients(nullptr);
  const auto kept = testing::in_use() - start;
  const auto plain = memory_stats().peak_bytes - start - kept;  // of one thread
  Rematerializer rematerializer({.budget_bytes = testing::in_use() + plain * 5 / 2});
  std::vector<std::thread> threads;
  for (auto& worker : workers) {
    threads.emplace_back([&] {
      for (int step = 0; step < 10; ++step) {
        const auto actual = worker.gradients(&rematerializer);
        for (std::size_t i = 0; i < actual.size(); ++i)
          worker.is_exact =
              worker.is_exact && testing::is_same_bytes(actual[i], worker.expected[i]);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& worker : workers) EXPECT_TRUE(worker.is_exact);
  EXPECT_EQ(rematerializer.stats().steps, kThreads * 10);
  EXPECT_LE(memory_stats().peak_bytes, memory_stats().budget_bytes);
}

TEST(RematThreads, RunBackwardOfOneForwardPassAtTheSameTime) {
  Worker worker(1);
  worker.expected = worker.gradients(nullptr);
  const auto start = testing::in_use();
  reprise::reset_peak_memory();
  worker.gradients(nullptr);
  const auto plain = memory_stats().peak_bytes - start;
  Rematerializer rematerializer({.budget_bytes = start + plain * 3});
  for (int step = 0; step < 3; ++step) {
    const auto loss =
        rematerializer.forward([&] { return worker.model->forward(worker.input).square().mean(); });
    std::vector<Tensors> results(2);
    std::vector<std::thread> threads;
    for (auto& result : results) {
      threads.emplace_back([&] {
        result = torch::autograd::grad({loss}, worker.model->parameters(), {},
                                       /*retain_graph=*/true);
      });
    }
    for (auto& thread : threads) thread.join();
    for (const auto& result : results) testing::expect_same_bytes(result, worker.expected);
  }
}

/// A stack with dropout, whose recomputation sets the generator that all threads share.
struct DropoutWorker {
  DropoutWorker() {
    for (int i = 0; i < 6; ++i) {
      model->push_back(torch::nn::Linear(64, 64));
      model->push_back(torch::nn::Dropout(0.3));
    }
    input = torch::randn({256, 64}).requires_grad_();
  }
  Tensor loss() { return model->forward(input).square().mean(); }
  Tensors gradients(const Tensor& loss) const {
    return torch::autograd::grad({loss}, model->parameters());
  }

  torch::nn::Sequential model;
  Tensor input;
};

TEST(RematThreads, TapesAndRegionsDrawTheirNumbersAgainAtTheSameTime) {
  torch::manual_seed(1);
  DropoutWorker taped;
  DropoutWorker region;
  const auto forward_both = [&](const auto& tape_forward, const auto& region_forward) {
    torch::manual_seed(2);
    const auto first = tape_forward([&] { return taped.loss(); });
    const auto second = region_forward([&] { return region.loss(); });
    return std::pair(first, second);
  };
  const auto plainly = [](const auto& loss) {
    return loss();
  };
  const auto start = testing::in_use();
  reprise::reset_peak_memory();
  const auto plain = forward_both(plainly, plainly);
  const auto expected_taped = taped.gradients(plain.first);
  const auto expected_region = region.gradients(plain.second);
  const auto expected_next = torch::rand({3});
  const auto both = memory_stats().peak_bytes - start;

  // Forward has too little, so that the tape has to run dropout again; both threads have enough.
  const auto budget = testing::in_use() + 2 * both;
  Rematerializer rematerializer({.budget_bytes = budget});
  const auto in_little_memory = [&](const auto& loss) {
    const auto ballast = torch::empty({budget - testing::in_use() - both * 3 / 10}, torch::kByte);
    return rematerializer.forward(loss);
  };
  for (int round = 0; round < 30; ++round) {
    const auto losses = forward_both(in_little_memory, [&](const auto& loss) {
      return checkpoint([loss](const Tensor&) { return loss(); }, region.input);
    });
    Tensors of_tape;
    Tensors of_region;
    std::thread first([&] { of_tape = taped.gradients(losses.first); });
    std::thread second([&] { of_region = region.gradients(losses.second); });
    first.join();
    second.join();
    testing::expect_same_bytes(of_tape, expected_taped);
    testing::expect_same_bytes(of_region, expected_region);
    testing::expect_same_bytes({torch::rand({3})}, {expected_next});
  }
  EXPECT_GT(rematerializer.stats().replayed_operations, 0);
}

}  // namespace
}  // namespace reprise
