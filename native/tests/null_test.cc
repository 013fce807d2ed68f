// Rows that are null: a feature that is missing when it is read, and left out when it is written.
#include <cstdint>
#include <string>
#include <vector>

#include "check.h"
#include "decode_all.h"
#include "encode_all.h"
#include "wire_builder.h"

namespace recmap {
namespace {

using Mask = std::vector<uint8_t>;
using wire::Buffer;
using wire::entry;
using wire::example;
using wire::feature_list;
using wire::ints;
using wire::lists;
using wire::strings;

Column nullable_of(Dtype dtype, uint64_t count = 1, uint8_t ragged = 0) {
  Column column = column_of("x", dtype, count, ragged);
  column.nullable = true;
  if (ragged == 0) {
    column.has_fill = true;
    column.fill.assign(dtype == Dtype::kBytes ? 0 : count * column.itemsize, 0);
  }
  return column;
}

Buffer flat(const Buffer& message) { return example(entry("x", message)); }

DecodedColumn read(const std::vector<Buffer>& records, const Column& column, size_t threads) {
  const Buffer file = wire::framed(records);
  Decoded decoded = decode(file, wire::offsets_of(records), {&column, 1}, threads);
  CHECK(!decoded.fault);
  return decoded.columns[0];
}

TEST(AMissingOrEmptyFeatureIsANullRow) {
  const std::vector<Buffer> records = {flat(ints({7})), Buffer{},
                                       flat(ints({})),  flat({}),
                                       flat(ints({0})), example(entry("y", ints({1})))};
  for (const size_t threads : {1, 3}) {
    const DecodedColumn found = read(records, nullable_of(Dtype::kInt32), threads);
    CHECK((found.nulls == Mask{0, 1, 1, 1, 0, 1}));
    CHECK((numbers<int32_t>(found) == std::vector<int32_t>{7, 0, 0, 0, 0, 0}));
  }
}

TEST(ARowOfSeveralValuesIsNullAsAWhole) {
  const Column column = nullable_of(Dtype::kInt64, 2);
  const DecodedColumn found = read({flat(ints({1, 2})), Buffer{}, flat(ints({3, 4}))}, column, 1);
  CHECK((found.nulls == Mask{0, 1, 0}));
  CHECK((numbers<int64_t>(found) == std::vector<int64_t>{1, 2, 0, 0, 3, 4}));
  const Buffer record = flat(ints({1}));
  const Buffer file = wire::framed({record});
  const Decoded short_row = decode(file, wire::offsets_of({record}), {&column, 1});
  CHECK_EQ(short_row.fault.code, FaultCode::kWrongCount);
}

TEST(AnEmptyStringIsNotNull) {
  const DecodedColumn found =
      read({flat(strings({""})), Buffer{}, flat(strings({"a"}))}, nullable_of(Dtype::kBytes), 2);
  CHECK((found.nulls == Mask{0, 1, 0}));
  CHECK((texts(found) == std::vector<std::string>{"", "", "a"}));
}

TEST(AnEmptyListIsNotNull) {
  const DecodedColumn found =
      read({flat(ints({})), Buffer{}, flat(ints({1, 2}))}, nullable_of(Dtype::kInt16, 1, 1), 2);
  CHECK((found.nulls == Mask{0, 1, 0}));
  CHECK((found.outer == std::vector<int64_t>{0, 0, 0, 2}));
}

TEST(AFeatureListMayBeNull) {
  const DecodedColumn found = read({lists(entry("x", feature_list(ints({1}), ints({2})))), Buffer{},
                                    lists(entry("x", feature_list()))},
                                   nullable_of(Dtype::kInt64, 1, 1), 1);
  CHECK((found.nulls == Mask{0, 1, 0}));
  CHECK((numbers<int64_t>(found) == std::vector<int64_t>{1, 2}));
}

TEST(NullRowsAreLeftOutAndComeBack) {
  const std::vector<int64_t> whole = {1, 0, 3, 0};
  const std::vector<float> pairs = {1, 2, 0, 0, 5, 6, 7, 8};
  const std::vector<uint8_t> text = {'a', 'b', 'c'};
  const std::vector<int64_t> ends = {0, 1, 1, 3, 3}, outer = {0, 0, 2, 3, 4};
  const Mask first = {0, 1, 0, 1}, second = {0, 1, 0, 0}, third = {0, 0, 0, 1};
  std::vector<EncodeColumn> columns = {
      encode_dense("whole", Kind::kInt64, Dtype::kInt64, whole),
      encode_dense("pairs", Kind::kFloat, Dtype::kFloat32, pairs, 2),
      encode_strings("text", text, ends),
      encode_ragged("lists", Kind::kInt64, Dtype::kInt64, whole, outer)};
  columns[0].nulls = first;
  columns[1].nulls = second;
  columns[2].nulls = third;
  for (const size_t threads : {1, 3}) {
    const Encoded encoded = encode(columns, 4, 0, threads);
    CHECK(!encoded.fault);
    std::vector<Column> wanted = {nullable_of(Dtype::kInt64), nullable_of(Dtype::kFloat32, 2),
                                  nullable_of(Dtype::kBytes), nullable_of(Dtype::kInt64, 1, 1)};
    for (size_t c = 0; c < 4; ++c) wanted[c].key = columns[c].key;
    const Decoded decoded = decode(encoded.file, encoded.offsets, wanted, threads);
    CHECK(!decoded.fault);
    CHECK(decoded.columns[0].nulls == first);
    CHECK(decoded.columns[1].nulls == second);
    CHECK(decoded.columns[2].nulls == third);
    CHECK((decoded.columns[3].nulls == Mask{0, 0, 0, 0}));
    CHECK(numbers<int64_t>(decoded.columns[0]) == whole);
    CHECK(numbers<float>(decoded.columns[1]) == pairs);
    CHECK((texts(decoded.columns[2]) == std::vector<std::string>{"a", "", "bc", ""}));
    CHECK(decoded.columns[3].outer == outer);
  }
}

}  // namespace
}  // namespace recmap
