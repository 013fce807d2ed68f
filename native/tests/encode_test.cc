#include "encode.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "check.h"
#include "decode_all.h"
#include "encode_all.h"
#include "frame.h"
#include "ragged_offsets.h"
#include "scan.h"
#include "wire_builder.h"

namespace recmap {
namespace {

using Offsets = std::vector<int64_t>;
using wire::Buffer;

// The records are sound and lie at the offsets that were returned.
void check_frames(const Encoded& encoded) {
  CHECK(!encoded.fault);
  const Scan found = scan(encoded.file, {.anchor_every = 1, .verify = true});
  CHECK(!found.fault);
  CHECK(found.anchor_offsets == encoded.offsets);
}

Decoded round_trip(const EncodeColumn& from, uint64_t rows, const Column& to) {
  const Encoded encoded = encode({&from, 1}, rows);
  check_frames(encoded);
  Decoded decoded = decode(encoded.file, encoded.offsets, {&to, 1});
  CHECK(!decoded.fault);
  return decoded;
}

TEST(AnExampleIsWrittenAsProtobufWritesIt) {
  const std::vector<float> floats = {1.5f, -0.0f};
  const std::vector<int64_t> ints = {1, 300, -1};
  const std::vector<uint16_t> shorts = {1, 2};
  const Buffer text = {'h', 'i'};
  const Offsets strings = {0, 2, 2};
  const std::vector<EncodeColumn> columns = {
      encode_dense("f", Kind::kFloat, Dtype::kFloat32, floats, 2),
      encode_dense("i", Kind::kInt64, Dtype::kInt64, ints, 3),
      encode_dense("r", Kind::kBytes, Dtype::kUint16, shorts, 2),
      encode_strings("s", text, strings, 2)};
  const Encoded encoded = encode(columns, 1);
  check_frames(encoded);
  CHECK((encoded.record(0) ==
         Buffer{0x0a, 0x49,                                                                  //
                0x0a, 0x11, 0x0a, 0x01, 'f',  0x12, 0x0c, 0x12, 0x0a, 0x0a, 0x08,            //
                0x00, 0x00, 0xc0, 0x3f, 0x00, 0x00, 0x00, 0x80,                              //
                0x0a, 0x16, 0x0a, 0x01, 'i',  0x12, 0x11, 0x1a, 0x0f, 0x0a, 0x0d,            //
                0x01, 0xac, 0x02,                                                            //
                0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01,                  //
                0x0a, 0x0d, 0x0a, 0x01, 'r',  0x12, 0x08, 0x0a, 0x06, 0x0a, 0x04,            //
                0x01, 0x00, 0x02, 0x00,                                                      //
                0x0a, 0x0d, 0x0a, 0x01, 's',  0x12, 0x08, 0x0a, 0x06, 0x0a, 0x02, 'h', 'i',  //
                0x0a, 0x00}));
}

TEST(ASequenceExampleIsWrittenAsProtobufWritesIt) {
  const std::vector<int64_t> context = {7};
  const std::vector<int64_t> numbers = {1, 2};
  const Offsets outer = {0, 2};
  const Offsets steps = {0, 2, 2};
  const Buffer text = {'a', 'b', 'c'};
  const Offsets strings = {0, 1, 3};
  std::vector<EncodeColumn> columns = {
      encode_dense("c", Kind::kInt64, Dtype::kInt64, context),
      encode_ragged("t", Kind::kInt64, Dtype::kInt64, numbers, outer),
      encode_strings("w", text, strings)};
  columns[1].ragged = 2;
  columns[1].steps = steps;
  columns[1].in_lists = true;
  columns[2].ragged = 1;
  columns[2].outer = outer;
  columns[2].in_lists = true;
  const Encoded encoded = encode(columns, 1);
  check_frames(encoded);
  CHECK((encoded.record(0) == Buffer{0x0a, 0x0c,  //
                                     0x0a, 0x0a, 0x0a, 0x01, 'c',  0x12, 0x05, 0x1a,
                                     0x03, 0x0a, 0x01, 0x07,                          //
                                     0x12, 0x29,                                      //
                                     0x0a, 0x11, 0x0a, 0x01, 't',  0x12, 0x0c,        //
                                     0x0a, 0x06, 0x1a, 0x04, 0x0a, 0x02, 0x01, 0x02,  //
                                     0x0a, 0x02, 0x1a, 0x00,                          //
                                     0x0a, 0x14, 0x0a, 0x01, 'w',  0x12, 0x0f,        //
                                     0x0a, 0x05, 0x0a, 0x03, 0x0a, 0x01, 'a',         //
                                     0x0a, 0x06, 0x0a, 0x04, 0x0a, 0x02, 'b',  'c'}));
}

TEST(EmptyListsKeepTheirKindAndNoRawBytesAreOneEmptyString) {
  const std::vector<float> none;
  const Buffer text;
  const Offsets empty = {0, 0};
  const Offsets no_strings = {0};
  EncodeColumn strings = encode_strings("b", text, no_strings);
  strings.ragged = 1;
  strings.outer = empty;
  const std::vector<EncodeColumn> columns = {
      strings, encode_ragged("e", Kind::kFloat, Dtype::kFloat32, none, empty),
      encode_ragged("r", Kind::kBytes, Dtype::kFloat32, none, empty)};
  CHECK((encode(columns, 1).record(0) ==
         Buffer{0x0a, 0x1d,                                           //
                0x0a, 0x07, 0x0a, 0x01, 'b', 0x12, 0x02, 0x0a, 0x00,  //
                0x0a, 0x07, 0x0a, 0x01, 'e', 0x12, 0x02, 0x12, 0x00,  //
                0x0a, 0x09, 0x0a, 0x01, 'r', 0x12, 0x04, 0x0a, 0x02, 0x0a, 0x00}));
}

template <typename T>
void check_round_trip(Dtype dtype, const std::vector<T>& values, Kind list) {
  for (const uint64_t count : {uint64_t{1}, uint64_t{values.size()}}) {
    for (const Kind kind : {list, Kind::kBytes}) {
      const Decoded decoded = round_trip(encode_dense("x", kind, dtype, values, count),
                                         values.size() / count, column_of("x", dtype, count));
      CHECK(numbers<T>(decoded.columns[0]) == values);
    }
  }
}

template <typename T>
void check_integers(Dtype dtype) {
  constexpr T kMax = std::numeric_limits<T>::max();
  check_round_trip<T>(dtype, {std::numeric_limits<T>::min(), 0, 1, 100, kMax / 2, kMax},
                      Kind::kInt64);
}

TEST(NumbersOfEveryDtypeComeBack) {
  check_integers<int8_t>(Dtype::kInt8);
  check_integers<int16_t>(Dtype::kInt16);
  check_integers<int32_t>(Dtype::kInt32);
  check_integers<int64_t>(Dtype::kInt64);
  check_integers<uint8_t>(Dtype::kUint8);
  check_integers<uint16_t>(Dtype::kUint16);
  check_integers<uint32_t>(Dtype::kUint32);
  check_round_trip<uint64_t>(Dtype::kUint64, {0, INT64_MAX}, Kind::kInt64);
  check_round_trip<uint64_t>(Dtype::kUint64, {0, UINT64_MAX}, Kind::kBytes);
  check_round_trip<uint8_t>(Dtype::kBool, {0, 1, 1}, Kind::kInt64);
  check_round_trip<float>(Dtype::kFloat32, {0, 1.5f, -1e30f}, Kind::kFloat);
  check_round_trip<double>(Dtype::kFloat64, {0, 1.5, -1e300}, Kind::kBytes);
}

TEST(StringsComeBack) {
  const Buffer text = {'a', 0, 'b', 0, 0};
  const Offsets strings = {0, 0, 2, 4, 5};
  const Decoded decoded =
      round_trip(encode_strings("x", text, strings, 2), 2, column_of("x", Dtype::kBytes, 2));
  CHECK(decoded.columns[0].values == text);
  CHECK(decoded.columns[0].strings == strings);
}

TEST(RaggedRowsComeBack) {
  const std::vector<int64_t> values = {1, -2, 300, 4, 5};
  const Offsets outer = {0, 0, 3, 3, 5};
  for (const Kind kind : {Kind::kInt64, Kind::kBytes}) {
    for (const bool in_lists : {false, true}) {
      EncodeColumn from = encode_ragged("x", kind, Dtype::kInt64, values, outer);
      from.in_lists = in_lists;
      const Decoded decoded = round_trip(from, 4, column_of("x", Dtype::kInt64, 1, 1));
      CHECK(numbers<int64_t>(decoded.columns[0]) == values);
      CHECK(decoded.columns[0].outer == outer);
    }
  }
}

TEST(NestedRaggedRowsComeBack) {
  const std::vector<uint16_t> values = {1, 2, 3, 4, 5, 6};
  const Offsets steps = {0, 1, 1, 3};
  const Offsets outer = {0, 2, 2, 3};
  for (const Kind kind : {Kind::kInt64, Kind::kBytes}) {
    EncodeColumn from = encode_ragged("x", kind, Dtype::kUint16, values, outer);
    from.ragged = 2;
    from.count = 2;
    from.steps = steps;
    from.in_lists = true;
    const Decoded decoded = round_trip(from, 3, column_of("x", Dtype::kUint16, 2, 2));
    CHECK(numbers<uint16_t>(decoded.columns[0]) == values);
    CHECK(decoded.columns[0].steps == steps);
    CHECK(decoded.columns[0].outer == outer);
  }
}

TEST(DenseRowsInFeatureListsComeBack) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8};
  EncodeColumn from = encode_dense("x", Kind::kFloat, Dtype::kFloat32, values, 4);
  from.in_lists = true;
  from.step = 2;
  Column to = column_of("x", Dtype::kFloat32, 4);
  to.step = 2;
  to.place = Column::Place::kLists;
  CHECK(numbers<float>(round_trip(from, 2, to).columns[0]) == values);
}

