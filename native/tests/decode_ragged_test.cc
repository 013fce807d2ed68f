// Columns with ragged axes, and feature lists in columns of every shape.
#include <cstdint>
#include <string>
#include <vector>

#include "check.h"
#include "decode_all.h"
#include "wire_builder.h"

namespace recmap {
namespace {

using Offsets = std::vector<int64_t>;
using Texts = std::vector<std::string>;
using wire::Buffer;
using wire::entry;
using wire::example;
using wire::feature_list;
using wire::floats;
using wire::ints;
using wire::join;
using wire::lists;
using wire::strings;

Decoded decode_records(const std::vector<Buffer>& records, const Column& column) {
  const Buffer file = wire::framed(records);
  const std::vector<uint64_t> offsets = wire::offsets_of(records);
  Decoded decoded = decode(file, offsets, {&column, 1}, 2);
  CHECK_EQ(check_all(file, offsets, {&column, 1}, 2).faults.empty(), !decoded.fault);
  return decoded;
}

Fault fault_of(const Column& column, const Buffer& record) {
  return decode_records({record}, column).fault;
}

Buffer flat(const Buffer& message) { return example(entry("x", message)); }

template <typename... Steps>
Buffer stepped(const Steps&... steps) {
  return lists(entry("x", feature_list(steps...)));
}

TEST(RaggedRowsHaveAnyLengthAndMissingOnesHaveNone) {
  const Decoded decoded =
      decode_records({flat(ints({1, 2, 3})), Buffer{}, flat(ints({})), flat({}), flat(ints({-4}))},
                     column_of("x", Dtype::kInt16, 1, 1));
  CHECK(!decoded.fault);
  CHECK((numbers<int16_t>(decoded.columns[0]) == std::vector<int16_t>{1, 2, 3, -4}));
  CHECK((decoded.columns[0].outer == Offsets{0, 3, 3, 3, 3, 4}));
}

TEST(RaggedRowsCountInItems) {
  const Column column = column_of("x", Dtype::kFloat32, 2, 1);
  const Decoded decoded =
      decode_records({flat(floats({1, 2, 3, 4})), flat(floats({5, 6}))}, column);
  CHECK((decoded.columns[0].outer == Offsets{0, 2, 3}));
  CHECK((numbers<float>(decoded.columns[0]) == std::vector<float>{1, 2, 3, 4, 5, 6}));
  const Fault fault = fault_of(column, flat(floats({1, 2, 3})));
  CHECK_EQ(fault.code, FaultCode::kNotMultiple);
  CHECK_EQ(fault.expected, 2);
  CHECK_EQ(fault.found, 3);
}

TEST(RaggedRowsMayBeRawBytes) {
  const Column column = column_of("x", Dtype::kUint16, 1, 1);
  const Decoded decoded = decode_records(
      {flat(wire::raw_string({1, 0, 2, 0})), flat(strings({""})), flat(ints({3}))}, column);
  CHECK((numbers<uint16_t>(decoded.columns[0]) == std::vector<uint16_t>{1, 2, 3}));
  CHECK((decoded.columns[0].outer == Offsets{0, 2, 2, 3}));
  CHECK_EQ(fault_of(column, flat(strings({"abc"}))).code, FaultCode::kNotMultiple);
  CHECK_EQ(fault_of(column, flat(strings({"ab", "cd"}))).code, FaultCode::kNotOneString);
}

TEST(RaggedStrings) {
  const Decoded decoded = decode_records(
      {flat(strings({"a", ""})), Buffer{}, flat(strings({std::string_view("\0", 1)}))},
      column_of("x", Dtype::kBytes, 1, 1));
  CHECK((texts(decoded.columns[0]) == Texts{"a", "", std::string(1, '\0')}));
  CHECK((decoded.columns[0].outer == Offsets{0, 2, 2, 3}));
}

TEST(RaggedStringsInItems) {
  const Column column = column_of("x", Dtype::kBytes, 2, 1);
  const Decoded decoded = decode_records({flat(strings({"a", "b", "c", "d"})), Buffer{}}, column);
  CHECK((texts(decoded.columns[0]) == Texts{"a", "b", "c", "d"}));
  CHECK((decoded.columns[0].outer == Offsets{0, 2, 2}));
  CHECK_EQ(fault_of(column, flat(strings({"a"}))).code, FaultCode::kNotMultiple);
}

TEST(FeatureListsFillRaggedRowsStepByStep) {
  const Column column = column_of("x", Dtype::kInt64, 2, 1);
  const Decoded decoded = decode_records(
      {stepped(ints({1, 2}), ints({3, 4})), stepped(), Buffer{}, flat(ints({5, 6}))}, column);
  CHECK(!decoded.fault);
  CHECK((decoded.columns[0].outer == Offsets{0, 2, 2, 2, 3}));
  CHECK((numbers<int64_t>(decoded.columns[0]) == std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  const Fault fault = fault_of(column, stepped(ints({1, 2}), ints({3})));
  CHECK_EQ(fault.code, FaultCode::kWrongCount);
  CHECK_EQ(fault.expected, 2);
  CHECK_EQ(fault.found, 1);
  CHECK_EQ(fault_of(column, stepped(Buffer{})).code, FaultCode::kWrongCount);
}

TEST(FeatureListsFillDenseRowsStepByStep) {
  Column column = column_of("x", Dtype::kInt8, 4);
  column.step = 2;
  const Decoded decoded =
      decode_records({stepped(ints({1, 2}), ints({3, 4})), flat(ints({5, 6, 7, 8}))}, column);
  CHECK((numbers<int8_t>(decoded.columns[0]) == std::vector<int8_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  CHECK_EQ(fault_of(column, stepped(ints({1, 2}))).code, FaultCode::kWrongCount);
  CHECK_EQ(fault_of(column, stepped(ints({1, 2, 3, 4}))).code, FaultCode::kWrongCount);
  CHECK_EQ(fault_of(column, stepped(ints({1, 2}), floats({3, 4}))).code, FaultCode::kWrongKind);
  CHECK_EQ(fault_of(column, stepped(ints({1, 2}), strings({"abc"}))).code, FaultCode::kWrongSize);
}

TEST(FeatureListsOfStringsFillDenseRows) {
  const Decoded decoded =
      decode_records({stepped(strings({"a"}), strings({"bc"}))}, column_of("x", Dtype::kBytes, 2));
  CHECK((texts(decoded.columns[0]) == Texts{"a", "bc"}));
}

TEST(NestedRaggedNumbers) {
  const Column column = column_of("x", Dtype::kInt32, 1, 2);
  const Decoded decoded = decode_records({stepped(ints({1, 2}), ints({}), ints({3})), Buffer{},
                                          stepped(), stepped(Buffer{}, ints({4}))},
                                         column);
  CHECK(!decoded.fault);
  CHECK((numbers<int32_t>(decoded.columns[0]) == std::vector<int32_t>{1, 2, 3, 4}));
  CHECK((decoded.columns[0].steps == Offsets{0, 2, 2, 3, 3, 4}));
  CHECK((decoded.columns[0].outer == Offsets{0, 3, 3, 3, 5}));
}

TEST(NestedRaggedItemsAndRawSteps) {
  const Column column = column_of("x", Dtype::kUint8, 2, 2);
  const Decoded decoded =
      decode_records({stepped(ints({1, 2, 3, 4}), strings({"ab"}), strings({""}))}, column);
  CHECK((decoded.columns[0].steps == Offsets{0, 2, 3, 3}));
  CHECK((decoded.columns[0].values == Buffer{1, 2, 3, 4, 'a', 'b'}));
  CHECK_EQ(fault_of(column, stepped(ints({1}))).code, FaultCode::kNotMultiple);
}

TEST(NestedRaggedStrings) {
  const Decoded decoded =
      decode_records({stepped(strings({"a", ""}), strings({})), stepped(strings({"b"})), Buffer{}},
                     column_of("x", Dtype::kBytes, 1, 2));
  CHECK((texts(decoded.columns[0]) == Texts{"a", "", "b"}));
  CHECK((decoded.columns[0].steps == Offsets{0, 2, 2, 3}));
  CHECK((decoded.columns[0].outer == Offsets{0, 2, 3, 3}));
}

TEST(NestedRaggedStringItems) {
  const Decoded decoded =
      decode_records({stepped(strings({"a", "b"})), stepped(strings({"c", "d"}))},
                     column_of("x", Dtype::kBytes, 2, 2));
  CHECK((texts(decoded.columns[0]) == Texts{"a", "b", "c", "d"}));
  CHECK((decoded.columns[0].steps == Offsets{0, 1, 2}));
}

TEST(ANestedColumnNeedsAFeatureList) {
  CHECK_EQ(fault_of(column_of("x", Dtype::kInt64, 1, 2), flat(ints({1}))).code,
           FaultCode::kFlatNotNested);
}

TEST(FeatureListsInSeveralPartsAreJoined) {
  const Buffer halves = lists(wire::field(
      1, join(wire::field(1, Buffer{'x'}), wire::field(2, feature_list(ints({1, 2}), ints({3}))),
              wire::field(2, feature_list(ints({4}))))));
  const Decoded decoded = decode_records({halves, halves}, column_of("x", Dtype::kInt64, 1, 2));
  CHECK((numbers<int64_t>(decoded.columns[0]) == std::vector<int64_t>{1, 2, 3, 4, 1, 2, 3, 4}));
  CHECK((decoded.columns[0].steps == Offsets{0, 2, 3, 4, 6, 7, 8}));
}

TEST(MalformedStepsAreAFault) {
  for (const uint8_t ragged : {uint8_t{0}, uint8_t{1}, uint8_t{2}}) {
    const Column column = column_of("x", Dtype::kInt64, 1, ragged);
    const Buffer broken = lists(entry("x", {0x0a, 0x05, 0x1a}));
    CHECK_EQ(fault_of(column, broken).code, FaultCode::kMalformed);
    CHECK_EQ(fault_of(column, broken).column, 0);
    // Also if the column reads another feature, which is missing then.
    const Column other = column_of("y", Dtype::kInt64, 1, ragged);
    CHECK_EQ(fault_of(other, broken).code, FaultCode::kMalformed);
    CHECK_EQ(fault_of(other, broken).column, kNoColumn);
    const Buffer long_varint =
        wire::feature(Kind::kInt64, wire::field(1, join(Buffer(10, 0xff), Buffer{0x01})));
    CHECK_EQ(fault_of(column, stepped(long_varint)).code, FaultCode::kMalformed);
  }
}

// Another process may write to a mapped file between the phases.
TEST(AChangeBetweenThePhasesIsNoticed) {
  const Buffer before = stepped(ints({1}), ints({2}));
  // The same length and number of values, in fewer steps.
  const Buffer fewer =
      lists(entry("x", join(feature_list(ints({1, 2})), wire::field(9, Buffer(4)))));
  // The same number of steps, of fewer values.
  const Buffer shorter =
      lists(entry("x", join(feature_list(ints({1}), ints({})), wire::field(9, Buffer(1)))));
  CHECK_EQ(fewer.size(), before.size());
  CHECK_EQ(shorter.size(), before.size());
  const Column column = column_of("x", Dtype::kInt64, 1, 2);
  for (const Buffer& after : {fewer, shorter}) {
    for (const bool verify : {true, false}) {
      Buffer file = wire::framed({before});
      const std::vector<uint64_t> offsets = {0};
      const Decoded decoded = decode(file, offsets, {&column, 1}, verify, 1, [&] {
        std::copy(after.begin(), after.end(), file.begin() + kHeaderSize);
      });
      CHECK_EQ(decoded.fault.code, verify ? FaultCode::kDataCrc : FaultCode::kChanged);
    }
  }
}

}  // namespace
}  // namespace recmap
