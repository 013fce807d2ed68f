#include "parquet.h"

#include <cstdint>
#include <string_view>

#include "check.h"
#include "wire_builder.h"

namespace recmap {
namespace {

using wire::Buffer;
using wire::join;

int64_t zeros(const Buffer& levels, int64_t count, int bits) {
  const Buffer exact(levels);
  return count_zero_levels(exact, count, bits);
}

TEST(LevelsInRunsOfOneValue) {
  CHECK(zeros({10 << 1, 0, 4 << 1, 1}, 14, 1) == 10);
  CHECK(zeros({10 << 1, 0}, 7, 1) == 7);
}

TEST(LevelsOfPackedBits) {
  CHECK(zeros({1 << 1 | 1, 0b00000101}, 8, 1) == 6);
  CHECK(zeros({1 << 1 | 1, 0b00000101}, 3, 1) == 1);
  CHECK(zeros({1 << 1 | 1, 0b11100100, 0b00000000}, 8, 2) == 5);
}

TEST(LevelsThatAreTooFew) {
  CHECK(zeros({}, 1, 1) == -1);
  CHECK(zeros({0}, 1, 1) == -1);
  CHECK(zeros({2 << 1}, 1, 1) == -1);
  CHECK(zeros({2 << 1 | 1, 0xff}, 16, 1) == -1);
  CHECK(zeros({0xff, 0xff}, 1, 1) == -1);
}

// Fields in Thrift's compact protocol, each with the number of the one before it plus `step`.
Buffer number(int step, uint8_t value) {  // zigzag: twice the number
  return {static_cast<uint8_t>(step << 4 | 6), static_cast<uint8_t>(2 * value)};
}
Buffer inside(int step, const Buffer& fields) {
  return join(Buffer{static_cast<uint8_t>(step << 4 | 12)}, fields, Buffer{0});
}
Buffer listed(int step, uint8_t count, const Buffer& structs) {
  return join(Buffer{static_cast<uint8_t>(step << 4 | 9), static_cast<uint8_t>(count << 4 | 12)},
              structs);
}

// A column of type 6 and codec 1, with 9 values, 40 bytes, stored in 30 from byte 4 on.
Buffer column(const Buffer& more) {
  const Buffer about = join(number(1, 6), number(3, 1), number(1, 9), number(1, 40), number(1, 30),
                            number(2, 10), number(2, 4), more);
  return join(inside(3, about), Buffer{0});
}
Buffer footer(const Buffer& columns, uint8_t count) {
  const Buffer group = join(listed(1, count, columns), number(2, 3), Buffer{0});
  return join(number(3, 3), listed(1, 1, group), Buffer{0});
}

TEST(ChunksOfAFooter) {
  const Buffer texts = inside(5, number(1, 25));
  const auto found = read_parquet_chunks(footer(join(column({}), column(texts)), 2));
  CHECK(found.has_value() && found->size() == 2);
  const ParquetChunk& first = found->front();
  CHECK(first.group == 0 && first.type == 6 && first.codec == 1 && first.values == 9);
  CHECK(first.size == 40 && first.begin == 4 && first.end == 34 && first.has_dictionary == 1);
  CHECK(first.text == -1 && found->back().text == 25);
}

TEST(FootersThatAreMalformed) {
  const Buffer sound = footer(column({}), 1);
  for (size_t size = 0; size < sound.size(); ++size) {
    CHECK(!read_parquet_chunks(Buffer(sound.begin(), sound.begin() + static_cast<int>(size))));
  }
  CHECK(!read_parquet_chunks(footer(column(number(4, 1)), 2)));  // two, but only one there
  CHECK(!read_parquet_chunks(footer(Buffer{0}, 1)));             // says nothing
  CHECK(!read_parquet_chunks(footer(join(inside(3, {}), Buffer{0}), 1)));  // has no sizes
  Buffer deep(40, 0x1c);
  CHECK(!read_parquet_chunks(deep));
  CHECK(!read_parquet_chunks(Buffer{0x49, 0xfc, 0xff, 0xff, 0xff, 0x7f}));  // more than can be
}

TEST(HeadersOfPages) {
  const Buffer first = join(number(1, 0), number(1, 50), number(1, 20),
                            inside(2, join(number(1, 7), number(1, 8))), Buffer{0, 99});
  const auto data = read_parquet_page(first);
  CHECK(data.has_value() && data->header == static_cast<int64_t>(first.size() - 1));
  CHECK(data->kind == 0 && data->size == 50 && data->stored == 20 && data->values == 7);
  CHECK(data->rows == -1 && data->encoding == 8);
  const Buffer second = join(number(1, 3), number(1, 50), number(1, 20),
                             inside(5, join(number(1, 7), number(2, 2), number(1, 8))), Buffer{0});
  CHECK(read_parquet_page(second)->rows == 2);
  const Buffer words = join(number(1, 2), number(1, 50), number(1, 20),
                            inside(4, join(number(1, 7), number(1, 0))), Buffer{0});
  CHECK(read_parquet_page(words)->values == 0);
  for (size_t size = 0; size + 2 < first.size(); ++size) {
    CHECK(!read_parquet_page(Buffer(first.begin(), first.begin() + static_cast<int>(size))));
  }
  CHECK(!read_parquet_page(join(number(1, 0), Buffer{0x16, 1}, number(1, 20), Buffer{0})));
}

std::string_view front(const Buffer& stream, size_t size) {
  static Buffer out;
  out.assign(size, 0);
  const size_t made = snappy_front(stream, out);
  return {reinterpret_cast<const char*>(out.data()), made};
}

TEST(FrontOfASnappyStream) {
  // "abc", 5 bytes from 3 before, "z" with a length of its own byte, 4 bytes from 1 before.
  const Buffer stream = {13, 2 << 2, 'a',          'b', 'c', (1 << 2) | 1, 3, 60 << 2,
                         0,  'z',    (3 << 2) | 2, 1,   0};
  CHECK(front(stream, 13) == "abcabcabzzzzz");
  for (size_t size = 0; size < 13; ++size) {
    CHECK(front(stream, size) == std::string_view("abcabcabzzzzz").substr(0, size));
  }
  CHECK(front(stream, 20) == "abcabcabzzzzz");
}

TEST(SnappyStreamsThatAreMalformed) {
  CHECK(front({}, 5).empty());
  CHECK(front({5, 4 << 2, 'a'}, 5).empty());
  CHECK(front({5, 0, 'a', 1, 9}, 5) == "a");
  CHECK(front({5, 0, 'a', 1, 0}, 5) == "a");
  CHECK(front({5, 0, 'a', 63 << 2, 0xff, 0xff, 0xff}, 5) == "a");
}

}  // namespace
}  // namespace recmap
