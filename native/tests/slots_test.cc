#include "slots.h"

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
using wire::field;
using wire::floats;
using wire::framed;
using wire::ints;
using wire::join;
using wire::strings;

TEST(SlotsArePlainPayloads) {
  const Buffer pieces =
      field(1, join(field(1, Buffer{'p'}), field(2, Buffer{}), field(2, ints({1}))));
  const Buffer record = example(entry("f", floats({1, 2})), entry("s", strings({"abc"})),
                                entry("two", strings({"a", "b"})), pieces);
  const Buffer file = framed({Buffer{}, record});
  const std::vector<Column> columns = {
      column_of("s", Dtype::kBytes), column_of("f", Dtype::kFloat32, 2),
      column_of("two", Dtype::kBytes, 2), column_of("absent", Dtype::kInt64),
      column_of("p", Dtype::kInt64)};
  const std::vector<Slot> slots = find_slots(file, 16, columns);
  CHECK_EQ(slots.size(), 5);
  CHECK((slots[0] == Slot{12 + 2 + 19 + 11, 3, Kind::kBytes}));
  CHECK((slots[1] == Slot{12 + 2 + 11, 8, Kind::kFloat}));
  for (const size_t none : {2u, 3u, 4u}) CHECK_EQ(slots[none].kind, Kind::kNone);
  CHECK(find_slots(file, 17, columns).empty());
  CHECK(find_slots(framed({Buffer{0xff}}), 0, columns).empty());
}

struct Strided {
  std::vector<Buffer> records;
  uint64_t stride = 0;
  std::vector<Column> columns = {column_of("a", Dtype::kInt64), column_of("b", Dtype::kBytes)};

  explicit Strided(size_t rows)
      : records(rows, example(entry("a", ints({1})), entry("b", strings({"z"})))),
        stride(records[0].size() + kFrameSize) {}

  SlotCheck check(bool verify = true) const { return check_file(framed(records), verify); }

  SlotCheck check_file(const Buffer& file, bool verify = true) const {
    const std::vector<Slot> slots = find_slots(file, 0, columns);
    return check_slots(file, {.count = records.size(), .stride = stride}, columns, slots,
                       {.verify = verify, .threads = 2});
  }
};

TEST(SlotsHoldWhereEveryRecordIsAlike) {
  Strided rows(5'000);
  CHECK(!rows.check().fault);
  CHECK((rows.check().holds == std::vector<uint8_t>{1, 1}));
}

TEST(ASlotFailsWhereARecordPutsItsPayloadElsewhere) {
  Strided rows(30'000);
  rows.records[29'000] = example(entry("b", strings({"z"})), entry("a", ints({1})));
  CHECK((rows.check().holds == std::vector<uint8_t>{0, 0}));
  rows.records[29'000] = example(entry("a", ints({1})), entry("b", ints({2})));
  CHECK((rows.check().holds == std::vector<uint8_t>{1, 0}));
  rows.records[29'000] = example(entry("x", ints({1})), entry("b", strings({"z"})));
  CHECK((rows.check().holds == std::vector<uint8_t>{0, 1}));
  CHECK(!rows.check().fault);
}

TEST(ASlotOfNoKindIsNotHeld) {
  Strided rows(3);
  rows.columns[0].key = "absent";
  CHECK((rows.check().holds == std::vector<uint8_t>{0, 1}));
}

TEST(SlotsOfDamagedRecordsAreAFault) {
  Strided rows(30'000);
  for (const size_t row : {29'000u, 12'345u}) rows.records[row] = Buffer(rows.records[0].size());
  const Fault malformed = rows.check().fault;
  CHECK_EQ(malformed.code, FaultCode::kMalformed);
  CHECK_EQ(malformed.row, 12'345);
  CHECK_EQ(malformed.offset, 12'345 * rows.stride);
  Buffer file = framed(rows.records);
  file[7 * rows.stride + kHeaderSize] ^= 1;
  CHECK_EQ(rows.check_file(file).fault.code, FaultCode::kDataCrc);
  CHECK_EQ(rows.check_file(file).fault.row, 7);
  rows.records[3].push_back(0);
  CHECK_EQ(rows.check().fault.code, FaultCode::kChanged);
  CHECK_EQ(rows.check().fault.row, 3);
}

}  // namespace
}  // namespace recmap
