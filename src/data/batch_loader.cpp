// SPDX-License-Identifier: Apache-2.0
#include "reprise/dataset.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace reprise {

struct BatchLoader::Impl {
  /// A batch gathered ahead: the one of number `index` where `is_ready`.
  struct Slot {
    Batch batch;
    bool is_ready = false;
    std::exception_ptr error;
  };

  Impl(const Dataset& data, std::vector<Window> order, std::int64_t size,
       const GatherOptions& gather_options)
      : dataset(data), windows(std::move(order)), batch_size(size), options(gather_options) {
    count = (static_cast<std::int64_t>(windows.size()) + batch_size - 1) / batch_size;
  }

  std::span<const Window> windows_of(std::int64_t index) const {
    const auto first = static_cast<std::size_t>(index * batch_size);
    return std::span(windows).subspan(
        first, std::min(static_cast<std::size_t>(batch_size), windows.size() - first));
  }

  /// One batch in the making and one waiting for each thread; and the one that is handed out.
  void allocate_ring(int thread_count) {
    ring.resize(static_cast<std::size_t>(2 * thread_count));
    const auto largest = std::min(batch_size, static_cast<std::int64_t>(windows.size()));
    if (largest == 0) return;
    for (auto& slot : ring) dataset.allocate(largest, slot.batch);
    if (!ring.empty()) dataset.allocate(largest, extra);
  }

  /// Threads that the system refuses, as it does where address space is limited, are done without.
  void start_threads(int thread_count) {
    try {
      for (int i = 0; i < thread_count; ++i) threads.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      if (!threads.empty()) return;
      ring.clear();
      extra = Batch{};
    }
  }

  Slot& slot(std::int64_t index) { return ring[static_cast<std::size_t>(index) % ring.size()]; }

  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      // A slot is free once the batch that had it before has been handed out.
      space.wait(lock, [&] {
        return stops || begun == count ||
               begun < handed_out + static_cast<std::int64_t>(ring.size());
      });
      if (stops || begun == count) return;
      const std::int64_t index = begun++;
      auto& mine = slot(index);
      lock.unlock();
      std::exception_ptr error;
      try {
        dataset.gather_into(windows_of(index), options, mine.batch);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      mine.error = error;
      mine.is_ready = true;
      ready.notify_all();
    }
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex);
      stops = true;
    }
    space.notify_all();
    for (auto& thread : threads) thread.join();
  }

  const Dataset dataset;
  const std::vector<Window> windows;
  const std::int64_t batch_size;
  const GatherOptions options;
  std::int64_t count = 0;
  double wait_s = 0.0;

  std::mutex mutex;  ///< guards everything below
  std::condition_variable space;
  std::condition_variable ready;
  std::vector<Slot> ring;
  Batch extra;  ///< takes the place of the first batch that is handed out
  std::int64_t begun = 0;
  std::int64_t handed_out = 0;
  bool stops = false;
  std::exception_ptr failure;
  std::vector<std::thread> threads;
};

BatchLoader::BatchLoader(const Dataset& dataset, std::vector<Window> windows,
                         std::int64_t batch_size, int threads, const GatherOptions& options) {
  TORCH_CHECK_VALUE(batch_size >= 1, "BatchLoader: batch_size is ", batch_size,
                    ", must be positive");
  TORCH_CHECK_VALUE(threads >= 0, "BatchLoader: threads is ", threads, ", must not be negative");
  impl_ = std::make_unique<Impl>(dataset, std::move(windows), batch_size, options);
  impl_->allocate_ring(threads);
  impl_->start_threads(threads);
}

BatchLoader::~BatchLoader() = default;

bool BatchLoader::next(Batch& batch) {
  const auto start = std::chrono::steady_clock::now();
  auto& impl = *impl_;
  std::unique_lock lock(impl.mutex);
  if (impl.failure) std::rethrow_exception(impl.failure);
  if (impl.handed_out == impl.count) return false;
  const auto add_wait = [&] {
    impl.wait_s += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  if (impl.threads.empty()) {
    try {
      impl.dataset.gather_into(impl.windows_of(impl.handed_out), impl.options, batch);
    } catch (...) {
      impl.failure = std::current_exception();
      throw;
    }
  } else {
    auto& slot = impl.slot(impl.handed_out);
    impl.ready.wait(lock, [&] { return slot.is_ready; });
    slot.is_ready = false;
    if (slot.error) {
      impl.failure = slot.error;
      std::rethrow_exception(impl.failure);
    }
    std::swap(batch, slot.batch);
    if (!slot.batch.target.defined()) slot.batch = std::exchange(impl.extra, Batch{});
  }
  ++impl.handed_out;
  add_wait();
  lock.unlock();
  impl.space.notify_one();
  return true;
}

std::int64_t BatchLoader::batch_count() const {
  return impl_->count;
}

double BatchLoader::wait_s() const {
  return impl_->wait_s;
}

}  // namespace reprise
