// Asking the system for parts of mapped files before they are read.
#pragma once

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "wire.h"

namespace recmap {

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

}  // namespace recmap
