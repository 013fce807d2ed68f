#include "buffer_pool.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "check.h"

namespace recmap {
namespace {

constexpr size_t kSize = size_t{3} << 20;

TEST(AFreedBufferIsUsedAgain) {
  release_buffers();
  const PooledBuffer first = take_buffer(kSize);
  give_buffer(first);
  const PooledBuffer second = take_buffer(kSize - 1000);
  CHECK(second.data == first.data);
  give_buffer(second);
  const PooledBuffer small = take_buffer(kSize / 4);
  CHECK(small.data != first.data);
  give_buffer(small);
  release_buffers();
}

TEST(BuffersInUseDoNotOverlap) {
  std::vector<PooledBuffer> buffers;
  for (size_t i = 1; i <= 40; ++i) {
    buffers.push_back(take_buffer(i * 100'000));
    CHECK(buffers.back().capacity >= i * 100'000);
    std::memset(buffers.back().data, static_cast<int>(i), buffers.back().capacity);
  }
  for (size_t i = 1; i <= 40; ++i) {
    const PooledBuffer& buffer = buffers[i - 1];
    CHECK_EQ(int{buffer.data[0]}, static_cast<int>(i));
    CHECK_EQ(int{buffer.data[buffer.capacity - 1]}, static_cast<int>(i));
    give_buffer(buffer);
  }
  release_buffers();
}

TEST(LargeBuffersBeginOnAHugePage) {
  const PooledBuffer buffer = take_buffer(kSize);
  CHECK_EQ(reinterpret_cast<uintptr_t>(buffer.data) % (size_t{2} << 20), uintptr_t{0});
  give_buffer(buffer);
  release_buffers();
}

TEST(ThePoolKeepsNoMoreThanWasInUseAtOnce) {
  release_buffers();
  // One after the other: never more than the largest.
  for (const size_t size : {kSize, 4 * kSize, kSize, 16 * kSize}) give_buffer(take_buffer(size));
  const size_t kept = release_buffers();
  CHECK(kept >= 16 * kSize);
  CHECK(kept <= 18 * kSize);
}

TEST(BuffersThatNobodyTakesReturnToTheSystem) {
  release_buffers();
  give_buffer(take_buffer(kSize));
  for (int i = 0; i < 100 && pooled_bytes() != 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  CHECK_EQ(pooled_bytes(), size_t{0});
}

TEST(AnImpossibleSizeGivesNothing) {
  CHECK(take_buffer(SIZE_MAX).data == nullptr);
  CHECK(take_buffer(SIZE_MAX / 2).data == nullptr);
}

TEST(ThreadsShareThePool) {
  std::vector<std::jthread> threads;
  std::atomic<int> wrong{0};
  for (int t = 1; t <= 4; ++t) {
    threads.emplace_back([t, &wrong] {
      for (int i = 0; i < 200; ++i) {
        const PooledBuffer buffer = take_buffer(300'000);
        std::memset(buffer.data, t, 300'000);
        std::this_thread::yield();
        wrong += buffer.data[0] != t || buffer.data[299'999] != t;
        give_buffer(buffer);
      }
    });
  }
  threads.clear();
  CHECK_EQ(wrong.load(), 0);
}

TEST(AForkedChildMayUseThePool) {
  const PooledBuffer held = take_buffer(kSize);
  const pid_t child = fork();
  if (child == 0) {
    give_buffer(held);
    give_buffer(take_buffer(kSize));
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK_EQ(status, 0);
  give_buffer(held);
}

}  // namespace
}  // namespace recmap