TEST(OffsetsNeedNotBeginAtZero) {
  const std::vector<int32_t> values = {9, 9, 1, 2, 3, 9};
  const Offsets outer = {2, 3, 5};
  const Decoded decoded = round_trip(encode_ragged("x", Kind::kInt64, Dtype::kInt32, values, outer),
                                     2, column_of("x", Dtype::kInt32, 1, 1));
  CHECK((numbers<int32_t>(decoded.columns[0]) == std::vector<int32_t>{1, 2, 3}));
}

TEST(RowsMayBeReversedRepeatedOrSpaced) {
  const std::vector<int32_t> values = {1, 2, 3, 4, 5, 6};
  for (const Kind kind : {Kind::kInt64, Kind::kBytes}) {
    const auto rows_of = [&](size_t first, int64_t stride) {
      EncodeColumn from = encode_dense("x", kind, Dtype::kInt32, values);
      from.values += first * sizeof(int32_t);
      from.row_stride = stride;
      return numbers<int32_t>(round_trip(from, 3, column_of("x", Dtype::kInt32)).columns[0]);
    };
    CHECK((rows_of(5, -8) == std::vector<int32_t>{6, 4, 2}));
    CHECK((rows_of(3, 0) == std::vector<int32_t>{4, 4, 4}));
    CHECK((rows_of(0, 8) == std::vector<int32_t>{1, 3, 5}));
  }
}

