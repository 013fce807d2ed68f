#include "decode.h"

#include <cstdint>
#include <string>
#include <vector>

#include "check.h"
#include "decode_all.h"
#include "wire_builder.h"

namespace recmap {
namespace {

using wire::Buffer;
using wire::entry;
using wire::example;
using wire::floats;
using wire::framed;
using wire::ints;
using wire::join;
using wire::offsets_of;
using wire::strings;

Column with_fill(Column column, Buffer fill) {
  column.has_fill = true;
  column.fill = std::move(fill);
  return column;
}

Decoded decode_records(const std::vector<Buffer>& records, const std::vector<Column>& columns,
                       size_t threads = 1) {
  return decode(framed(records), offsets_of(records), columns, threads);
}

TEST(NoRowsMakeEmptyColumns) {
  const Decoded decoded = decode_records(
      {}, {column_of("a", Dtype::kInt64), column_of("b", Dtype::kBytes),
           column_of("c", Dtype::kInt64, 1, 1), column_of("d", Dtype::kBytes, 1, 2)});
  CHECK(!decoded.fault);
  CHECK(decoded.columns[0].values.empty());
  CHECK((decoded.columns[1].strings == std::vector<int64_t>{0}));
  CHECK((decoded.columns[2].outer == std::vector<int64_t>{0}));
  CHECK((decoded.columns[3].steps == std::vector<int64_t>{0}));
}

TEST(RowsComeInTheOrderOfTheirOffsets) {
  std::vector<Buffer> records;
  for (int64_t i = 0; i < 5; ++i) {
    records.push_back(example(entry("i", ints({i})), entry("s", strings({std::string(5, 'a')}))));
  }
  const std::vector<uint64_t> all = offsets_of(records);
  const std::vector<uint64_t> some = {all[4], all[0], all[4], all[2]};
  const std::vector<Column> columns = {column_of("s", Dtype::kBytes), column_of("i", Dtype::kInt8)};
  const Decoded decoded = decode(framed(records), some, columns);
  CHECK(!decoded.fault);
  CHECK((numbers<int8_t>(decoded.columns[1]) == std::vector<int8_t>{4, 0, 4, 2}));
  CHECK_EQ(texts(decoded.columns[0]).size(), 4);
}

TEST(AMissingFeatureWithoutAFillIsAFault) {
  const std::vector<Buffer> absent = {{},
                                      example(),
                                      example(entry("y", ints({1}))),
                                      example(entry("x", {})),
                                      example(wire::field(1, wire::field(1, Buffer{'x'})))};
  for (const Buffer& record : absent) {
    for (const Dtype dtype : {Dtype::kInt64, Dtype::kBytes}) {
      const Decoded decoded = decode_records({example(entry("x", strings({"12345678"}))), record},
                                             {column_of("x", dtype)});
      CHECK_EQ(decoded.fault.code, FaultCode::kMissing);
      CHECK_EQ(decoded.fault.row, 1);
      CHECK_EQ(decoded.fault.column, 0);
    }
  }
}

TEST(AMissingFeatureTakesItsFill) {
  const std::vector<Column> columns = {
      with_fill(column_of("n", Dtype::kInt16, 2), wire::raw<int16_t>({-7, 8})),
      with_fill(column_of("s", Dtype::kBytes, 2), {'z', 0}),
      with_fill(column_of("t", Dtype::kBytes), {})};
  const Decoded decoded =
      decode_records({Buffer{},
                      example(entry("n", ints({1, 2})), entry("s", strings({"a", ""})),
                              entry("t", strings({"q"}))),
                      example(entry("n", {}))},
                     columns);
  CHECK(!decoded.fault);
  CHECK((numbers<int16_t>(decoded.columns[0]) == std::vector<int16_t>{-7, 8, 1, 2, -7, 8}));
  const std::string filled("z\0", 2);
  CHECK((texts(decoded.columns[1]) ==
         std::vector<std::string>{filled, filled, "a", "", filled, filled}));
  CHECK((texts(decoded.columns[2]) == std::vector<std::string>{"", "q", ""}));
}

TEST(AnEmptyListTakesTheFillToo) {
  const Column column = with_fill(column_of("x", Dtype::kFloat32), wire::raw({2.5f}));
  for (const Buffer& message : {floats({}), strings({}), strings({""}), ints({})}) {
    const Decoded decoded = decode_records({example(entry("x", message))}, {column});
    const bool fits = message != ints({});
    CHECK_EQ(decoded.fault.code, fits ? FaultCode::kNone : FaultCode::kWrongKind);
    if (fits) CHECK((numbers<float>(decoded.columns[0]) == std::vector<float>{2.5f}));
  }
  // A list that is too short is not an empty one.
  const Column pair = with_fill(column_of("x", Dtype::kFloat32, 2), wire::raw({1.0f, 2.0f}));
  CHECK_EQ(decode_records({example(entry("x", floats({1})))}, {pair}).fault.code,
           FaultCode::kWrongCount);
}

TEST(MergedExamplesAndRepeatedKeysAreReadAsProtobufReadsThem) {
  const Decoded decoded = decode_records(
      {join(example(entry("a", ints({1})), entry("b", ints({2}))), example(entry("a", ints({3})))),
       example(entry("b", ints({4})), entry("b", ints({5})), entry("a", ints({6})))},
      {column_of("a", Dtype::kInt64), column_of("b", Dtype::kInt64)});
  CHECK((numbers<int64_t>(decoded.columns[0]) == std::vector<int64_t>{3, 6}));
  CHECK((numbers<int64_t>(decoded.columns[1]) == std::vector<int64_t>{2, 5}));
}

// Cells of values in several parts point into scratch, which must live until the second phase.
TEST(ValuesInSeveralPartsSurviveToTheSecondPhase) {
  const auto pieces = [](std::string_view a, std::string_view b) {
    return example(wire::field(1, join(wire::field(1, Buffer{'x'}), wire::field(2, strings({a})),
                                       wire::field(2, strings({b})))));
  };
  std::vector<Buffer> records;
  for (int i = 0; i < 5000; ++i) records.push_back(pieces("first string", "second"));
  const Decoded decoded = decode_records(records, {column_of("x", Dtype::kBytes, 2)}, 3);
  CHECK(!decoded.fault);
  CHECK_EQ(texts(decoded.columns[0]).size(), 10'000);
  CHECK_EQ(texts(decoded.columns[0])[9999], "second");
}

TEST(ADamagedFrameIsAFaultOfItsRow) {
  const std::vector<Buffer> records(3, example(entry("x", ints({1}))));
  Buffer file = framed(records);
  file[offsets_of(records)[1] + kHeaderSize + 1] ^= 1;
  const std::vector<Column> columns = {column_of("x", Dtype::kInt64)};
  const Decoded decoded = decode(file, offsets_of(records), columns);
  CHECK_EQ(decoded.fault.code, FaultCode::kDataCrc);
  CHECK_EQ(decoded.fault.row, 1);
  CHECK_EQ(decoded.fault.offset, offsets_of(records)[1]);
  CHECK_EQ(decoded.fault.column, kNoColumn);
  const Decoded unverified = decode(file, offsets_of(records), columns, false, 1, [] {});
  CHECK_EQ(unverified.fault.code, FaultCode::kMalformed);
}

// Large records are checked while they are copied; the result is the same.
TEST(DamageAnywhereInALargeRecordIsADataCrcFault) {
  constexpr size_t kLarge = 3'000'000;
  Buffer payload(kLarge);
  for (size_t i = 0; i < kLarge; ++i) payload[i] = static_cast<uint8_t>(i * i >> 8);
  const Buffer whole = wire::raw_string(payload);
  const Buffer pieces = example(wire::field(
      1, join(wire::field(1, Buffer{'x'}), wire::field(2, Buffer{}), wire::field(2, whole))));
  for (const Buffer& record : {example(entry("x", whole), entry("y", ints({7}))), pieces}) {
    const std::vector<Column> columns = {column_of("x", Dtype::kUint8, kLarge),
                                         with_fill(column_of("y", Dtype::kInt8), {7})};
    Buffer file = framed({record});
    const std::vector<uint64_t> offsets = {0};
    const Decoded sound = decode(file, offsets, columns);
    CHECK(!sound.fault);
    CHECK(sound.columns[0].values == payload);
    CHECK((sound.columns[1].values == Buffer{7}));
    for (const size_t at : {kHeaderSize, kHeaderSize + 40, file.size() / 2, file.size() - 12,
                            file.size() - 5, file.size() - 1}) {
      file[at] ^= 4;
      const Fault fault = decode(file, offsets, columns).fault;
      CHECK_EQ(fault.code, FaultCode::kDataCrc);
      CHECK_EQ(fault.column, kNoColumn);
      file[at] ^= 4;
    }
  }
}

// The CRC of a record may be checked after it has been parsed; the result is the same.
TEST(DamageIsReportedRatherThanItsEffects) {
  const Buffer large = floats(std::vector<float>(500, 1.5f));
  const std::vector<Buffer> records(
      20, example(entry("a", large), entry("b", ints({1})), entry("c", strings({"text"}))));
  const std::vector<uint64_t> offsets = offsets_of(records);
  const std::vector<std::vector<Column>> schemas = {
      {column_of("a", Dtype::kFloat32, 500)},
      {column_of("b", Dtype::kInt64)},
      {column_of("c", Dtype::kBytes)},
      {column_of("a", Dtype::kFloat32, 1, 1), column_of("b", Dtype::kInt64)}};
  for (const std::vector<Column>& columns : schemas) {
    for (size_t at = 0; at < records[0].size(); at += at < 40 ? 1 : 211) {
      Buffer file = framed(records);
      file[offsets[7] + kHeaderSize + at] ^= 0x80;  // may no longer be an Example
      file[offsets[11] + kHeaderSize + 1] ^= 0x80;  // is not an Example
      const Fault fault = decode(file, offsets, columns, 2).fault;
      CHECK_EQ(fault.code, FaultCode::kDataCrc);
      CHECK_EQ(fault.row, 7);
      CHECK_EQ(fault.offset, offsets[7]);
      CHECK_EQ(fault.column, kNoColumn);
    }
  }
}

TEST(DamageBeforeARecordThatDoesNotFitIsReported) {
  std::vector<Buffer> records(9, example(entry("a", floats(std::vector<float>(500, 1.5f)))));
  records[6] = example(entry("z", ints({1})));
  const std::vector<uint64_t> offsets = offsets_of(records);
  Buffer file = framed(records);
  for (const uint8_t ragged : {uint8_t{0}, uint8_t{1}}) {
    const std::vector<Column> columns = {column_of("a", Dtype::kFloat32, ragged ? 1 : 500, ragged)};
    const Decoded missing = decode(file, offsets, columns);
    if (!ragged) CHECK_EQ(missing.fault.code, FaultCode::kMissing);
    if (!ragged) CHECK_EQ(missing.fault.row, 6);
    file[offsets[3] + kHeaderSize + 900] ^= 1;  // one of the floats
    const Fault fault = decode(file, offsets, columns).fault;
    CHECK_EQ(fault.code, FaultCode::kDataCrc);
    CHECK_EQ(fault.row, 3);
    file[offsets[3] + kHeaderSize + 900] ^= 1;
  }
}

TEST(LargeFieldsOfOneRecordAreCopiedInAnyOrder) {
  std::vector<float> first(300);
  std::vector<float> second(400);
  for (size_t i = 0; i < first.size(); ++i) first[i] = static_cast<float>(i);
  for (size_t i = 0; i < second.size(); ++i) second[i] = -static_cast<float>(i);
  // The value comes in two parts, so that it is joined in scratch.
  const Buffer pieces = wire::field(
      1,
      join(wire::field(1, Buffer{'p'}), wire::field(2, floats(first)), wire::field(2, Buffer{})));
  const std::vector<Buffer> records(
      5, example(entry("a", floats(first)), entry("b", floats(second)), entry("c", ints({9})),
                 pieces));
  const std::vector<Column> columns = {
      column_of("b", Dtype::kFloat32, 400), column_of("p", Dtype::kFloat32, 300),
      column_of("c", Dtype::kInt64), column_of("a", Dtype::kFloat32, 300)};
  for (const bool verify : {true, false}) {
    const Decoded decoded = decode(framed(records), offsets_of(records), columns, verify, 2, [] {});
    CHECK(!decoded.fault);
    const std::vector<float> a = numbers<float>(decoded.columns[3]);
    const std::vector<float> b = numbers<float>(decoded.columns[0]);
    const std::vector<float> p = numbers<float>(decoded.columns[1]);
    for (size_t i = 0; i < a.size(); ++i) CHECK_EQ(a[i], first[i % first.size()]);
    for (size_t i = 0; i < b.size(); ++i) CHECK_EQ(b[i], second[i % second.size()]);
    CHECK(p == a);
    CHECK((numbers<int64_t>(decoded.columns[2]) == std::vector<int64_t>(5, 9)));
  }
}

TEST(AnOffsetPastTheEndIsAFault) {
  const std::vector<Column> columns = {column_of("x", Dtype::kInt64)};
  const std::vector<uint64_t> offsets = {UINT64_MAX};
  CHECK_EQ(decode({}, offsets, columns).fault.code, FaultCode::kHeaderCut);
}

TEST(RowsAreTheSameForAnyNumberOfThreads) {
  std::vector<Buffer> records;
  for (int64_t i = 0; i < 40'000; ++i) {
    records.push_back(example(entry("i", ints({i})), entry("s", strings({std::to_string(i)}))));
  }
  const Buffer file = framed(records);
  const std::vector<uint64_t> offsets = offsets_of(records);
  const std::vector<Column> columns = {column_of("i", Dtype::kInt32),
                                       column_of("s", Dtype::kBytes)};
  for (const size_t threads : {0u, 1u, 2u, 5u}) {
    const Decoded decoded = decode(file, offsets, columns, threads);
    CHECK(!decoded.fault);
    const std::vector<int32_t> values = numbers<int32_t>(decoded.columns[0]);
    const std::vector<std::string> names = texts(decoded.columns[1]);
    for (size_t i = 0; i < records.size(); ++i) {
      CHECK_EQ(values[i], i);
      CHECK_EQ(names[i], std::to_string(i));
    }
  }
}

// 30,000 rows are several blocks; the bad ones lie in different blocks.
std::vector<Buffer> with_bad_rows(std::initializer_list<size_t> bad, const Buffer& bad_record) {
  std::vector<Buffer> records(30'000, example(entry("x", ints({1})), entry("y", ints({2, 3}))));
  for (const size_t row : bad) records[row] = bad_record;
  return records;
}

TEST(TheFaultOfTheLowestRowIsReported) {
  const std::vector<Buffer> records =
      with_bad_rows({29'999, 17'123, 4'321}, example(entry("x", ints({700}))));
  const Buffer file = framed(records);
  const std::vector<uint64_t> offsets = offsets_of(records);
  for (const size_t threads : {1u, 2u, 8u}) {
    const std::vector<Column> dense = {column_of("x", Dtype::kUint8)};
    const std::vector<Column> ragged = {column_of("x", Dtype::kUint8, 1, 1)};
    for (const std::vector<Column>& columns : {dense, ragged}) {
      const Fault fault = decode(file, offsets, columns, threads).fault;
      CHECK_EQ(fault.code, FaultCode::kOutOfRange);
      CHECK_EQ(fault.row, 4'321);
      CHECK_EQ(fault.offset, offsets[4'321]);
      CHECK_EQ(fault.found, 700);
    }
  }
}

// Ragged values are converted in the second phase, column by column.
TEST(TheFaultOfTheLowestRowIsReportedWhateverItsColumn) {
  std::vector<Buffer> records = with_bad_rows({}, {});
  records[20] = example(entry("x", ints({700})), entry("y", ints({2})));
  records[10] = example(entry("x", ints({1})), entry("y", ints({700})));
  const std::vector<Column> columns = {column_of("x", Dtype::kUint8, 1, 1),
                                       column_of("y", Dtype::kUint8, 1, 1)};
  const Fault fault = decode_records(records, columns, 2).fault;
  CHECK_EQ(fault.code, FaultCode::kOutOfRange);
  CHECK_EQ(fault.row, 10);
  CHECK_EQ(fault.column, 1);
}

TEST(CheckRecordsFindsEveryBadRowInOrder) {
  const std::vector<Buffer> records =
      with_bad_rows({29'999, 17'123, 4'321}, example(entry("x", ints({1}))));
  Buffer file = framed(records);
  const std::vector<uint64_t> offsets = offsets_of(records);
  file[offsets[9] + kHeaderSize] ^= 1;
  const std::vector<Column> columns = {column_of("x", Dtype::kUint8),
                                       column_of("y", Dtype::kUint8, 2)};
  for (const size_t threads : {1u, 3u}) {
    const std::vector<Fault> faults = check_all(file, offsets, columns, threads).faults;
    CHECK_EQ(faults.size(), 4);
    CHECK_EQ(faults[0].code, FaultCode::kDataCrc);
    const std::vector<uint64_t> rows = {9, 4'321, 17'123, 29'999};
    for (size_t i = 0; i < faults.size(); ++i) {
      CHECK_EQ(faults[i].row, rows[i]);
      CHECK_EQ(faults[i].offset, offsets[rows[i]]);
      if (i != 0) CHECK_EQ(faults[i].code, FaultCode::kMissing);
      if (i != 0) CHECK_EQ(faults[i].column, 1);
    }
  }
}

TEST(DescriptionsAreReportedWithTheFirstRowThatHasThem) {
  const auto described = [](const std::string& content) {
    return join(wire::field(14, content), example(entry("x", ints({1}))));
  };
  const Buffer plain = example(entry("x", ints({1})));
  std::vector<Buffer> records(30'000, plain);
  for (const size_t row : {0u, 1u, 2u, 3u, 20'000u}) records[row] = described("RECMAPSC one");
  for (const size_t row : {29'998u, 25'000u}) records[row] = described("RECMAPSC two");
  records[5] = described("other");
  records[6] = join(plain, wire::field(14, std::string("RECMAPSC behind")));
  records[7] = join(wire::field(15, std::string("RECMAPSC padding")), plain);
  const Buffer file = framed(records);
  const std::vector<uint64_t> offsets = offsets_of(records);
  const std::vector<Column> columns = {column_of("x", Dtype::kInt64)};
  const Descriptions expected = {{"RECMAPSC one", 0}, {"RECMAPSC two", 25'000}};
  for (const size_t threads : {1u, 3u}) {
    CHECK((decode(file, offsets, columns, threads).descriptions == expected));
    const RecordCheck check = check_all(file, offsets, columns, threads);
    CHECK(check.faults.empty());
    CHECK((check.descriptions == expected));
  }
}

TEST(RowsOfSeveralFilesComeInTheOrderAskedFor) {
  const std::vector<Buffer> odd = {example(entry("x", ints({1}))),
                                   example(entry("x", ints({3, 3})))};
  const std::vector<Buffer> even = {example(entry("x", ints({2, 2, 2})))};
  const Buffer first = wire::framed(odd);
  const Buffer second = wire::framed(even);
  const std::vector<IndexedFile> files = {{.bytes = first}, {.bytes = second}};
  const std::vector<uint64_t> offsets = {wire::offsets_of(odd)[1], 0, 0, 0};
  const std::vector<uint32_t> owners = {0, 1, 0, 1};
  const Column column = column_of("x", Dtype::kInt64, 1, 1);
  Decoder decoder({files, offsets, owners}, {&column, 1}, {.threads = 2});
  ColumnBuffers buffers;
  CHECK(!decoder.parse({&buffers, 1}));
  std::vector<uint8_t> values(decoder.total(0).items * 8);
  std::vector<int64_t> outer(5);
  buffers.values = values;
  buffers.outer = outer;
  CHECK(!decoder.copy({&buffers, 1}));
  CHECK((outer == std::vector<int64_t>{0, 2, 5, 6, 9}));
  CHECK(
      (numbers<int64_t>({values, {}, {}, {}}) == std::vector<int64_t>{3, 3, 2, 2, 2, 1, 2, 2, 2}));
}

}  // namespace
}  // namespace recmap
