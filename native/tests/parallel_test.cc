#include "parallel.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "check.h"

namespace recmap {
namespace {

// Whether each of n things was worked on once.
bool works_once_on_each(size_t n, size_t block, size_t threads) {
  std::vector<std::atomic<int>> seen(n);
  parallel_blocks(n, block, threads, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) ++seen[i];
  });
  for (const std::atomic<int>& times : seen) {
    if (times != 1) return false;
  }
  return true;
}

TEST(BlocksCoverEverythingOnce) {
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    CHECK(works_once_on_each(random() % 2000, random() % 70, random() % 9));
  }
}

TEST(BlocksAreSmallerIfThereWouldBeTooFew) {
  std::atomic<int> blocks{0};
  parallel_blocks(1000, 1000, 4, [&](size_t, size_t) { ++blocks; });
  CHECK_EQ(blocks.load(), 8);  // not below an eighth of the size asked for
  blocks = 0;
  parallel_blocks(1000, 1000, 1, [&](size_t, size_t) { ++blocks; });
  CHECK_EQ(blocks.load(), 1);
}

TEST(CallersOnSeveralThreadsShareTheHelpers) {
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> callers;
    for (int i = 0; i < 6; ++i) {
      callers.emplace_back([&wrong] {
        for (int round = 0; round < 50; ++round) wrong += !works_once_on_each(500, 7, 4);
      });
    }
  }
  CHECK_EQ(wrong.load(), 0);
}

TEST(WorkMayDivideItsOwnWork) {
  std::atomic<int> wrong{0};
  parallel_blocks(20, 1, 4, [&](size_t, size_t) { wrong += !works_once_on_each(100, 3, 4); });
  CHECK_EQ(wrong.load(), 0);
}

TEST(AnExceptionReachesTheCallerAndTheHelpersStayUsable) {
  for (int round = 0; round < 20; ++round) {
    bool caught = false;
    try {
      parallel_blocks(1000, 1, 4, [&](size_t begin, size_t) {
        if (begin == 17) throw std::runtime_error("17");
      });
    } catch (const std::runtime_error&) {
      caught = true;
    }
    CHECK(caught);
    CHECK(works_once_on_each(1000, 10, 4));
  }
}

TEST(AForkedChildHasHelpersOfItsOwn) {
  CHECK(works_once_on_each(1000, 10, 4));
  for (int round = 0; round < 5; ++round) {
    const pid_t child = fork();
    if (child == 0) _exit(works_once_on_each(1000, 10, 4) ? 0 : 1);
    int status = -1;
    waitpid(child, &status, 0);
    CHECK_EQ(status, 0);
    CHECK(works_once_on_each(1000, 10, 4));
  }
}

}  // namespace
}  // namespace recmap
