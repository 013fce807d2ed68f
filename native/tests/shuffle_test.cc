// The filters of chunks.
#include "shuffle.h"

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
