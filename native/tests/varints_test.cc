#include "varints.h"

#include <cstdint>
#include <vector>

#include "check.h"
#include "wire_builder.h"

namespace recmap {
namespace {

using wire::Buffer;

// The values, read into an allocation of exactly their size.
template <typename T>
struct Read {
  explicit Read(const Buffer& packed, size_t room) : values(room) {
    const Buffer exact(packed);
    auto* const out = reinterpret_cast<uint8_t*>(values.data());
    VarintReader<T> reader(exact, out, out + room * sizeof(T));
    code = reader.read();
    count = static_cast<size_t>(reader.out() - out) / sizeof(T);
    refused = reader.refused();
  }

  std::vector<T> values;
  FaultCode code;
  size_t count;
  int64_t refused;
};

// Numbers of 1 to `most` bytes, in random order.
std::vector<int64_t> numbers_up_to(int most, size_t count) {
  std::vector<int64_t> numbers;
  uint64_t state = 0x9e3779b97f4a7c15u;
  for (size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const int bits = 7 * (static_cast<int>(state >> 40) % most + 1);
    numbers.push_back(
        static_cast<int64_t>(bits >= 64 ? state : state & ((uint64_t{1} << bits) - 1)));
  }
  return numbers;
}

TEST(VarintsOfEveryLengthAndNumber) {
  for (int most = 1; most <= 10; ++most) {
    for (size_t count = 0; count <= 150; ++count) {
      const std::vector<int64_t> numbers = numbers_up_to(most, count);
      const Buffer packed = wire::varints(numbers);
      CHECK_EQ(count_varints(packed), count);
      const Read<int64_t> read(packed, count);
      CHECK_EQ(read.code, FaultCode::kNone);
      CHECK(read.values == numbers);
    }
  }
}

TEST(LongVarintsAmongShortOnes) {
  for (size_t place = 0; place < 300; ++place) {
    std::vector<int64_t> numbers = numbers_up_to(4, 300);
    numbers[place] = -1;
    numbers[(place + 7) % 300] = int64_t{1} << 40;
    const Read<int64_t> read(wire::varints(numbers), 300);
    CHECK_EQ(read.code, FaultCode::kNone);
    CHECK(read.values == numbers);
  }
}

TEST(NothingIsWrittenAfterTheLastVarint) {
  // Like a row of a column: other threads write before and after it.
  for (size_t count = 0; count <= 100; ++count) {
    const std::vector<int64_t> numbers = numbers_up_to(3, count);
    const Buffer packed = wire::varints(numbers);
    std::vector<int32_t> row(count + 8, 77);
    auto* const out = reinterpret_cast<uint8_t*>(row.data());
    VarintReader<int32_t> reader(packed, out, out + 4 * count);
    CHECK_EQ(reader.read(), FaultCode::kNone);
    for (size_t i = 0; i < count; ++i) CHECK_EQ(row[i], numbers[i]);
    for (size_t i = count; i < row.size(); ++i) CHECK_EQ(row[i], 77);
  }
}

TEST(MoreRoomThanNeededIsFine) {
  for (size_t count = 0; count <= 100; ++count) {
    const std::vector<int64_t> numbers = numbers_up_to(3, count);
    const Read<int64_t> read(wire::varints(numbers), count + 40);
    CHECK_EQ(read.code, FaultCode::kNone);
    CHECK_EQ(read.count, count);
    for (size_t i = 0; i < count; ++i) CHECK_EQ(read.values[i], numbers[i]);
  }
}

TEST(VarintsThatAreCutOffAreMalformed) {
  for (size_t size = 1; size < 100; ++size) {
    Buffer packed(size, 0x01);
    packed.push_back(0x80);
    CHECK_EQ(Read<int64_t>(packed, size + 1).code, FaultCode::kMalformed);
    CHECK_EQ(Read<int64_t>(packed, size + 60).code, FaultCode::kMalformed);
  }
}

TEST(VarintsNarrowToTheirType) {
  const std::vector<int64_t> numbers = numbers_up_to(1, 100);
  const Read<uint8_t> bytes(wire::varints(numbers), 100);
  CHECK_EQ(bytes.code, FaultCode::kNone);
  for (size_t i = 0; i < 100; ++i) CHECK_EQ(bytes.values[i], numbers[i]);
  const Read<int32_t> words(wire::varints(numbers_up_to(4, 100)), 100);
  CHECK_EQ(words.code, FaultCode::kNone);
  for (size_t i = 0; i < 100; ++i) CHECK_EQ(words.values[i], numbers_up_to(4, 100)[i]);
}

TEST(TheFirstVarintOutOfRangeIsRefused) {
  for (size_t bad = 0; bad < 60; ++bad) {
    std::vector<int64_t> numbers(60, 5);
    numbers[bad] = 200;
    if (bad + 1 < 60) numbers[bad + 1] = 300;
    const Read<int8_t> read(wire::varints(numbers), 60);
    CHECK_EQ(read.code, FaultCode::kOutOfRange);
    CHECK_EQ(read.refused, 200);
    CHECK_EQ(read.count, bad);
    numbers[bad] = -1;
    const Read<uint64_t> negative(wire::varints(numbers), 60);
    CHECK_EQ(negative.code, FaultCode::kOutOfRange);
    CHECK_EQ(negative.refused, -1);
  }
}

TEST(TooLittleRoomIsNoticed) {
  const Buffer packed = wire::varints(numbers_up_to(3, 80));
  for (size_t room = 0; room < 80; ++room) {
    CHECK_EQ(Read<int64_t>(packed, room).code, FaultCode::kChanged);
  }
}

TEST(EndlessVarintsAreMalformed) {
  for (size_t size = 1; size < 100; ++size) {
    CHECK_EQ(Read<int64_t>(Buffer(size, 0x80), 100).code, FaultCode::kMalformed);
    Buffer ended(size, 0x80);
    ended.push_back(0x00);
    const FaultCode expected = size < 10 ? FaultCode::kNone : FaultCode::kMalformed;
    CHECK_EQ(Read<int64_t>(ended, 100).code, expected);
    ended.insert(ended.end(), 80, 0x01);
    CHECK_EQ(Read<int64_t>(ended, 100).code, expected);
  }
}

}  // namespace
}  // namespace recmap
