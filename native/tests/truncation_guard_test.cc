// Mapped files that are truncated while they are read.
#include "truncation_guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "mapping.h"
#include "parallel.h"

namespace recmap {
namespace {

class TemporaryFile {
 public:
  explicit TemporaryFile(size_t size) {
    char name[] = "/tmp/recmap-cut-XXXXXX";
    close(mkstemp(name));
    path_ = name;
    std::ofstream(path_, std::ios::binary) << std::string(size, '\1');
  }
  ~TemporaryFile() { std::remove(path_.c_str()); }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

uint64_t sum(Bytes bytes) { return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}); }

TEST(MissingPagesReadAsZerosInAGuard) {
  const size_t page = page_size();
  const TemporaryFile file(8 * page);
  const Mapping mapping(file.path(), "a file");
  CHECK_EQ(sum(mapping.bytes()), 8 * page);
  const uint64_t before = truncations_seen();
  CHECK(truncated_files(before).empty());
  CHECK_EQ(truncate(file.path().c_str(), static_cast<off_t>(3 * page)), 0);
  {
    const TruncationGuard guard;
    CHECK_EQ(sum(mapping.bytes()), 3 * page);
  }
  CHECK_EQ(truncations_seen(), before + 1);
  const auto cut = truncated_files(before);
  CHECK_EQ(cut.size(), size_t{1});
  CHECK_EQ(cut[0].name, "a file");
  CHECK_EQ(cut[0].size, 8 * page);
  CHECK_EQ(cut[0].end, 3 * page);
  CHECK_EQ(cut[0].number, before + 1);
  CHECK_EQ(TruncationGuard::last_found(), before + 1);
  // It stays truncated, even if the file grows again.
  CHECK_EQ(truncate(file.path().c_str(), static_cast<off_t>(8 * page)), 0);
  CHECK_EQ(mapping.current_size(), 3 * page);
  CHECK(!mapping.has_all_pages());
}

TEST(ThreadsAreInTheGuardOfTheirCaller) {
  const size_t page = page_size();
  const TemporaryFile file(64 * page);
  const Mapping mapping(file.path(), "a file");
  CHECK_EQ(truncate(file.path().c_str(), 0), 0);
  const TruncationGuard guard;
  const uint64_t before = truncations_seen();
  std::atomic<uint64_t> total{0};
  parallel_blocks(64, 1, 4, [&](size_t begin, size_t end) {
    total += sum(mapping.bytes().subspan(begin * page, (end - begin) * page));
  });
  CHECK_EQ(total.load(), uint64_t{0});
  CHECK(TruncationGuard::last_found() > before);
}

TEST(OtherFilesAndThreadsAreNotBlamed) {
  const size_t page = page_size();
  const TemporaryFile good(2 * page), bad(2 * page);
  const Mapping sound(good.path(), "good"), cut(bad.path(), "bad");
  CHECK_EQ(truncate(bad.path().c_str(), 0), 0);
  const uint64_t before = truncations_seen();
  const TruncationGuard guard;
  std::thread([&] {
    const TruncationGuard own;
    CHECK_EQ(sum(cut.bytes()), uint64_t{0});
    CHECK(TruncationGuard::last_found() > before);
  }).join();
  std::atomic<uint64_t> total{0};
  parallel_blocks(2, 1, 2, [&](size_t begin, size_t end) {
    total += sum(sound.bytes().subspan(begin * page, (end - begin) * page));
  });
  CHECK_EQ(total.load(), 2 * page);
  CHECK(TruncationGuard::last_found() <= before);
  for (const TruncatedFile& file : truncated_files(before)) CHECK_EQ(file.name, "bad");
  CHECK(sound.has_all_pages());
}

// Runs `work` in a process of its own and returns how that ended, as waitpid() tells it.
template <typename Work>
int status_of(Work work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(0);
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  return status;
}

bool killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS; }

// Lets the next Mapping find this handler, as if it had been there first.
void handle_with(void (*handler)(int)) { signal(SIGBUS, handler); }

volatile sig_atomic_t handled = 0;
volatile uint64_t last_sum;  // so that the compiler keeps the read
struct sigaction before_ours;

TEST(SignalsFromOutsideArePassedOn) {
  const TemporaryFile file(page_size());
  const auto send = [&](void (*handler)(int), bool to_process) {
    handle_with(handler);
    const Mapping mapping(file.path(), "a file");
    const TruncationGuard guard;
    to_process ? kill(getpid(), SIGBUS) : raise(SIGBUS);
  };
  for (const bool to_process : {false, true}) {
    CHECK(killed(status_of([&] { send(SIG_DFL, to_process); })));
    CHECK_EQ(status_of([&] { send(SIG_IGN, to_process); }), 0);
    const int counted = status_of([&] {
      send([](int) { handled = handled + 1; }, to_process);
      _exit(handled);
    });
    CHECK_EQ(WEXITSTATUS(counted), 1);
  }
}

TEST(AFaultElsewhereIsPassedOn) {
  const size_t page = page_size();
  const auto touch = [&](bool ours, bool guarded) {
    handle_with(SIG_DFL);
    const TemporaryFile file(page);
    const Mapping mapping(file.path(), "a file");
    const int fd = open(file.path().c_str(), O_RDONLY);
    void* const other = mmap(nullptr, page, PROT_READ, MAP_SHARED, fd, 0);
    if (truncate(file.path().c_str(), 0) != 0 || other == MAP_FAILED) _exit(1);
    if (guarded) TruncationGuard::enter();
    last_sum = sum(ours ? mapping.bytes() : Bytes(static_cast<const uint8_t*>(other), page));
  };
  CHECK(killed(status_of([&] { touch(true, false); })));
  CHECK(killed(status_of([&] { touch(false, true); })));
  CHECK_EQ(status_of([&] { touch(true, true); }), 0);
}

TEST(AHandlerThatRaisesTheSignalAgainEndsTheProcess) {
  const TemporaryFile file(page_size());
  CHECK(killed(status_of([&] {
    handle_with(SIG_DFL);
    const Mapping first(file.path(), "a file");
    sigaction(SIGBUS, nullptr, &before_ours);
    // As Python's faulthandler, if it is enabled after us.
    handle_with([](int) {
      sigaction(SIGBUS, &before_ours, nullptr);
      raise(SIGBUS);
    });
    const Mapping second(file.path(), "a file");
    raise(SIGBUS);
  })));
}

TEST(MappingsAreUnregistered) {
  const TemporaryFile file(page_size());
  for (int i = 0; i < 3000; ++i) const Mapping mapping(file.path(), "a file");
  CHECK(truncated_files(truncations_seen()).empty());
}

}  // namespace
}  // namespace recmap
