#include "lzf.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "check.h"
#include "wire_builder.h"

namespace recmap {
namespace {

using wire::Buffer;
using wire::join;

Buffer literals(const Buffer& bytes) {
  return join(Buffer{static_cast<uint8_t>(bytes.size() - 1)}, bytes);
}

// An item that repeats `n` bytes from `distance` before.
Buffer again(size_t n, size_t distance) {
  const size_t length = n - 2;
  const auto high = static_cast<uint8_t>((distance - 1) >> 8);
  const auto low = static_cast<uint8_t>(distance - 1);
  if (length < 7) return {static_cast<uint8_t>(length << 5 | high), low};
  return {static_cast<uint8_t>(0xe0 | high), static_cast<uint8_t>(length - 7), low};
}

// Into an allocation of exactly the size, from one of exactly the size, so that the
// sanitizer sees every byte beyond.
struct Expanded {
  Expanded(const Buffer& stream, size_t size) : bytes(size) {
    const Buffer exact(stream);
    const LzfResult result = lzf_expand(exact, bytes);
    fault = result.fault;
    made = result.made;
  }

  Buffer bytes;
  LzfFault fault;
  size_t made;
};

Buffer counted(size_t n) {
  Buffer bytes(n);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  return bytes;
}

// What the items mean, one byte at a time.
Buffer repeated(Buffer bytes, size_t n, size_t distance) {
  for (size_t i = 0; i < n; ++i) bytes.push_back(bytes[bytes.size() - distance]);
  return bytes;
}

TEST(LzfOfNothingIsNothing) {
  CHECK(Expanded({}, 0).fault == LzfFault::kNone);
  CHECK(Expanded({}, 1).fault == LzfFault::kTooShort);
}

TEST(LzfLiteralsOfEveryLength) {
  for (size_t n = 1; n <= 32; ++n) {
    for (const size_t more : {size_t{0}, size_t{1}, size_t{64}}) {
      Buffer stream = literals(counted(n)), bytes = counted(n);
      for (size_t i = 0; i < more; ++i) {
        stream = join(stream, literals({7}));
        bytes.push_back(7);
      }
      const Expanded found(stream, bytes.size());
      CHECK(found.fault == LzfFault::kNone);
      CHECK(found.bytes == bytes);
    }
  }
}

TEST(LzfRepeatsOfEveryDistanceAndLength) {
  const Buffer begin = counted(40);
  const Buffer stream =
      join(literals(counted(32)), literals(Buffer(begin.begin() + 32, begin.end())));
  for (size_t distance = 1; distance <= begin.size(); ++distance) {
    for (const size_t n : {3, 4, 8, 9, 15, 16, 17, 100, 263, 264}) {
      for (const bool last : {true, false}) {
        Buffer whole = join(stream, again(n, distance));
        Buffer bytes = repeated(begin, n, distance);
        if (!last) {
          whole = join(whole, literals(counted(32)));
          bytes = join(bytes, counted(32));
        }
        const Expanded found(whole, bytes.size());
        CHECK(found.fault == LzfFault::kNone);
        CHECK(found.bytes == bytes);
      }
    }
  }
}

TEST(LzfRepeatsFromFarBefore) {
  Buffer stream = literals(counted(32)), bytes = counted(32);
  while (bytes.size() < 8192) {
    stream = join(stream, again(264, 31));
    bytes = repeated(bytes, 264, 31);
  }
  stream = join(stream, again(264, 8192));
  bytes = repeated(bytes, 264, 8192);
  const Expanded found(stream, bytes.size());
  CHECK(found.fault == LzfFault::kNone);
  CHECK(found.bytes == bytes);
}

TEST(LzfOneByteLessIsTooLongAndOneMoreTooShort) {
  const Buffer stream = join(literals({1, 2, 3}), again(10, 3));
  CHECK(Expanded(stream, 13).fault == LzfFault::kNone);
  const Expanded less(stream, 12);
  CHECK(less.fault == LzfFault::kTooLong);
  CHECK_EQ(less.made, 3);
  CHECK(Expanded(stream, 2).fault == LzfFault::kTooLong);
  CHECK(Expanded(stream, 0).fault == LzfFault::kTooLong);
  const Expanded more(stream, 14);
  CHECK(more.fault == LzfFault::kTooShort);
  CHECK_EQ(more.made, 13);
}

TEST(LzfCutAtEveryByteFails) {
  const Buffer stream =
      join(literals(counted(9)), again(5, 2), again(264, 9), literals({1}), again(9, 270));
  const size_t size = 9 + 5 + 264 + 1 + 9;
  CHECK(Expanded(stream, size).fault == LzfFault::kNone);
  for (size_t left = 0; left < stream.size(); ++left) {
    const LzfFault fault = Expanded(Buffer(stream.begin(), stream.begin() + left), size).fault;
    CHECK(fault == LzfFault::kCut || fault == LzfFault::kTooShort);
  }
}

TEST(LzfRepeatBeforeTheStartFails) {
  CHECK(Expanded(again(3, 1), 3).fault == LzfFault::kBeforeStart);
  CHECK(Expanded(join(literals({1, 2}), again(3, 3)), 5).fault == LzfFault::kBeforeStart);
  CHECK(Expanded(join(literals({1, 2}), again(264, 8192)), 266).fault == LzfFault::kBeforeStart);
  CHECK(Expanded(join(literals({1, 2}), again(3, 2)), 5).fault == LzfFault::kNone);
}

TEST(LzfGrowsNoMoreThanItCan) {
  Buffer stream = literals({1});
  for (int i = 0; i < 1000; ++i) stream = join(stream, again(264, 1));
  const Expanded found(stream, 1 + 264 * 1000);
  CHECK(found.fault == LzfFault::kNone);
  CHECK(found.bytes.size() <= stream.size() * kLzfMostGrowth);
  CHECK(std::ranges::all_of(found.bytes, [](uint8_t byte) { return byte == 1; }));
}

}  // namespace
}  // namespace recmap
