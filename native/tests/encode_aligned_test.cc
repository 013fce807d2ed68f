// The aligned layout: records of one size, with payloads at offsets that let a mapped file be read
// as arrays.
#include <cstdint>
#include <string>
#include <vector>

#include "check.h"
#include "decode_all.h"
#include "encode_all.h"
#include "frame.h"
#include "locate.h"
#include "scan.h"
#include "slots.h"
#include "wire_builder.h"

namespace recmap {
namespace {

using wire::Buffer;

// Scans, and checks that the records are all of one size divisible by `align`.
uint64_t check_stride(const Encoded& encoded, uint64_t align) {
  CHECK(!encoded.fault);
  const Scan found = scan(encoded.file, {.anchor_every = 1, .verify = true});
  CHECK(!found.fault);
  CHECK(found.anchor_offsets == encoded.offsets);
  CHECK_EQ(found.min_length, found.max_length);
  const uint64_t stride = found.max_length + kFrameSize;
  CHECK_EQ(stride % align, 0);
  return stride;
}

// The column's payload is at one place in every record, divisible by `align`.
void check_payload(const Encoded& encoded, const Column& column, uint64_t align) {
  const uint64_t stride = check_stride(encoded, align);
  const std::vector<Slot> slots = find_slots(encoded.file, 0, {&column, 1});
  CHECK_EQ(slots.size(), 1);
  CHECK_EQ(slots[0].size, column.count * column.itemsize);
  CHECK_EQ(slots[0].offset % align, 0);
  const UniformRecords records{.count = encoded.offsets.size(), .stride = stride};
  const SlotCheck check = check_slots(encoded.file, records, {&column, 1}, slots, {.threads = 2});
  CHECK(!check.fault);
  CHECK_EQ(check.holds[0], 1);
}

constexpr uint64_t kRows = 40;

TEST(ALeadInTheFirstRecordMovesAllOthersAlike) {
  std::vector<float> floats(5 * kRows);
  for (size_t i = 0; i < floats.size(); ++i) floats[i] = static_cast<float>(i);
  const std::vector<int64_t> ints(kRows, 7);
  const EncodeColumn columns[] = {encode_dense("f", Kind::kFloat, Dtype::kFloat32, floats, 5),
                                  encode_dense("i", Kind::kInt64, Dtype::kInt64, ints)};
  std::vector<uint8_t> lead(64);
  lead[0] = kTagDescription;
  lead[1] = 62;
  for (const uint64_t align : {0u, 64u}) {
    for (const size_t count : {1u, 2u}) {
      const std::span<const EncodeColumn> some = std::span(columns).first(count);
      const Encoded plain = encode(some, kRows, align);
      const Encoded led = encode(some, kRows, align, 2, lead);
      CHECK(!led.fault);
      std::vector<uint8_t> first = lead;
      const std::vector<uint8_t> features = plain.record(0);
      first.insert(first.end(), features.begin(), features.end());
      CHECK(led.record(0) == first);
      for (size_t row = 1; row < kRows; ++row) CHECK(led.record(row) == plain.record(row));
      const Scan found = scan(led.file, {.anchor_every = 1, .verify = true});
      CHECK(!found.fault);
      CHECK_EQ(found.first_length, first.size());
      CHECK_EQ(found.min_length, features.size());

      const uint64_t stride = found.min_length + kFrameSize;
      std::vector<int64_t> rows(kRows);
      for (size_t row = 0; row < kRows; ++row) rows[row] = static_cast<int64_t>(row);
      std::vector<uint64_t> offsets(kRows);
      const IndexedFile known{.bytes = led.file, .stride = stride, .lead = lead.size()};
      CHECK(!locate({&known, 1}, {}, rows, offsets));
      CHECK(offsets == led.offsets);
      CHECK_EQ(locate_span(known, 0).size(), stride + lead.size());
      CHECK(locate_span(known, 3).data() == led.file.data() + led.offsets[3]);
      CHECK_EQ(locate_span(known, 3).size(), stride);
      CHECK(locate_span(known, kRows).empty());

      Column column;
      column.key = "f";
      column.count = 5;
      const std::vector<Slot> slots = find_slots(led.file, 0, {&column, 1});
      CHECK_EQ(slots.size(), 1);
      if (align != 0) CHECK_EQ(slots[0].offset % align, 0);
      const auto holds = [&](uint64_t lead_size) {
        const UniformRecords uniform{.count = kRows, .stride = stride, .lead = lead_size};
        return check_slots(led.file, uniform, {&column, 1}, slots, {.threads = 2});
      };
      CHECK(!holds(lead.size()).fault);
      CHECK_EQ(holds(lead.size()).holds[0], 1);
      CHECK(holds(0).fault);
    }
  }
}

// Varints of one to ten bytes.
std::vector<int64_t> ints_of_changing_size() {
  std::vector<int64_t> values;
  for (uint64_t i = 0; i < 2 * kRows; ++i) {
    values.push_back(static_cast<int64_t>(UINT64_MAX >> i * 13 % 64));
  }
  return values;
}

TEST(PayloadsAreAlignedWhateverTheKeysLength) {
  const std::vector<int64_t> ints = ints_of_changing_size();
  std::vector<float> floats(5 * kRows);
  std::vector<uint8_t> pixels(7 * kRows);
  for (size_t i = 0; i < floats.size(); ++i) floats[i] = static_cast<float>(i);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * 3);
  for (const uint64_t align : {1u, 2u, 4u, 8u, 16u, 64u, 4096u}) {
    for (size_t length = 1; length < 70; ++length) {
      const std::vector<std::string> keys = {"a", "b" + std::string(length, 'b'), "c",
                                             "d" + std::string(length / 2, 'd'), "e"};
      const std::vector<EncodeColumn> columns = {
          encode_dense(keys[0], Kind::kInt64, Dtype::kInt64, ints, 2),
          encode_dense(keys[1], Kind::kFloat, Dtype::kFloat32, floats, 5),
          encode_dense(keys[2], Kind::kInt64, Dtype::kInt64, ints, 1),
          encode_dense(keys[3], Kind::kBytes, Dtype::kUint8, pixels, 7),
          encode_dense(keys[4], Kind::kInt64, Dtype::kInt64, ints, 1)};
      const Encoded encoded = encode(columns, kRows, align);
      const std::vector<Column> read = {
          column_of(keys[0], Dtype::kInt64, 2), column_of(keys[1], Dtype::kFloat32, 5),
          column_of(keys[2], Dtype::kInt64), column_of(keys[3], Dtype::kUint8, 7),
          column_of(keys[4], Dtype::kInt64)};
      check_payload(encoded, read[1], align);
      check_payload(encoded, read[3], align);
      const Decoded decoded = decode(encoded.file, encoded.offsets, read);
      CHECK(!decoded.fault);
      CHECK(numbers<int64_t>(decoded.columns[0]) == ints);
      CHECK(numbers<float>(decoded.columns[1]) == floats);
      CHECK(decoded.columns[3].values == pixels);
      CHECK(std::equal(ints.begin(), ints.begin() + kRows,
                       numbers<int64_t>(decoded.columns[4]).begin()));
    }
  }
}

// Without an entry of varying size, a gap may be smaller than the overhead of padding.
TEST(AlignedColumnsOfFixedSizeOnly) {
  const std::vector<double> values(3 * kRows, 0.5);
  for (size_t length = 1; length < 70; ++length) {
    const std::string key(length, 'k');
    const std::vector<EncodeColumn> columns = {
        encode_dense(key, Kind::kBytes, Dtype::kFloat64, values, 3),
        encode_dense("z", Kind::kBytes, Dtype::kFloat64, values)};
    const Encoded encoded = encode(columns, kRows, 64);
    check_payload(encoded, column_of(key, Dtype::kFloat64, 3), 64);
    check_payload(encoded, column_of("z", Dtype::kFloat64), 64);
  }
}

TEST(AlignedIntsOnlyHaveAStride) {
  const std::vector<int64_t> ints = ints_of_changing_size();
  const EncodeColumn from = encode_dense("x", Kind::kInt64, Dtype::kInt64, ints, 2);
  const Encoded encoded = encode({&from, 1}, kRows, 64);
  check_stride(encoded, 64);
  const Column to = column_of("x", Dtype::kInt64, 2);
  const Decoded decoded = decode(encoded.file, encoded.offsets, {&to, 1});
  CHECK(numbers<int64_t>(decoded.columns[0]) == ints);
}

TEST(AlignedPayloadsBeginAtTheirBytes) {
  const std::vector<float> values = {1.5f};
  const EncodeColumn from = encode_dense("x", Kind::kFloat, Dtype::kFloat32, values);
  const Encoded encoded = encode({&from, 1}, 1, 16);
  CHECK((encoded.record(0) == Buffer{0x7a, 0x83, 0x80, 0x00, 0x00, 0x00, 0x00,  // padding
                                     0x0a, 0x0f, 0x0a, 0x0d, 0x0a, 0x01, 'x',  0x12,
                                     0x08, 0x12, 0x06,                    //
                                     0x0a, 0x04, 0x00, 0x00, 0xc0, 0x3f,  // at byte 32
                                     0x7a, 0x84, 0x80, 0x00, 0x00, 0x00, 0x00, 0x00}));
}

// Room is kept for ten bytes a value, so small values leave more than a padding
// field of three length bytes can cover.
TEST(AlignedLongListsOfSmallInts) {
  constexpr size_t kCount = 250'000;
  std::vector<int64_t> values(2 * kCount, 1);
  std::fill(values.begin() + kCount, values.end(), -1);
  const EncodeColumn from = encode_dense("x", Kind::kInt64, Dtype::kInt64, values, kCount);
  const Encoded encoded = encode({&from, 1}, 2, 64);
  check_stride(encoded, 64);
  const Column to = column_of("x", Dtype::kInt64, kCount);
  const Decoded decoded = decode(encoded.file, encoded.offsets, {&to, 1});
  CHECK(!decoded.fault);
  CHECK(numbers<int64_t>(decoded.columns[0]) == values);
}

TEST(AlignedUint64sOverAnInt64AreAFault) {
  const std::vector<uint64_t> values = {1, UINT64_MAX};
  const EncodeColumn from = encode_dense("x", Kind::kInt64, Dtype::kUint64, values);
  const Fault fault = encode({&from, 1}, 2, 64).fault;
  CHECK_EQ(fault.code, FaultCode::kOutOfRange);
  CHECK_EQ(fault.row, 1);
}

}  // namespace
}  // namespace recmap
