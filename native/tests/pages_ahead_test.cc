// Pages that are loaded ahead of a reader.
#include "pages_ahead.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "mapping.h"

#if defined(__linux__)
namespace recmap {
namespace {

constexpr size_t kMB = size_t{1} << 20;

// A file that is dropped from memory. On some file systems, it cannot be.
class DroppedFile {
 public:
  explicit DroppedFile(size_t size) {
    char name[] = "recmap-ahead-XXXXXX";
    const int file = mkstemp(name);
    path_ = name;
    const std::string part(kMB, '\1');
    for (size_t at = 0; at < size; at += kMB) {
      CHECK_EQ(write(file, part.data(), kMB), static_cast<ssize_t>(kMB));
    }
    fdatasync(file);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    close(file);
  }
  ~DroppedFile() { std::remove(path_.c_str()); }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Which of the megabytes of a file end in memory.
std::vector<char> loaded(const Mapping& mapping) {
  std::vector<char> found;
  for (size_t at = kMB; at <= mapping.bytes().size(); at += kMB) {
    unsigned char resident = 0;
    mincore(const_cast<uint8_t*>(mapping.bytes().data()) + at - page_size(), 1, &resident);
    found.push_back((resident & 1) != 0);
  }
  return found;
}

size_t threads() {
  using std::filesystem::directory_iterator;
  return static_cast<size_t>(
      std::distance(directory_iterator("/proc/self/task"), directory_iterator()));
}

template <typename Done>
bool until(Done&& done) {
  for (int i = 0; i < 10000 && !done(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return done();
}

bool supported() {
  static const bool known = [] {
    void* const page = mmap(nullptr, page_size(), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const bool can = madvise(page, page_size(), 22) == 0;
    munmap(page, page_size());
    return can;
  }();
  return known;
}

TEST(ReadsInOrderLoadWhatFollowsAndTheThreadsEnd) {
  const DroppedFile file(160 * kMB);
  const Mapping mapping(file.path(), "a file");
  std::thread([] {}).join();  // a sanitizer starts one of its own beside the first
  const size_t before = threads();
  const bool dropped = !loaded(mapping)[100];
  mapping.load_ahead(0, 8 * kMB);
  mapping.load_ahead(8 * kMB + 12, 16 * kMB);  // a reader may leave out a few bytes
  mapping.load_ahead(16 * kMB + 12, 24 * kMB);
  if (supported()) CHECK(until([&] { return loaded(mapping)[50]; }));
  CHECK(until([&] { return threads() <= before; }));
  CHECK(!dropped || !loaded(mapping)[150]);
  CHECK_EQ(mapping.bytes()[160 * kMB - 1], 1);
}

TEST(OtherReadsLoadNothing) {
  const DroppedFile file(96 * kMB);
  const Mapping mapping(file.path(), "a file");
  const auto before = loaded(mapping);
  for (const size_t at : {40, 90, 20, 70, 10}) mapping.load_ahead(at * kMB, (at + 4) * kMB);
  CHECK(loaded(mapping) == before);
  mapping.load_ahead(0, 0);
  mapping.load_ahead(200 * kMB, 201 * kMB);  // behind the end
  mapping.load_ahead(95 * kMB, 500 * kMB);
}

TEST(FilesThatAreClosedOrTruncatedAreGivenUp) {
  for (int i = 0; i < 20; ++i) {
    const DroppedFile file(32 * kMB);
    const Mapping mapping(file.path(), "a file");
    mapping.load_ahead(0, 8 * kMB);
    if (i % 2) CHECK_EQ(truncate(file.path().c_str(), 4096), 0);
    mapping.load_ahead(8 * kMB + 12, 16 * kMB);  // a reader may leave out a few bytes
  }
}

TEST(AForkedChildLoadsPagesToo) {
  const DroppedFile file(64 * kMB);
  const Mapping mapping(file.path(), "a file");
  mapping.load_ahead(0, 8 * kMB);
  mapping.load_ahead(8 * kMB + 12, 16 * kMB);  // a reader may leave out a few bytes
  const pid_t child = fork();
  if (child == 0) {
    const Mapping own(file.path(), "a file");
    own.load_ahead(0, 16 * kMB);
    own.load_ahead(16 * kMB, 32 * kMB);
    _exit(!supported() || until([&] { return loaded(own)[60]; }) ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  CHECK_EQ(status, 0);
}

}  // namespace
}  // namespace recmap
#endif
