// Work divided among threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>

#include "thread_pool.h"
#include "truncation_guard.h"

namespace recmap {

// A size of blocks of n things: `block`, or less if there would be too few blocks to keep all
// threads busy to the end. Handing out a block costs little, but not nothing.
inline size_t balanced_block(size_t n, size_t block, size_t threads) {
  constexpr size_t kBlocksPerThread = 4, kSmallestPart = 8;
  if (threads > 1) {
    block = std::min(block, std::max(n / (kBlocksPerThread * threads), block / kSmallestPart));
  }
  return std::max<size_t>(block, 1);
}

// Calls work(begin, end) for blocks of `block` that together cover [0, n), on up to `threads`
// threads including the caller's. If a block throws, the others are abandoned, and the exception
// is rethrown once all threads are done. A TruncationGuard of the caller covers all threads.
template <typename Work>
void each_block(size_t n, size_t block, size_t threads, Work&& work) {
  threads = std::max<size_t>(threads, 1);
  const size_t blocks = n / block + (n % block != 0);
  threads = std::min(threads, std::max<size_t>(blocks, 1));
  std::atomic<size_t> next{0};
  std::exception_ptr failure;
  std::mutex failure_mutex;
  const bool guarded = TruncationGuard::active();
  const uint64_t truncations = truncations_seen();
  std::atomic<uint64_t> found{0};
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
    if (truncations_seen() != truncations) {
      // Any of them will do: all were found during this call.
      const uint64_t last = TruncationGuard::last_found();
      if (last > truncations) found.store(last);
    }
  };
  run_with_helpers(
      threads - 1, [](void* argument) { (*static_cast<decltype(run)*>(argument))(); }, &run);
  TruncationGuard::take_over(found.load());
  if (failure) std::rethrow_exception(failure);
}

// The same for blocks of about this size.
template <typename Work>
void parallel_blocks(size_t n, size_t block, size_t threads, Work&& work) {
  each_block(n, balanced_block(n, block, threads), threads, work);
}

// Calls work(i) for each i below n until one returns false. Returns the lowest i for which it did,
// or n. It is not called for all after that.
template <typename Work>
size_t first_failure(size_t n, size_t threads, Work&& work) {
  std::atomic<size_t> failed{n};
  each_block(n, 1, threads, [&](size_t i, size_t) {
    if (i >= failed.load(std::memory_order_relaxed) || work(i)) return;
    for (size_t seen = failed.load(); i < seen && !failed.compare_exchange_weak(seen, i);) {
    }
  });
  return failed.load();
}

}  // namespace recmap
