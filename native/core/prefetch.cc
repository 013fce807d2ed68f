#include "prefetch.h"

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <algorithm>

#include "locate.h"

namespace recmap {
namespace {

#if defined(__linux__)
// The pages of a span of mapped memory.
struct Pages {
  uint8_t* begin;
  size_t size;

  explicit Pages(Bytes bytes) {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto data = reinterpret_cast<uintptr_t>(bytes.data());
    const uintptr_t first = data / page * page;
    begin = reinterpret_cast<uint8_t*>(first);
    size = data + bytes.size() - first;
  }

  bool first_is_in_memory() const {
    unsigned char resident = 0;
    return mincore(begin, 1, &resident) != 0 || (resident & 1) != 0;
  }

  void request() const { madvise(begin, size, MADV_WILLNEED); }
};
#endif

// Asks for span_of(0), span_of(1), ... if one of a few of them is not in memory.
template <typename SpanOf>
bool prefetch_spans(size_t count, SpanOf&& span_of) {
#if defined(__linux__)
  constexpr size_t kTried = 8;
  const size_t step = std::max<size_t>(1, count / kTried);
  bool absent = false;
  for (size_t i = 0; i < count && !absent; i += step) {
    const Bytes bytes = span_of(i);
    absent = !bytes.empty() && !Pages(bytes).first_is_in_memory();
  }
  for (size_t i = 0; i < count && absent; ++i) {
    if (const Bytes bytes = span_of(i); !bytes.empty()) Pages(bytes).request();
  }
  return absent;
#else
  return static_cast<void>(count), static_cast<void>(span_of), false;
#endif
}

}  // namespace

bool prefetch_rows(Bytes array, size_t row_bytes, std::span<const int64_t> rows) {
  if (row_bytes == 0) return false;
  return prefetch_spans(rows.size(), [&](size_t i) {
    const auto row = static_cast<uint64_t>(rows[i]);
    return row < array.size() / row_bytes ? array.subspan(row * row_bytes, row_bytes) : Bytes{};
  });
}

bool prefetch_records(std::span<const IndexedFile> files, std::span<const uint32_t> owners,
                      std::span<const int64_t> rows) {
  // Of a longer span of several records only the beginning, where the search for the row begins.
  constexpr size_t kLongestSpan = size_t{4} << 20;
  return prefetch_spans(rows.size(), [&](size_t i) {
    const IndexedFile& file = files[owners.empty() ? 0 : owners[i]];
    const Bytes bytes = locate_span(file, static_cast<uint64_t>(rows[i]));
    const auto anchors = file.anchor_rows;
    const bool one_record =
        file.stride != 0 || (anchors.size() > 1 && anchors[1] == anchors[0] + 1);
    return one_record || bytes.size() <= kLongestSpan ? bytes : bytes.first(kHeaderSize);
  });
}

}  // namespace recmap
