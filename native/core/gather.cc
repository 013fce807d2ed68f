#include "gather.h"

#include <algorithm>
#include <cstring>

#include "copy_cache_lines.h"
#include "parallel.h"

namespace recmap {
namespace {

// This many short rows are fetched from memory before they are copied: many cache misses at once
// take hardly longer than one. They are fetched by reading, because a CPU may ignore a prefetch
// whose page it would have to look up first.
constexpr size_t kRowsAtOnce = 64;
// Rows of a few pages end before the CPU notices that they are read in order, so all lines of the
// row this far ahead are prefetched.
constexpr size_t kPrefetchDistance = 2;
// A block of this many bytes is worth handing to a thread.
constexpr size_t kBlockBytes = size_t{1} << 20;

class Gather {
 public:
  Gather(std::span<const uint8_t> from, size_t row_bytes, std::span<const int64_t> rows,
         std::span<uint8_t> to)
      : from_(from), row_bytes_(row_bytes), rows_(rows), to_(to) {}

  void copy(size_t begin, size_t end) const {
    if (row_bytes_ < kLong) {
      for (size_t at = begin; at < end; at += kRowsAtOnce) {
        copy_short(at, std::min(at + kRowsAtOnce, end));
      }
      return;
    }
    for (size_t i = begin; i < end; ++i) {
      if (row_bytes_ <= kLongest) {
        copy_cache_lines_prefetching(out(i), row(i), row_bytes_,
                                     row(std::min(i + kPrefetchDistance, end - 1)));
      } else {
        copy_cache_lines(out(i), row(i), row_bytes_);
      }
    }
  }

 private:
  static constexpr size_t kLong = 1024;
  static constexpr size_t kLongest = 16384;
  static constexpr size_t kLine = 64;

  const uint8_t* row(size_t i) const {
    return from_.data() + static_cast<size_t>(rows_[i]) * row_bytes_;
  }

  uint8_t* out(size_t i) const { return to_.data() + i * row_bytes_; }

  void copy_short(size_t begin, size_t end) const {
    for (size_t i = begin; i < end; ++i) touch(i);
    for (size_t i = begin; i < end; ++i) std::memcpy(out(i), row(i), row_bytes_);
  }

  // Reads the first lines; the CPU notices by itself if more of them are read.
  void touch(size_t i) const {
    const uint8_t* from = row(i);
    const size_t bytes = std::min(row_bytes_, 4 * kLine);
    for (size_t at = 0; at < bytes; at += kLine) read(from + at);
    read(from + bytes - 1);
  }

  static void read(const uint8_t* from) {
    static_cast<void>(*static_cast<const volatile uint8_t*>(from));
  }

  std::span<const uint8_t> from_;
  size_t row_bytes_;
  std::span<const int64_t> rows_;
  std::span<uint8_t> to_;
};

}  // namespace

bool gather_rows(std::span<const uint8_t> from, size_t row_bytes, std::span<const int64_t> rows,
                 std::span<uint8_t> to, size_t threads) {
  if (row_bytes == 0 || to.size() / row_bytes != rows.size() || to.size() % row_bytes != 0) {
    return false;
  }
  const size_t count = from.size() / row_bytes;
  const auto inside = [count](int64_t row) { return static_cast<uint64_t>(row) < count; };
  if (!std::all_of(rows.begin(), rows.end(), inside)) return false;
  const Gather gather(from, row_bytes, rows, to);
  const size_t block = std::max<size_t>(1, kBlockBytes / row_bytes);
  parallel_blocks(rows.size(), block, threads,
                  [&](size_t begin, size_t end) { gather.copy(begin, end); });
  return true;
}

}  // namespace recmap
