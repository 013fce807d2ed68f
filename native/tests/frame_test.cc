#include "frame.h"

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "check.h"
#include "scan.h"
#include "wire_builder.h"

namespace recmap {
namespace {

using wire::Buffer;
using wire::framed;

const Buffer kAbc = {
    0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,  // length
    0xb0, 0x99, 0x49, 0x0e,                          // its CRC
    'a',  'b',  'c',                                 //
    0x6e, 0x57, 0xf1, 0x21,                          // the data's CRC
};
const Buffer kEmptyRecord = {
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,  //
    0x29, 0x03, 0x98, 0x07, 0xd8, 0xea, 0x82, 0xa2,
};
constexpr size_t kAbcDataEnd = kHeaderSize + 3;

Fault fault_of(const Buffer& file, uint64_t offset = 0, bool verify = true) {
  Bytes data;
  Fault fault;
  const bool sound = read_frame(file, offset, verify, data, fault);
  CHECK_EQ(sound, !fault);
  return fault;
}

Scan scan_all(const Buffer& file, uint64_t every = 0) {
  return scan(file, {.anchor_every = every, .verify = true});
}

Buffer records_of_sizes(std::initializer_list<size_t> sizes) {
  std::vector<Buffer> records;
  for (const size_t size : sizes) records.emplace_back(size, static_cast<uint8_t>(size));
  return framed(records);
}

TEST(AnEmptyFileHasNoRecords) {
  const Scan result = scan({}, {.stop = 0, .anchor_every = 1, .verify = true});
  CHECK(!result.fault);
  CHECK_EQ(result.records, 0);
  CHECK_EQ(result.end, 0);
  CHECK_EQ(result.max_length, 0);
  CHECK(result.anchor_rows.empty());
  CHECK_EQ(fault_of({}).code, FaultCode::kHeaderCut);
}

TEST(OneRecordIsItsFrameAndItsData) {
  Bytes data;
  Fault fault;
  CHECK(read_frame(kAbc, 0, true, data, fault));
  CHECK_EQ(data.data() - kAbc.data(), kHeaderSize);
  CHECK_EQ(data.size(), 3);
}

TEST(AnEmptyRecordIsARecord) {
  Bytes data;
  Fault fault;
  CHECK(read_frame(kEmptyRecord, 0, true, data, fault));
  CHECK_EQ(data.size(), 0);
  CHECK_EQ(scan_all(kEmptyRecord).records, 1);
  CHECK_EQ(scan_all(kEmptyRecord).end, 16);
}

TEST(HeaderAndFooterAreWrittenAsTensorFlowWritesThem) {
  Buffer file = kAbc;
  std::fill(file.begin(), file.begin() + kHeaderSize, uint8_t{0xee});
  std::fill(file.begin() + kAbcDataEnd, file.end(), uint8_t{0xee});
  write_header(file.data(), 3);
  write_footer(file.data() + kAbcDataEnd, Bytes(file).subspan(kHeaderSize, 3));
  CHECK(file == kAbc);
  CHECK(framed({Buffer{}}) == kEmptyRecord);
}

TEST(AFileCutInsideTheHeaderLosesARecord) {
  for (size_t size = 1; size < kHeaderSize; ++size) {
    const Buffer cut(kAbc.begin(), kAbc.begin() + static_cast<std::ptrdiff_t>(size));
    const Fault fault = fault_of(cut);
    CHECK_EQ(fault.code, FaultCode::kHeaderCut);
    CHECK_EQ(fault.found, size);
    CHECK_EQ(scan_all(cut).fault.code, FaultCode::kHeaderCut);
  }
}

TEST(AFileCutInsideTheDataOrTheFooterLosesARecord) {
  for (size_t size = kHeaderSize; size < kAbc.size(); ++size) {
    const Fault fault = fault_of(Buffer(kAbc.data(), kAbc.data() + size));
    CHECK_EQ(fault.code, FaultCode::kDataCut);
    CHECK_EQ(fault.expected, kAbc.size());
    CHECK_EQ(fault.found, size);
  }
}

TEST(AFlippedBitIsNamedByTheCrcThatGuardsIt) {
  for (size_t bit = 0; bit < 8 * kAbc.size(); ++bit) {
    Buffer flipped = kAbc;
    flipped[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    const bool in_header = bit / 8 < kHeaderSize;
    const Fault fault = fault_of(flipped);
    CHECK_EQ(fault.code, in_header ? FaultCode::kLengthCrc : FaultCode::kDataCrc);
    const uint8_t* const stored = flipped.data() + (in_header ? 8 : kAbcDataEnd);
    CHECK_EQ(fault.found, load_le<uint32_t>(stored));
    if (bit / 8 >= kAbcDataEnd) CHECK_EQ(fault.expected, 0x21f1576e);
    CHECK_EQ(fault_of(flipped, 0, false).code,
             in_header ? FaultCode::kLengthCrc : FaultCode::kNone);
  }
}

TEST(ALengthNoFileCanHaveIsACutNotAnOverflow) {
  for (const uint64_t length : {uint64_t{1} << 63, (uint64_t{1} << 63) - 1, UINT64_MAX,
                                UINT64_MAX - kFrameSize, UINT64_MAX - kFrameSize + 1}) {
    Buffer file(64, 0);
    write_header(file.data(), length);
    const Fault fault = fault_of(file);
    CHECK_EQ(fault.code, FaultCode::kDataCut);
    CHECK_EQ(fault.found, 64);
    CHECK_EQ(scan_all(file).end, 0);
    CHECK_EQ(find_record(file, 0, file.size()), file.size());
  }
}

TEST(NoRecordBeginsAtOrPastTheEnd) {
  for (const uint64_t offset : {uint64_t{kAbc.size()}, uint64_t{1000}, UINT64_MAX}) {
    const Fault fault = fault_of(kAbc, offset);
    CHECK_EQ(fault.code, FaultCode::kHeaderCut);
    CHECK_EQ(fault.found, 0);
    CHECK_EQ(fault.offset, offset);
  }
}

TEST(ScanFindsRecordsEndToEnd) {
  const Buffer file = records_of_sizes({5, 0, 300, 7});
  const Scan result = scan_all(file, 1);
  CHECK(!result.fault);
  CHECK_EQ(result.records, 4);
  CHECK_EQ(result.end, file.size());
  CHECK_EQ(result.min_length, 0);
  CHECK_EQ(result.max_length, 300);
  CHECK((result.anchor_rows == std::vector<uint64_t>{0, 1, 2, 3}));
  CHECK((result.anchor_offsets == std::vector<uint64_t>{0, 21, 37, 353}));
}

TEST(ScanAnchorsTheFirstRecordAndEveryNth) {
  const Buffer file = records_of_sizes({1, 1, 1, 1, 1});
  CHECK((scan_all(file, 2).anchor_rows == std::vector<uint64_t>{0, 2, 4}));
  CHECK((scan_all(file, 2).anchor_offsets == std::vector<uint64_t>{0, 34, 68}));
  CHECK((scan_all(file, 5).anchor_rows == std::vector<uint64_t>{0}));
  CHECK((scan_all(file, UINT64_MAX).anchor_rows == std::vector<uint64_t>{0}));
  CHECK(scan_all(file, 0).anchor_rows.empty());
}

TEST(ScanEndsAtItsLimit) {
  const Buffer file = records_of_sizes({1, 1, 1});
  CHECK_EQ(scan(file, {.limit = 2, .verify = true}).records, 2);
  CHECK_EQ(scan(file, {.limit = 2, .verify = true}).end, 34);
  CHECK_EQ(scan(file, {.limit = 0, .verify = true}).end, 0);
  // A fault beyond the limit is not reported.
  CHECK(!scan(Bytes(file).first(40), {.stop = 40, .limit = 2, .verify = true}).fault);
}

TEST(ScanFindsTheRecordsThatBeginBeforeStop) {
  const Buffer file = records_of_sizes({1, 1, 1});
  CHECK_EQ(scan(file, {.stop = 17, .verify = true}).records, 1);
  CHECK_EQ(scan(file, {.stop = 18, .verify = true}).records, 2);
  CHECK_EQ(scan(file, {.stop = 18, .verify = true}).end, 34);
  CHECK_EQ(scan(file, {.begin = 17, .verify = true}).records, 2);
  CHECK_EQ(scan(file, {.begin = 34, .stop = 17, .verify = true}).records, 0);
}

TEST(ScanEndsBeforeADamagedRecord) {
  Buffer file = records_of_sizes({1, 1, 1});
  file[17 + kHeaderSize] ^= 1;
  const Scan result = scan_all(file, 1);
  CHECK_EQ(result.fault.code, FaultCode::kDataCrc);
  CHECK_EQ(result.fault.row, 1);
  CHECK_EQ(result.fault.offset, 17);
  CHECK_EQ(result.records, 1);
  CHECK_EQ(result.end, 17);
  CHECK_EQ(scan(file, {}).records, 3);
}

TEST(FindRecordGivesTheNextRecordFromEveryByte) {
  const Buffer file = records_of_sizes({5, 0, 9, 0, 1});
  const std::array<uint64_t, 6> begins = {0, 21, 37, 62, 78, file.size()};
  for (uint64_t from = 0; from <= file.size(); ++from) {
    const uint64_t next = *std::lower_bound(begins.begin(), begins.end(), from);
    CHECK_EQ(find_record(file, from, file.size()), next);
  }
}

TEST(FindRecordSkipsDamagedAndCutRecords) {
  Buffer file = records_of_sizes({4, 4, 4});
  file[2] ^= 1;
  CHECK_EQ(find_record(file, 0, file.size()), 20);
  file[20 + kHeaderSize] ^= 1;
  CHECK_EQ(find_record(file, 0, file.size()), 40);
  file.pop_back();
  CHECK_EQ(find_record(file, 0, file.size()), file.size());
}

TEST(FindRecordLooksOnlyBeforeStop) {
  const Buffer file = records_of_sizes({4, 4});
  CHECK_EQ(find_record(file, 1, 20), 20);
  CHECK_EQ(find_record(file, 1, 21), 20);
  CHECK_EQ(find_record(file, 1, 19), 19);
  CHECK_EQ(find_record(file, 21, UINT64_MAX), file.size());
  CHECK_EQ(find_record(file, UINT64_MAX, UINT64_MAX), file.size());
  CHECK_EQ(find_record({}, 0, 0), 0);
}

TEST(FindRecordGivesUpOnSoundLengthsBeforeDamagedData) {
  // Each makes the search check half a megabyte.
  Buffer file(size_t{1} << 20);
  for (size_t at = 0; at + kFrameSize < file.size() / 2; at += kHeaderSize) {
    write_header(file.data() + at, file.size() / 2 - kFrameSize);
  }
  const Buffer sound = framed({Buffer(100, uint8_t{1})});
  file.insert(file.end(), sound.begin(), sound.end());
  // A small record after them is still found.
  CHECK_EQ(find_record(file, 0, file.size()), size_t{1} << 20);
}

}  // namespace
}  // namespace recmap
