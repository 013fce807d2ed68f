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

// Exchanges rows and columns of 8 x 8 bits.
uint64_t transposed(uint64_t bits) {
  uint64_t swapped = (bits ^ (bits >> 7)) & 0x00aa00aa00aa00aaull;
  bits ^= swapped ^ (swapped << 7);
  swapped = (bits ^ (bits >> 14)) & 0x0000cccc0000ccccull;
  bits ^= swapped ^ (swapped << 14);
  swapped = (bits ^ (bits >> 28)) & 0x00000000f0f0f0f0ull;
  return bits ^ swapped ^ (swapped << 28);
}

// Of items whose number is a multiple of 8.
void interleave_bits(const uint8_t* planes, size_t count, size_t size, uint8_t* items) {
  const size_t plane_size = count / 8;
  for (size_t eight = 0; eight < plane_size; ++eight) {
    uint8_t* const to = items + eight * 8 * size;
    for (size_t byte = 0; byte < size; ++byte) {
      const uint8_t* const from = planes + byte * count + eight;
      uint64_t bits = 0;
      for (size_t bit = 0; bit < 8; ++bit) {
        bits |= static_cast<uint64_t>(from[bit * plane_size]) << (8 * bit);
      }
      bits = transposed(bits);
      for (size_t item = 0; item < 8; ++item) {
        to[item * size + byte] = static_cast<uint8_t>(bits >> (8 * item));
      }
    }
  }
}

}  // namespace

bool unbitshuffle(Bytes planes, size_t item_size, size_t block_items, std::span<uint8_t> items) {
  if (item_size == 0 || planes.size() != items.size()) return false;
  if (block_items == 0 || block_items % 8 != 0) return false;
  size_t left = planes.size() / item_size / 8 * 8;
  size_t at = 0;
  while (left != 0) {
    const size_t some = std::min(left, block_items);
    interleave_bits(planes.data() + at, some, item_size, items.data() + at);
    left -= some;
    at += some * item_size;
  }
  if (at != planes.size()) std::memcpy(items.data() + at, planes.data() + at, planes.size() - at);
  return true;
}

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