TEST(Uint64sOverAnInt64AreAFaultOfTheirRowAndColumn) {
  std::vector<uint64_t> values(10'000, INT64_MAX);
  const std::vector<int64_t> others(10'000);
  const std::vector<EncodeColumn> columns = {
      encode_dense("a", Kind::kInt64, Dtype::kInt64, others),
      encode_dense("b", Kind::kInt64, Dtype::kUint64, values)};
  CHECK(!encode(columns, values.size()).fault);
  for (const size_t row : {9'000u, 5'000u, 123u}) {
    values[row] = uint64_t{1} << 63;
    const Fault fault = encode(columns, values.size()).fault;
    CHECK_EQ(fault.code, FaultCode::kOutOfRange);
    CHECK_EQ(fault.row, row);
    CHECK_EQ(fault.column, 1);
    CHECK_EQ(fault.found, INT64_MIN);
  }
}

// Only sizes are computed, so the memory need not exist.
TEST(ARecordOver2GibIsRefused) {
  const std::vector<float> none;
  const EncodeColumn large =
      encode_dense("x", Kind::kFloat, Dtype::kFloat32, none, uint64_t{1} << 29);
  for (const uint64_t align : {0u, 64u}) {
    const Fault fault = encode({&large, 1}, 3, align).fault;
    CHECK_EQ(fault.code, FaultCode::kTooLarge);
    CHECK_EQ(fault.row, 0);
    CHECK(fault.found > int64_t{1} << 31);
  }
}

TEST(NoRowsAreNoBytes) {
  const std::vector<float> none;
  const EncodeColumn column = encode_dense("x", Kind::kFloat, Dtype::kFloat32, none);
  CHECK(encode({&column, 1}, 0).file.empty());
  CHECK(encode({}, 0).file.empty());
}

TEST(RowsWithoutColumnsAreEmptyRecords) {
  const Encoded encoded = encode({}, 3);
  check_frames(encoded);
  CHECK_EQ(encoded.offsets.size(), 3);
}

TEST(BytesAreTheSameForAnyNumberOfThreads) {
  std::vector<int64_t> values(50'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int64_t>(i * i * i);
  const EncodeColumn column = encode_dense("x", Kind::kInt64, Dtype::kInt64, values);
  const Encoded one = encode({&column, 1}, values.size(), 0, 1);
  check_frames(one);
  for (const size_t threads : {0u, 2u, 5u, 16u}) {
    CHECK(encode({&column, 1}, values.size(), 0, threads).file == one.file);
  }
}

TEST(ValuesThatChangeBetweenThePhasesAreNoticed) {
  std::vector<int64_t> values = {1, 1000};
  const EncodeColumn column = encode_dense("x", Kind::kInt64, Dtype::kInt64, values);
  for (const size_t row : {0u, 1u}) {
    values = {1, 1000};
    Encoder encoder({&column, 1}, 2, 0, 1);
    CHECK(!encoder.measure());
    values[row] = row == 0 ? -1 : 5;
    Buffer file(encoder.offsets().back());
    const Fault fault = encoder.write(file.data());
    CHECK_EQ(fault.code, FaultCode::kChanged);
    CHECK_EQ(fault.row, row);
  }
}

TEST(SoundOffsetsAscendAndEndInside) {
  CHECK(offsets_are_sound(Offsets{0}, 0));
  CHECK(offsets_are_sound(Offsets{0, 0, 3, 3}, 3));
  CHECK(offsets_are_sound(Offsets{1, 2}, 5));
  CHECK(!offsets_are_sound({}, 5));
  CHECK(!offsets_are_sound(Offsets{-1, 2}, 5));
  CHECK(!offsets_are_sound(Offsets{INT64_MIN}, UINT64_MAX));
  CHECK(!offsets_are_sound(Offsets{0, 3, 2}, 5));
  CHECK(!offsets_are_sound(Offsets{0, INT64_MAX, -1}, UINT64_MAX));
  CHECK(!offsets_are_sound(Offsets{0, 6}, 5));
}

}  // namespace
}  // namespace recmap
