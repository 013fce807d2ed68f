// What the values of one feature become in a column of each dtype.
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include "check.h"
#include "decode_all.h"
#include "wire_builder.h"

namespace recmap {
namespace {

using wire::Buffer;
using wire::feature;
using wire::field;
using wire::floats;
using wire::ints;
using wire::join;
using wire::raw;
using wire::raw_string;
using wire::strings;
using wire::varint;
using wire::varints;

Decoded decode_one(const Column& column, const Buffer& message) {
  const std::vector<Buffer> records = {wire::example(wire::entry(column.key, message))};
  const Buffer file = wire::framed(records);
  const std::vector<uint64_t> offsets = wire::offsets_of(records);
  Decoded decoded = decode(file, offsets, std::span(&column, 1));
  // Checking must find what decoding finds.
  const std::vector<Fault> faults = check_all(file, offsets, {&column, 1}).faults;
  CHECK_EQ(faults.size(), decoded.fault ? 1 : 0);
  if (decoded.fault && !faults.empty()) CHECK_EQ(faults[0].code, decoded.fault.code);
  return decoded;
}

Fault fault_of(const Column& column, const Buffer& message) {
  return decode_one(column, message).fault;
}

template <typename T>
std::vector<T> values_of(Dtype dtype, uint64_t count, const Buffer& message) {
  const Decoded decoded = decode_one(column_of("x", dtype, count), message);
  CHECK(!decoded.fault);
  return numbers<T>(decoded.columns[0]);
}

template <typename T>
void check_range(Dtype dtype) {
  constexpr auto kMin = static_cast<int64_t>(std::numeric_limits<T>::min());
  constexpr auto kMax = static_cast<int64_t>(std::numeric_limits<T>::max());
  const auto values = values_of<T>(dtype, 3, ints({kMin, 1, kMax}));
  CHECK(
      (values == std::vector<T>{std::numeric_limits<T>::min(), 1, std::numeric_limits<T>::max()}));
  for (const int64_t value : {kMin - 1, kMax + 1, INT64_MIN, INT64_MAX}) {
    // Alone and among others: the two are read by different code.
    const Fault one = fault_of(column_of("x", dtype), ints({value}));
    CHECK_EQ(one.code, FaultCode::kOutOfRange);
    CHECK_EQ(one.found, value);
    CHECK_EQ(one.column, 0);
    CHECK_EQ(fault_of(column_of("x", dtype, 2), ints({1, value})).found, value);
  }
}

TEST(IntListsBecomeEveryIntegerTheyFit) {
  check_range<int8_t>(Dtype::kInt8);
  check_range<int16_t>(Dtype::kInt16);
  check_range<int32_t>(Dtype::kInt32);
  check_range<uint8_t>(Dtype::kUint8);
  check_range<uint16_t>(Dtype::kUint16);
  check_range<uint32_t>(Dtype::kUint32);
}

TEST(Int64sAreExact) {
  const std::vector<int64_t> extremes = {
      INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX, int64_t{1} << 31, -(int64_t{1} << 31) - 1};
  CHECK((values_of<int64_t>(Dtype::kInt64, 8,
                            ints({INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX, int64_t{1} << 31,
                                  -(int64_t{1} << 31) - 1})) == extremes));
  for (const int64_t value : extremes) {
    CHECK((values_of<int64_t>(Dtype::kInt64, 1, ints({value})) == std::vector<int64_t>{value}));
  }
}

TEST(VarintsOfEveryLengthAreExact) {
  for (int bits = 0; bits < 64; ++bits) {
    const auto value = static_cast<int64_t>(uint64_t{0x9e3779b97f4a7c15} >> bits);
    // With enough bytes after it to read a whole word, and with none.
    const auto many = values_of<int64_t>(Dtype::kInt64, 4, ints({value, -1, value, value}));
    CHECK((many == std::vector<int64_t>{value, -1, value, value}));
  }
}

TEST(VarintsLongerThanNecessaryAreRead) {
  const Buffer padded = {0x85, 0x80, 0x80, 0x00, 0x81, 0x80, 0x80,
                         0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00};
  CHECK((values_of<int64_t>(Dtype::kInt64, 2, feature(Kind::kInt64, field(1, padded))) ==
         std::vector<int64_t>{5, 1}));
}

TEST(Uint64sHoldOnlyWhatAnInt64Can) {
  CHECK((values_of<uint64_t>(Dtype::kUint64, 2, ints({0, INT64_MAX})) ==
         std::vector<uint64_t>{0, INT64_MAX}));
  CHECK_EQ(fault_of(column_of("x", Dtype::kUint64), ints({-1})).code, FaultCode::kOutOfRange);
}

TEST(BoolsAreZeroOrOne) {
  CHECK((values_of<uint8_t>(Dtype::kBool, 3, ints({0, 1, 1})) == std::vector<uint8_t>{0, 1, 1}));
  for (const int64_t value : {int64_t{2}, int64_t{-1}, int64_t{256}}) {
    const Fault fault = fault_of(column_of("x", Dtype::kBool), ints({value}));
    CHECK_EQ(fault.code, FaultCode::kOutOfRange);
    CHECK_EQ(fault.found, value);
  }
}

// Bits that arithmetic could change: zeros, denormals, infinities, NaNs.
TEST(FloatsAreBitExactAsFloat32) {
  const std::vector<uint32_t> bits = {0x00000000, 0x80000000, 0x00000001, 0x807fffff, 0x7f800000,
                                      0xff800000, 0x7fc00000, 0x7fc12345, 0xffffffff, 0x7f800001};
  Buffer packed;
  for (const uint32_t value : bits) packed = join(packed, raw({value}));
  CHECK(values_of<uint32_t>(Dtype::kFloat32, bits.size(),
                            feature(Kind::kFloat, field(1, packed))) == bits);
}

TEST(FloatsAreWidenedToFloat64) {
  const Buffer packed =
      raw<uint32_t>({0x80000000, 0x00000001, 0x3fc00000, 0xff800000, 0x7fc12345, 0xffc00001});
  const std::vector<uint64_t> wide = {0x8000000000000000, 0x36a0000000000000, 0x3ff8000000000000,
                                      0xfff0000000000000, 0x7ff82468a0000000, 0xfff8000020000000};
  CHECK(values_of<uint64_t>(Dtype::kFloat64, 6, feature(Kind::kFloat, field(1, packed))) == wide);
}

TEST(RawBytesBecomeWhateverTheColumnSays) {
  const Buffer eight = {1, 0, 2, 0, 3, 0, 4, 0x80};
  CHECK((values_of<uint16_t>(Dtype::kUint16, 4, raw_string(eight)) ==
         std::vector<uint16_t>{1, 2, 3, 0x8004}));
  CHECK(values_of<uint8_t>(Dtype::kUint8, 8, raw_string(eight)) == eight);
  CHECK((values_of<uint64_t>(Dtype::kFloat64, 1, raw_string(eight)) ==
         std::vector<uint64_t>{0x8004000300020001}));
  Column opaque = column_of("x", Dtype::kOpaque, 2);
  opaque.itemsize = 4;
  CHECK(decode_one(opaque, raw_string(eight)).columns[0].values == eight);
}

TEST(RawBytesOfTheWrongSizeAreAFault) {
  const Column column = column_of("x", Dtype::kInt32, 2);
  for (const size_t size : {0u, 1u, 4u, 7u, 9u, 12u}) {
    const Fault fault = fault_of(column, raw_string(Buffer(size)));
    CHECK_EQ(fault.code, FaultCode::kWrongSize);
    CHECK_EQ(fault.expected, 8);
    CHECK_EQ(fault.found, size);
  }
}

TEST(RawBytesAreOneString) {
  const Column column = column_of("x", Dtype::kUint8, 4);
  const Fault fault = fault_of(column, strings({"ab", "cd"}));
  CHECK_EQ(fault.code, FaultCode::kNotOneString);
  CHECK_EQ(fault.found, 2);
  CHECK_EQ(fault_of(column, strings({"abcd", ""})).code, FaultCode::kNotOneString);
  CHECK_EQ(fault_of(column, strings({})).code, FaultCode::kWrongSize);
}

TEST(ListsOfTheWrongLengthAreAFault) {
  for (const Buffer& message : {ints({}), ints({1}), ints({1, 2, 3})}) {
    const Fault fault = fault_of(column_of("x", Dtype::kInt64, 2), message);
    CHECK_EQ(fault.code, FaultCode::kWrongCount);
    CHECK_EQ(fault.expected, 2);
  }
  CHECK_EQ(fault_of(column_of("x", Dtype::kInt64), ints({1, 2})).code, FaultCode::kWrongCount);
  CHECK_EQ(fault_of(column_of("x", Dtype::kFloat32), floats({})).code, FaultCode::kWrongCount);
  CHECK_EQ(fault_of(column_of("x", Dtype::kBytes, 2), strings({"a"})).code, FaultCode::kWrongCount);
  CHECK(!decode_one(column_of("x", Dtype::kInt64, 0), ints({})).fault);
}

TEST(KindsThatDoNotFitTheDtypeAreAFault) {
  const auto kind_of = [](Dtype dtype, const Buffer& message) {
    const Fault fault = fault_of(column_of("x", dtype), message);
    return fault.code == FaultCode::kWrongKind ? static_cast<Kind>(fault.found) : Kind::kNone;
  };
  CHECK_EQ(kind_of(Dtype::kInt64, floats({1})), Kind::kFloat);
  CHECK_EQ(kind_of(Dtype::kFloat32, ints({1})), Kind::kInt64);
  CHECK_EQ(kind_of(Dtype::kFloat64, ints({1})), Kind::kInt64);
  CHECK_EQ(kind_of(Dtype::kBytes, ints({1})), Kind::kInt64);
  CHECK_EQ(kind_of(Dtype::kBytes, floats({1})), Kind::kFloat);
  CHECK_EQ(kind_of(Dtype::kOpaque, ints({1})), Kind::kInt64);
  CHECK_EQ(kind_of(Dtype::kBool, floats({1})), Kind::kFloat);
}

TEST(StringsKeepTheirNulsAndTheirEmptiness) {
  using namespace std::string_view_literals;
  const Decoded decoded =
      decode_one(column_of("x", Dtype::kBytes, 5), strings({"a\0b\0"sv, "", "\0"sv, "c", ""}));
  CHECK(!decoded.fault);
  CHECK((texts(decoded.columns[0]) ==
         std::vector<std::string>{std::string("a\0b\0", 4), "", std::string(1, '\0'), "c", ""}));
}

TEST(StringsOfTextThatAreNotUtf8AreAFault) {
  Column column = column_of("x", Dtype::kBytes, 2);
  const Buffer message = strings({"a", "\xff"});
  CHECK(!decode_one(column, message).fault);
  column.text = true;
  CHECK_EQ(fault_of(column, message).code, FaultCode::kNotUtf8);
  CHECK(!decode_one(column, strings({"", "\xe2\x82\xac"})).fault);
}

TEST(ListsInSeveralPartsAndUnpackedValuesAreJoined) {
  const Buffer split = feature(Kind::kInt64, join(field(1, varints({1, -2})), Buffer{0x08, 0x03},
                                                  field(1, Buffer{}), field(1, varints({4}))));
  CHECK((values_of<int16_t>(Dtype::kInt16, 4, split) == std::vector<int16_t>{1, -2, 3, 4}));
  const Buffer some_floats =
      feature(Kind::kFloat, join(Buffer{0x0d}, raw({1.0f}), field(1, raw({2.0f, 3.0f}))));
  CHECK((values_of<float>(Dtype::kFloat32, 3, some_floats) == std::vector<float>{1, 2, 3}));
  CHECK((values_of<double>(Dtype::kFloat64, 3, some_floats) == std::vector<double>{1, 2, 3}));
}

TEST(MalformedListsAreAFault) {
  const auto code_of = [](Dtype dtype, uint64_t count, Kind kind, const Buffer& list) {
    return fault_of(column_of("x", dtype, count), feature(kind, list)).code;
  };
  const Buffer eleven = join(Buffer(10, 0x80), Buffer{0x01});
  const Buffer cut = {0x01, 0x80};
  for (const uint64_t count : {1u, 2u}) {
    CHECK_EQ(code_of(Dtype::kInt64, count, Kind::kInt64, field(1, cut)), FaultCode::kMalformed);
  }
  CHECK_EQ(code_of(Dtype::kInt64, 1, Kind::kInt64, field(1, eleven)), FaultCode::kMalformed);
  CHECK_EQ(code_of(Dtype::kInt64, 2, Kind::kInt64, field(1, join(eleven, eleven))),
           FaultCode::kMalformed);
  CHECK_EQ(code_of(Dtype::kInt64, 1, Kind::kInt64, join(Buffer{0x08}, eleven)),
           FaultCode::kMalformed);
  CHECK_EQ(code_of(Dtype::kInt64, 1, Kind::kInt64, {0x0a, 0x02, 0x01}), FaultCode::kMalformed);
  for (const size_t size : {1u, 2u, 3u, 5u, 7u}) {
    CHECK_EQ(code_of(Dtype::kFloat32, size / 4, Kind::kFloat, field(1, Buffer(size))),
             FaultCode::kMalformed);
    CHECK_EQ(code_of(Dtype::kFloat64, size / 4, Kind::kFloat, field(1, Buffer(size))),
             FaultCode::kMalformed);
  }
}

// Only the checksum lies between each payload and the end of its allocation.
TEST(PackedListsAreReadAtEveryAlignment) {
  for (size_t shift = 0; shift < 8; ++shift) {
    const std::vector<Buffer> records = {
        Buffer{}, wire::example(wire::entry(std::string(shift + 1, 'k'), floats({1.5f, -2.5f})))};
    const Column column = column_of(std::string(shift + 1, 'k'), Dtype::kFloat32, 2);
    const Decoded decoded =
        decode(wire::framed(records), std::vector{wire::offsets_of(records)[1]}, {&column, 1});
    CHECK((numbers<float>(decoded.columns[0]) == std::vector<float>{1.5f, -2.5f}));
  }
}

}  // namespace
}  // namespace recmap
