// Mapped files that are truncated while they are read.
#include "truncation_guard.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <string>

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
  CHECK(!truncated_file(before));
  CHECK_EQ(truncate(file.path().c_str(), static_cast<off_t>(3 * page)), 0);
  {
    const TruncationGuard guard;
    CHECK_EQ(sum(mapping.bytes()), 3 * page);
  }
  CHECK_EQ(truncations_seen(), before + 1);
  const auto cut = truncated_file(before);
  CHECK(cut.has_value());
  CHECK_EQ(cut->name, "a file");
  CHECK_EQ(cut->size, 8 * page);
  CHECK_EQ(cut->end, 3 * page);
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
  std::atomic<uint64_t> total{0};
  parallel_blocks(64, 1, 4, [&](size_t begin, size_t end) {
    total += sum(mapping.bytes().subspan(begin * page, (end - begin) * page));
  });
  CHECK_EQ(total.load(), uint64_t{0});
}

TEST(MappingsAreUnregistered) {
  const TemporaryFile file(page_size());
  for (int i = 0; i < 3000; ++i) const Mapping mapping(file.path(), "a file");
  CHECK(!truncated_file(truncations_seen()));
}

}  // namespace
}  // namespace recmap
