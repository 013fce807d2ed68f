#include "shuffle.h"

#include <algorithm>
#include <cstring>

namespace recmap {
namespace {

// The compiler makes vector instructions of this if it knows the size.
template <size_t kSize>
void interleave(const uint8_t* planes, size_t count, uint8_t* items) {
  for (size_t i = 0; i < count; ++i) {
    for (size_t plane = 0; plane < kSize; ++plane) {
      items[i * kSize + plane] = planes[plane * count + i];
    }
  }
}

// In blocks that stay in the cache, because items of many bytes touch many planes.
void interleave_any(const uint8_t* planes, size_t count, size_t size, uint8_t* items) {
  constexpr size_t kBlock = 64;
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t end = std::min(begin + kBlock, count);
    for (size_t plane = 0; plane < size; ++plane) {
      const uint8_t* const from = planes + plane * count;
      for (size_t i = begin; i < end; ++i) items[i * size + plane] = from[i];
    }
  }
}

}  // namespace

bool unshuffle(Bytes planes, size_t item_size, std::span<uint8_t> items) {
  if (item_size == 0 || planes.size() != items.size()) return false;
  const size_t count = planes.size() / item_size;
  const size_t whole = count * item_size;
  switch (item_size) {
    case 1:
      break;
    case 2:
      interleave<2>(planes.data(), count, items.data());
      break;
    case 4:
      interleave<4>(planes.data(), count, items.data());
      break;
    case 8:
      interleave<8>(planes.data(), count, items.data());
      break;
    default:
      interleave_any(planes.data(), count, item_size, items.data());
  }
  const size_t copied = item_size == 1 ? 0 : whole;
  if (copied != planes.size()) {
    std::memcpy(items.data() + copied, planes.data() + copied, planes.size() - copied);
  }
  return true;
}

uint32_t fletcher32(Bytes data) {
  // So many words that the sums stay below 2^32.
  constexpr size_t kWords = 360;
  uint32_t low = 0, high = 0;
  size_t at = 0;
  for (size_t words = data.size() / 2; words != 0;) {
    const size_t some = std::min(words, kWords);
    words -= some;
    for (size_t i = 0; i < some; ++i, at += 2) {
      low += static_cast<uint32_t>(data[at] << 8 | data[at + 1]);
      high += low;
    }
    low = (low & 0xffff) + (low >> 16);
    high = (high & 0xffff) + (high >> 16);
  }
  if (at < data.size()) {
    low += static_cast<uint32_t>(data[at] << 8);
    high += low;
    low = (low & 0xffff) + (low >> 16);
    high = (high & 0xffff) + (high >> 16);
  }
  low = (low & 0xffff) + (low >> 16);
  high = (high & 0xffff) + (high >> 16);
  return high << 16 | low;
}

}  // namespace recmap
