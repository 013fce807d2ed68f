// The filters of chunks.
#include "shuffle.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "check.h"

namespace recmap {
namespace {

using Buffer = std::vector<uint8_t>;

Buffer counted(size_t n) {
  Buffer bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<uint8_t>(i * 37 + i / 7);
  return bytes;
}

// What the filter does, one byte at a time.
Buffer shuffled(const Buffer& items, size_t size) {
  Buffer planes;
  const size_t count = items.size() / size;
  for (size_t plane = 0; plane < size; ++plane) {
    for (size_t i = 0; i < count; ++i) planes.push_back(items[i * size + plane]);
  }
  planes.insert(planes.end(), items.begin() + static_cast<std::ptrdiff_t>(count * size),
                items.end());
  return planes;
}

TEST(ItemsOfAnySizeAreUnshuffled) {
  for (const size_t size : {1, 2, 3, 4, 5, 8, 12, 16, 100}) {
    for (const size_t bytes : {0, 1, 7, 64, 800, 1003}) {
      const Buffer items = counted(bytes);
      Buffer out(bytes);
      CHECK(unshuffle(shuffled(items, size), size, out));
      CHECK(out == items);
    }
  }
}

// What bitshuffle does with a block, one bit at a time.
Buffer bitshuffled(const Buffer& items, size_t size) {
  const size_t count = items.size() / size;
  Buffer planes(items.size());
  for (size_t bit = 0; bit < size * 8; ++bit) {
    for (size_t i = 0; i < count; ++i) {
      const int one = items[i * size + bit / 8] >> (bit % 8) & 1;
      planes[bit * (count / 8) + i / 8] |= static_cast<uint8_t>(one << (i % 8));
    }
  }
  return planes;
}

TEST(BitsOfItemsOfAnySizeAreUnshuffled) {
  for (const size_t size : {1, 2, 3, 4, 8, 13}) {
    for (const size_t count : {0, 7, 8, 24, 100, 131}) {
      const Buffer items = counted(count * size + (size > 1));
      Buffer planes;
      constexpr size_t kBlock = 32;
      size_t at = 0;
      for (size_t left = count / 8 * 8; left != 0;) {
        const size_t some = std::min(left, kBlock) * size;
        const auto begin = items.begin() + static_cast<std::ptrdiff_t>(at);
        const Buffer block =
            bitshuffled(Buffer(begin, begin + static_cast<std::ptrdiff_t>(some)), size);
        planes.insert(planes.end(), block.begin(), block.end());
        at += some;
        left -= some / size;
      }
      planes.insert(planes.end(), items.begin() + static_cast<std::ptrdiff_t>(at), items.end());
      Buffer out(items.size());
      CHECK(unbitshuffle(planes, size, kBlock, out));
      CHECK(out == items);
    }
  }
  Buffer eight(8);
  Buffer out(8);
  CHECK(!unbitshuffle(eight, 1, 4, out));
  CHECK(!unbitshuffle(eight, 1, 0, out));
  CHECK(!unbitshuffle(eight, 0, 8, out));
}

TEST(ItemsWithoutBytesAndOtherSizesAreRefused) {
  const Buffer planes(8);
  Buffer out(7);
  CHECK(!unshuffle(planes, 4, out));
  out.resize(8);
  CHECK(!unshuffle(planes, 0, out));
}

TEST(Fletcher32IsThatOfHdf5) {
  const Buffer text{'a', 'b', 'c', 'd', 'e'};
  CHECK_EQ(fletcher32(text), 0x4ff029c7u);
  CHECK_EQ(fletcher32(Buffer{}), 0u);
  // All ones sum up to all ones, however many they are.
  for (const size_t bytes : {2, 720, 722, 100000}) {
    CHECK_EQ(fletcher32(Buffer(bytes, 0xff)), 0xffffffffu);
  }
}

}  // namespace
}  // namespace recmap
