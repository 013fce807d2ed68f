// Copying by whole cache lines, without other stores in between: a CPU stops reading the lines it
// overwrites only after several whole ones in a row, and then copies twice as fast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace recmap {

inline void copy_cache_line(uint8_t* to, const uint8_t* from) {
  // Not one memcpy, for which compilers use so many registers that they spill to the stack.
  using Vector = uint64_t __attribute__((vector_size(16)));
  Vector parts[4];
  for (size_t i = 0; i < 4; ++i) std::memcpy(&parts[i], from + i * sizeof(Vector), sizeof(Vector));
  for (size_t i = 0; i < 4; ++i) std::memcpy(to + i * sizeof(Vector), &parts[i], sizeof(Vector));
}

// Copies n bytes. The ranges must not overlap.
inline void copy_cache_lines(uint8_t* to, const uint8_t* from, size_t n) {
  for (; n >= 64; to += 64, from += 64, n -= 64) copy_cache_line(to, from);
  for (; n >= 8; to += 8, from += 8, n -= 8) std::memcpy(to, from, 8);
  for (; n != 0; --n) *to++ = *from++;
}

// The same, and prefetches the n bytes at `next`, which are copied soon.
inline void copy_cache_lines_prefetching(uint8_t* to, const uint8_t* from, size_t n,
                                         const uint8_t* next) {
  size_t at = 0;
  for (; at + 64 <= n; at += 64) {
    __builtin_prefetch(next + at);
    copy_cache_line(to + at, from + at);
  }
  copy_cache_lines(to + at, from + at, n - at);
}

}  // namespace recmap
