// Work divided among short-lived threads. Nothing outlives a call, so a process may fork between
// calls.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <vector>

#include "small_stack_thread.h"
#include "truncation_guard.h"

namespace recmap {

// Calls work(begin, end) for blocks of `block` that together cover [0, n), on up to `threads`
// threads including the caller's, or as many as the system lets start. If a block throws, the
// others are abandoned, and the exception is rethrown once all threads have ended. A
// TruncationGuard of the caller covers all threads.
template <typename Work>
void parallel_blocks(size_t n, size_t block, size_t threads, Work&& work) {
  block = std::max<size_t>(block, 1);
  const size_t blocks = n / block + (n % block != 0);
  threads = std::clamp<size_t>(threads, 1, std::max<size_t>(blocks, 1));
  std::atomic<size_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const bool guarded = TruncationGuard::active();
  auto run = [&] {
    std::optional<TruncationGuard> guard;
    if (guarded) guard.emplace();
    try {
      for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < blocks;) {
        work(i * block, std::min(n, (i + 1) * block));
      }
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
      next.store(blocks, std::memory_order_relaxed);
    }
  };
  {
    std::vector<SmallStackThread> helpers(threads - 1);
    for (SmallStackThread& helper : helpers) {
      if (!helper.start(run)) break;
    }
    run();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace recmap
