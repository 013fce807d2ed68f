// Ragged columns that are padded while they are read.
#include <cstdint>
#include <vector>

#include "check.h"
#include "decode_all.h"
#include "wire_builder.h"

namespace recmap {
namespace {

using wire::Buffer;
using wire::entry;
using wire::example;
using wire::feature_list;
using wire::floats;
using wire::ints;
using wire::lists;

using Arrays = std::vector<std::vector<int16_t>>;

Buffer row(const Buffer& feature) { return example(entry("x", feature)); }

// 1 2 3 | | 4 | 5 6 | 7
std::vector<Buffer> five_rows() {
  return {row(ints({1, 2, 3})), example(), row(ints({4})), row(ints({5, 6})), row(ints({7}))};
}

DecodedArrays read(const std::vector<Buffer>& records, const Column& column, size_t width,
                   PadSides sides, Bytes fill, size_t rows = 2) {
  const Buffer file = wire::framed(records);
  return decode_padded(file, wire::offsets_of(records), column, width, rows, sides, fill, [] {});
}

Arrays padded(size_t width, PadSides sides) {
  const std::vector<uint8_t> fill = {9, 0};
  const DecodedArrays decoded =
      read(five_rows(), column_of("x", Dtype::kInt16, 1, 1), width, sides, fill);
  CHECK(!decoded.fault);
  CHECK((decoded.outer == std::vector<int64_t>{0, 3, 3, 4, 6, 7}));
  Arrays arrays;
  for (const std::vector<uint8_t>& array : decoded.arrays) {
    arrays.push_back(numbers<int16_t>({array, {}, {}, {}}));
  }
  return arrays;
}

TEST(RowsAreReadIntoArraysOfOneWidth) {
  CHECK((padded(3, {}) == Arrays{{1, 2, 3, 9, 9, 9}, {4, 9, 9, 5, 6, 9}, {7, 9, 9}}));
  CHECK((padded(3, {.fill_left = true}) ==
         Arrays{{1, 2, 3, 9, 9, 9}, {9, 9, 4, 9, 5, 6}, {9, 9, 7}}));
}

TEST(RowsThatAreTooLongAreCutOnEitherSide) {
  CHECK((padded(2, {}) == Arrays{{1, 2, 9, 9}, {4, 9, 5, 6}, {7, 9}}));
  CHECK((padded(2, {.keep_last = true}) == Arrays{{2, 3, 9, 9}, {4, 9, 5, 6}, {7, 9}}));
  CHECK((padded(1, {.fill_left = true, .keep_last = true}) == Arrays{{3, 9}, {4, 6}, {7}}));
  CHECK((padded(0, {}) == Arrays{{}, {}, {}}));
}

TEST(ItemsOfSeveralValuesAndStepsOfListsArePaddedWhole) {
  Column pairs = column_of("x", Dtype::kFloat32, 2, 1);
  std::vector<uint8_t> fill(8);
  store_le(fill.data(), 8.0f);
  store_le(fill.data() + 4, 9.0f);
  const DecodedArrays flat =
      read({row(floats({1, 2, 3, 4})), row(floats({5, 6}))}, pairs, 2, {}, fill);
  CHECK((numbers<float>({flat.arrays.at(0), {}, {}, {}}) ==
         std::vector<float>{1, 2, 3, 4, 5, 6, 8, 9}));
  pairs.place = Column::Place::kLists;
  const Buffer steps = lists(entry("x", feature_list(floats({1, 2}), floats({3, 4}))));
  const DecodedArrays listed = read({steps}, pairs, 3, {}, fill);
  CHECK(
      (numbers<float>({listed.arrays.at(0), {}, {}, {}}) == std::vector<float>{1, 2, 3, 4, 8, 9}));
}

TEST(ValuesThatAreCutOffAreStillChecked) {
  // The value that does not fit int16 is one that is cut off.
  const Column column = column_of("x", Dtype::kInt16, 1, 1);
  const std::vector<uint8_t> fill = {0, 0};
  const Fault fault = read({row(ints({1})), row(ints({1, 70000}))}, column, 1, {}, fill).fault;
  CHECK_EQ(fault.code, FaultCode::kOutOfRange);
  CHECK_EQ(fault.row, 1u);
  CHECK_EQ(fault.found, 70000);
}

TEST(RowsThatGrowAfterTheyWereMeasuredAreRefused) {
  const std::vector<Buffer> records = {row(ints({1, 2, 300}))};
  Buffer file = wire::framed(records);
  const std::vector<uint8_t> fill = {0, 0};
  const DecodedArrays decoded =
      decode_padded(file, wire::offsets_of(records), column_of("x", Dtype::kInt16, 1, 1), 4, 1, {},
                    fill, [&] { file[file.size() - 6] = 3; });
  CHECK(decoded.fault);
}

TEST(TheLongestRowOfEachArrayIsKnownBeforeTheyAreRead) {
  const std::vector<Buffer> records = five_rows();
  const Buffer file = wire::framed(records);
  const std::vector<uint64_t> offsets = wire::offsets_of(records);
  const Column column = column_of("x", Dtype::kInt64, 1, 1);
  ColumnBuffers buffers;
  const IndexedFile indexed{.bytes = file};
  const auto longest = [&](size_t rows_per_array) {
    Decoder decoder({{&indexed, 1}, offsets}, {&column, 1}, {.threads = 2}, rows_per_array);
    CHECK(!decoder.parse({&buffers, 1}));
    std::vector<uint64_t> found;
    for (size_t row = 0; row < offsets.size(); row += rows_per_array) {
      found.push_back(decoder.longest(0, found.size()));
    }
    return found;
  };
  CHECK((longest(1) == std::vector<uint64_t>{3, 0, 1, 2, 1}));
  CHECK((longest(2) == std::vector<uint64_t>{3, 2, 1}));
  CHECK((longest(5) == std::vector<uint64_t>{3}));
}

}  // namespace
}  // namespace recmap
