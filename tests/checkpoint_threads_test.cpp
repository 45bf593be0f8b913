// SPDX-License-Identifier: Apache-2.0
/// Regions on several threads. A program of its own, so that it can run under the thread sanitizer.
#include "reprise/checkpoint.h"

#include "tests/checkpoint_testing.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace reprise {
namespace {

using testing::Caller;
using ::testing::HasSubstr;
using testing::random_leaf;
using testing::random_tensor;
using testing::Tensors;
using torch::Tensor;

/// Runs `actions` at the same time and throws what the first of them threw.
void run_together(const std::vector<std::function<void()>>& actions) {
  std::vector<std::exception_ptr> errors(actions.size());
  std::atomic<std::size_t> waiting = actions.size();
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    threads.emplace_back([&, i] {
      --waiting;
      while (waiting != 0) std::this_thread::yield();
      try {
        actions[i]();
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

/// Gradient of the sum of `output`.
Tensor gradient_of(const Tensor& output, const Tensor& leaf) {
  return torch::autograd::grad({output.sum()}, {leaf}, {}, std::nullopt, false, true)[0];
}

constexpr int kRepetitions = 20;

// B34
TEST(CheckpointThreads, RunOneRecomputationForDisjointOutputs) {
  const auto x = random_leaf({4, 8});
  for (const auto& options : testing::options_without_policy()) {
    SCOPED_TRACE(options.name);
    for (int repetition = 0; repetition < kRepetitions; ++repetition) {
      std::atomic<int> runs = 0;
      const auto outputs = checkpoint(
          options,
          [&](const Tensor& t) {
            ++runs;
            return Tensors{t.exp(), t.sin(), (t * 2).exp().sin(), t.cos()};
          },
          x);
      Tensors gradients(4);
      std::vector<std::function<void()>> actions;
      for (std::size_t i = 0; i < 4; ++i)
        actions.emplace_back([&, i] { gradients[i] = gradient_of(outputs[i], x); });
      run_together(actions);
      EXPECT_EQ(runs, 2);  // forward and one recomputation
      testing::expect_same_bytes(gradients,
                                 {gradient_of(x.exp(), x), gradient_of(x.sin(), x),
                                  gradient_of((x * 2).exp().sin(), x), gradient_of(x.cos(), x)});
    }
  }
}

TEST(CheckpointThreads, ShareOneRegionWithRandomNumbersBuffersAndAPolicy) {
  const auto x = random_leaf({4, 8});
  const auto weight = random_leaf({8, 8}, 2);
  for (const auto& options : testing::all_options()) {
    SCOPED_TRACE(options.name);
    const auto run = [&](const Caller& call) {
      torch::manual_seed(3);
      const auto counter = torch::zeros({});
      const auto outputs = call(
          [&](const Tensor& t) {
            counter.add_(1);
            const auto y = torch::dropout(t.mm(weight), 0.5, true) + counter;
            return Tensors{y.exp(), y.sin() * torch::rand({8}), y.mm(weight).tanh()};
          },
          x);
      Tensors gradients(3);
      std::vector<std::function<void()>> actions;
      for (std::size_t i = 0; i < 3; ++i) {
        actions.emplace_back([&, i] {
          gradients[i] = torch::autograd::grad({outputs[i].sum()}, {x}, {}, true)[0];
          gradients[i] = gradients[i] + torch::autograd::grad({outputs[i].sum()}, {x}, {}, true)[0];
        });
      }
      run_together(actions);
      testing::append(gradients, {counter, torch::rand({3})});
      return gradients;
    };
    testing::expect_same_bytes(run(Caller(options)), run(Caller()));
  }
}

// Every region recomputes with its own earlier values of the statistics that all of them share.
TEST(CheckpointThreads, RunRegionsThatShareABatchNorm) {
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    const auto run = [](const Caller& call) {
      torch::manual_seed(4);
      torch::nn::BatchNorm1d norm(8);
      Tensors leaves;
      Tensors outputs;
      for (std::uint64_t i = 0; i < 4; ++i) {
        leaves.push_back(random_leaf({4, 8}, i));
        outputs.push_back(call(
            [norm](const Tensor& t) mutable {
              return (norm(t.exp()) + norm->running_mean.clone()).sin();
            },
            leaves.back()));
      }
      Tensors gradients(4);
      std::vector<std::function<void()>> actions;
      for (std::size_t i = 0; i < 4; ++i)
        actions.emplace_back([&, i] { gradients[i] = gradient_of(outputs[i], leaves[i]); });
      run_together(actions);
      testing::append(gradients, norm->buffers());
      return gradients;
    };
    testing::expect_same_bytes(run(Caller(CheckpointOptions{})), run(Caller()));
  }
}

TEST(CheckpointThreads, TrainSeparateModels) {
  const auto train = [](const Caller& call, std::uint64_t seed) {
    const auto weight = random_leaf({8, 8}, seed);
    auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    const auto buffer = torch::zeros({8});
    for (std::uint64_t step = 0; step < kRepetitions; ++step) {
      const auto f = [&](const Tensor& t) {
        buffer.add_(t.detach().mean(0));
        const auto inner = [&](const Tensor& u) {
          return (u.mm(weight) * torch::rand({8}, generator)).tanh();
        };
        return call(inner, call(inner, t).exp() + buffer);
      };
      const auto y = call(f, random_tensor({4, 8}, seed + step)).pow(2).mean();
      const auto gradient = torch::autograd::grad({y}, {weight})[0];
      const torch::NoGradGuard no_grad;
      weight.sub_(gradient * 0.1);
    }
    return Tensors{weight.detach(), buffer, torch::rand({3}, generator)};
  };
  for (const auto& options : testing::all_options()) {
    SCOPED_TRACE(options.name);
    std::vector<Tensors> results(4);
    std::vector<std::function<void()>> actions;
    for (std::size_t i = 0; i < 4; ++i)
      actions.emplace_back([&, i] { results[i] = train(Caller(options), i); });
    run_together(actions);
    for (std::size_t i = 0; i < 4; ++i) testing::expect_same_bytes(results[i], train(Caller(), i));
  }
}

// A region that draws nothing leaves the generator to the threads that do.
TEST(CheckpointThreads, DoNotDisturbEachOthersRandomNumbers) {
  const auto draw = [] {
    Tensors numbers;
    for (int i = 0; i < 500; ++i) numbers.push_back(torch::rand({1}));
    return torch::cat(numbers);
  };
  torch::manual_seed(5);
  const auto expected = draw();
  for (const auto& options : testing::all_options()) {
    SCOPED_TRACE(options.name);
    torch::manual_seed(5);
    Tensor actual;
    std::atomic<bool> is_done = false;
    run_together({[&] {
                    actual = draw();
                    is_done = true;
                  },
                  [&] {
                    const auto x = random_leaf({4, 8});
                    const auto f = [](const Tensor& t) {
                      return t.exp().sin();
                    };
                    do {
                      gradient_of(checkpoint(options, f, x), x);
                    } while (!is_done);
                  }});
    EXPECT_TRUE(testing::is_same_bytes(actual, expected));
  }
}

// A thread that holds one region lets go of another one's saved tensors while that one is held.
TEST(CheckpointThreads, DoNotWaitForEachOtherWhenGraphsGo) {
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    const auto x = random_leaf({4, 8});
    Tensor cached;
    const auto f = [&](const Tensor& t) {
      if (in_recompute()) cached = Tensor();
      return checkpoint([](const Tensor& u) { return u.exp().sin(); }, t.cos()).tanh();
    };
    const auto y = checkpoint(f, x);
    cached = checkpoint([](const Tensor& u) { return u.exp().sin(); }, x);
    Tensor gradient;
    run_together({[&] { gradient = gradient_of(y, x); }, [&] { gradient_of(x.exp().sin(), x); }});
    EXPECT_TRUE(gradient.defined());
  }
}

TEST(CheckpointThreads, RunBackwardOfNestedRegions) {
  const auto x = random_leaf({4, 8});
  const auto weight = random_leaf({8, 8}, 2);
  const auto inner = [&](const Tensor& t) {
    return torch::dropout(t.mm(weight), 0.5, true).sin();
  };
  for (const auto& options : testing::all_options()) {
    SCOPED_TRACE(options.name);
    const auto disjoint = [&](const Caller& call) {
      torch::manual_seed(6);
      const auto outer = [&](const Tensor& t) {
        return Tensors{call(inner, call(inner, t)).exp(), call(inner, call(inner, t.tanh()))};
      };
      const auto outputs = call(outer, x);
      Tensors gradients(2);
      run_together({[&] { gradients[0] = gradient_of(outputs[0], x); },
                    [&] { gradients[1] = gradient_of(outputs[1], x); }});
      return gradients;
    };
    testing::expect_same_bytes(disjoint(Caller(options)), disjoint(Caller()));
  }
}

// The first run's thread is not the second run's.
TEST(CheckpointThreads, RecomputeOnAnotherThreadWithTheStateOfForward) {
  const auto x = random_leaf({4, 8});
  const auto weight = random_leaf({8, 8}, 2);
  const auto run = [&](const Caller& call) {
    torch::manual_seed(7);
    Tensor y;
    run_together({[&] {
      const testing::AutocastScope autocast(at::kBFloat16);
      y = call(
          [&](const Tensor& t) {
            return torch::dropout(t.mm(weight), 0.5, true).exp().to(torch::kFloat).sin();
          },
          x);
    }});
    return Tensors{gradient_of(y, x), torch::rand({3})};
  };
  for (const auto& options : testing::all_options()) {
    SCOPED_TRACE(options.name);
    testing::expect_same_bytes(run(Caller(options)), run(Caller()));
  }
}

TEST(CheckpointThreads, KeepTheirErrorsApart) {
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    const auto x = random_leaf({4, 8});
    std::atomic<bool> fails = true;
    const auto failing = checkpoint(
        [&](const Tensor& t) {
          auto y = t.exp().sin();
          if (in_recompute() && fails) throw std::runtime_error("out of luck");
          return y.tanh();
        },
        x);
    const auto working = checkpoint([](const Tensor& t) { return t.exp().sin().tanh(); }, x);
    std::string message;
    Tensor gradient;
    run_together({[&] {
                    message = testing::error_of(
                        [&] { torch::autograd::grad({failing.sum()}, {x}, {}, true); });
                  },
                  [&] { gradient = gradient_of(working, x); }});
    EXPECT_THAT(message, HasSubstr("out of luck"));
    fails = false;
    EXPECT_TRUE(testing::is_same_bytes(gradient, gradient_of(failing, x)));
  }
}

TEST(CheckpointThreads, OfOneRegionMayFailAndTryAgain) {
  const auto x = random_leaf({4, 8});
  std::atomic<int> runs = 0;
  const auto outputs = checkpoint(
      [&](const Tensor& t) {
        const int run = ++runs;
        Tensors result = {t.exp(), t.sin()};
        if (run == 2) throw std::runtime_error("out of luck");
        result.push_back(t.exp().cos());
        return result;
      },
      x);
  Tensors gradients(3);
  std::vector<std::function<void()>> actions;
  for (std::size_t i = 0; i < 3; ++i) {
    actions.emplace_back([&, i] {
      const auto sum = outputs[i].sum();
      while (!gradients[i].defined()) {
        try {
          gradients[i] = torch::autograd::grad({sum}, {x}, {}, true)[0];
        } catch (const std::runtime_error& error) {
          EXPECT_THAT(error.what(), HasSubstr("out of luck"));
        }
      }
    });
  }
  run_together(actions);
  testing::expect_same_bytes(
      gradients, {gradient_of(x.exp(), x), gradient_of(x.sin(), x), gradient_of(x.exp().cos(), x)});
}

// Trap 1: the state of a thread travels to others, those of this library's own must not break
// there.
TEST(CheckpointThreads, OfTheFunctionMayRunOperators) {
  const auto x = random_leaf({4, 8});
  const auto f = [](const Tensor& t) {
    Tensor mask;
    Tensor scaled;
    const at::ThreadLocalState state;
    std::thread worker([&] {
      const at::ThreadLocalStateGuard guard(state);
      scaled = t * 2;  // saves no tensor
      const torch::NoGradGuard no_grad;
      mask = t.gt(0).to(torch::kFloat);
    });
    worker.join();
    return (scaled * mask).exp().sin();
  };
  const auto expected = gradient_of(f(x), x);
  for (const auto& options : testing::options_without_policy()) {
    SCOPED_TRACE(options.name);
    EXPECT_TRUE(testing::is_same_bytes(gradient_of(checkpoint(options, f, x), x), expected));
  }
}

}  // namespace
}  // namespace reprise
