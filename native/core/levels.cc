#include "levels.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace recmap {
namespace {

// Reads a varint; false if the bytes end, or it is longer than any that counts levels.
bool read_head(Bytes levels, size_t& at, uint64_t& head) {
  head = 0;
  for (int shift = 0; shift < 63; shift += 7) {
    if (at == levels.size()) return false;
    const uint8_t byte = levels[at++];
    head |= static_cast<uint64_t>(byte & 127) << shift;
    if (byte < 128) return true;
  }
  return false;
}

// Counts the zeros among the first `count` of eight levels, which take `bits` bytes.
int64_t zeros_of_eight(const uint8_t* packed, int64_t count, int bits) {
  uint64_t word = 0;
  for (int i = 0; i < bits; ++i) word |= static_cast<uint64_t>(packed[i]) << (8 * i);
  if (bits == 1 && count == 8) return 8 - std::popcount(word);
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  int64_t zeros = 0;
  for (int64_t i = 0; i < count; ++i) zeros += ((word >> (i * bits)) & mask) == 0 ? 1 : 0;
  return zeros;
}

}  // namespace

int64_t count_zero_levels(Bytes levels, int64_t count, int bits) {
  int64_t zeros = 0;
  size_t at = 0;
  while (count > 0) {
    uint64_t head = 0;
    if (!read_head(levels, at, head) || head >> 1 == 0) return -1;
    const uint64_t times = head >> 1;
    if ((head & 1) == 0) {
      if (at == levels.size()) return -1;
      const auto some = static_cast<int64_t>(std::min<uint64_t>(times, count));
      if (levels[at++] == 0) zeros += some;
      count -= some;
      continue;
    }
    for (uint64_t group = 0; group < times && count > 0; ++group) {
      if (levels.size() - at < static_cast<size_t>(bits)) return -1;
      const int64_t some = std::min<int64_t>(8, count);
      zeros += zeros_of_eight(levels.data() + at, some, bits);
      at += static_cast<size_t>(bits);
      count -= some;
    }
  }
  return zeros;
}

}  // namespace recmap
