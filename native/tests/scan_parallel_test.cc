// Each thread scans a span of at least a mebibyte, so these buffers are large.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "check.h"
#include "scan.h"
#include "wire_builder.h"

namespace recmap {
namespace {

using wire::Buffer;
using wire::framed;
using wire::join;

constexpr size_t kMebibyte = size_t{1} << 20;

class Noise {
 public:
  explicit Noise(uint32_t seed) : state_(seed) {}

  uint32_t next() {
    state_ = state_ * 1664525u + 1013904223u;
    return state_ >> 8;
  }

  Buffer bytes(size_t n) {
    Buffer bytes(n);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(next());
    return bytes;
  }

 private:
  uint32_t state_;
};

// Records of many sizes, from empty to a tenth of a span.
Buffer mixed_records(size_t at_least, uint32_t seed = 1) {
  Noise noise(seed);
  std::vector<Buffer> records;
  for (size_t total = 0; total < at_least; total += records.back().size() + kFrameSize) {
    const size_t largest = size_t{1} << noise.next() % 17;
    records.push_back(noise.bytes(noise.next() % largest));
  }
  return framed(records);
}

void check_same(const Scan& a, const Scan& b) {
  CHECK_EQ(a.begin, b.begin);
  CHECK_EQ(a.end, b.end);
  CHECK_EQ(a.records, b.records);
  CHECK_EQ(a.min_length, b.min_length);
  CHECK_EQ(a.max_length, b.max_length);
  CHECK_EQ(a.fault.code, b.fault.code);
  CHECK_EQ(a.fault.row, b.fault.row);
  CHECK_EQ(a.fault.offset, b.fault.offset);
  CHECK_EQ(a.fault.expected, b.fault.expected);
  CHECK_EQ(a.fault.found, b.fault.found);
}

void check_parallel_equals_scan(Bytes file, uint64_t begin, uint64_t stop) {
  for (const bool verify : {true, false}) {
    ScanRequest request{.begin = begin, .stop = stop, .anchor_every = 1, .verify = verify};
    const Scan expected = scan(file, request);
    for (const size_t threads : {1u, 2u, 3u, 4u, 7u, 64u}) {
      request.threads = threads;
      const Scan found = scan(file, request);
      check_same(found, expected);
      CHECK(found.anchor_rows == expected.anchor_rows);
      CHECK(found.anchor_offsets == expected.anchor_offsets);
    }
  }
}

void check_parallel_equals_scan(Bytes file) { check_parallel_equals_scan(file, 0, file.size()); }

TEST(ParallelScanOfMixedRecords) {
  const Buffer file = mixed_records(6 * kMebibyte);
  check_parallel_equals_scan(file);
  CHECK_EQ(scan(file, {.verify = true, .threads = 4}).end, file.size());
}

TEST(ParallelScanOfSmallAndEmptyFiles) {
  check_parallel_equals_scan({});
  check_parallel_equals_scan(framed({Buffer{}}));
  check_parallel_equals_scan(mixed_records(kMebibyte));
  CHECK(!scan({}, {.stop = 0, .anchor_every = 1, .verify = true, .threads = 0}).fault);
}

TEST(ParallelScanOfEmptyRecordsOnly) {
  check_parallel_equals_scan(framed(std::vector<Buffer>(3 * kMebibyte / kFrameSize)));
}

TEST(ParallelScanOfAWindow) {
  const Buffer file = mixed_records(6 * kMebibyte);
  const Scan all = scan(file, {.anchor_every = 1});
  const uint64_t begin = all.anchor_offsets[all.records / 8];
  const uint64_t stop = all.anchor_offsets[all.records / 8 * 7] + 1;
  check_parallel_equals_scan(file, begin, stop);
  check_parallel_equals_scan(file, begin, UINT64_MAX);
  check_parallel_equals_scan(file, stop, begin);
}

// Threads enter the nested file, at records that are sound but do not belong to the outer one.
TEST(ParallelScanIsNotLedAstrayByATfrecordInsideARecord) {
  const Buffer nested = mixed_records(5 * kMebibyte, 2);
  const Buffer inside = framed({nested});
  check_parallel_equals_scan(inside);
  check_parallel_equals_scan(
      join(mixed_records(kMebibyte / 2, 3), inside, mixed_records(kMebibyte, 4)));
  CHECK_EQ(scan(inside, {.anchor_every = 1, .verify = true, .threads = 5}).records, 1);
}

// A thread reaches the damaged end of the nested file, and must not report it.
TEST(ParallelScanIgnoresFaultsInsideARecord) {
  Buffer nested = mixed_records(2 * kMebibyte, 5);
  nested.erase(nested.end() - 3, nested.end());
  const Buffer file = join(framed({nested}), mixed_records(2 * kMebibyte, 6));
  check_parallel_equals_scan(file);
  CHECK(!scan(file, {.verify = true, .threads = 4}).fault);
}

TEST(ParallelScanOfARecordLargerThanASpan) {
  const Buffer large = framed({Noise(7).bytes(4 * kMebibyte)});
  check_parallel_equals_scan(large);
  check_parallel_equals_scan(
      join(mixed_records(kMebibyte, 8), large, mixed_records(kMebibyte / 2, 9)));
}

TEST(ParallelScanEndsAtADamagedRecordAnywhere) {
  const Buffer sound = mixed_records(4 * kMebibyte, 10);
  const Scan all = scan(sound, {.anchor_every = 1});
  for (uint64_t eighth = 0; eighth < 8; ++eighth) {
    const uint64_t at = all.anchor_offsets[all.records * eighth / 8];
    for (const uint64_t byte : {uint64_t{3}, uint64_t{kHeaderSize}}) {
      Buffer damaged = sound;
      damaged[at + byte] ^= 0x40;
      check_parallel_equals_scan(damaged);
    }
  }
}

// A thread that looks for its first record skips a damaged one, which must still be reported.
TEST(ParallelScanEndsAtADamagedRecordWhereAThreadEnters) {
  const Buffer sound = mixed_records(4 * kMebibyte, 13);
  for (const uint64_t spans : {2u, 3u, 4u}) {
    for (uint64_t span = 1; span < spans; ++span) {
      const uint64_t entry = find_record(sound, sound.size() / spans * span, sound.size());
      Buffer damaged = sound;
      damaged[entry + 9] ^= 1;
      check_parallel_equals_scan(damaged);
      CHECK_EQ(scan(damaged, {.verify = true, .threads = spans}).fault.offset, entry);
    }
  }
}

TEST(ParallelScanOfACutFile) {
  const Buffer sound = mixed_records(3 * kMebibyte, 11);
  const uint64_t last = scan(sound, {.anchor_every = 1}).anchor_offsets.back();
  for (const uint64_t size : {last + 5, last + kHeaderSize, sound.size() - 1}) {
    check_parallel_equals_scan(Bytes(sound).first(size));
  }
}

// Each thread counts from its own first record, so anchors may lie closer together than asked for,
// never farther apart.
TEST(ParallelScanAnchorsAreRightAndNeverTooFarApart) {
  const Buffer file = mixed_records(4 * kMebibyte, 12);
  const std::vector<uint64_t> offsets = scan(file, {.anchor_every = 1}).anchor_offsets;
  for (const uint64_t every : {2u, 7u, 100u}) {
    const Scan found = scan(file, {.anchor_every = every, .verify = true, .threads = 4});
    check_same(found, scan(file, {.anchor_every = every, .verify = true}));
    CHECK_EQ(found.anchor_rows.size(), found.anchor_offsets.size());
    CHECK_EQ(found.anchor_rows.front(), 0);
    for (size_t i = 0; i < found.anchor_rows.size(); ++i) {
      const uint64_t row = found.anchor_rows[i];
      const uint64_t next =
          i + 1 < found.anchor_rows.size() ? found.anchor_rows[i + 1] : found.records;
      CHECK_EQ(found.anchor_offsets[i], offsets[row]);
      CHECK(row < next && next - row <= every);
    }
  }
}

// Threads then enter where the next record would begin.
TEST(RecordsOfOneSizeAreScannedAsByOneThread) {
  Noise noise(11);
  for (const size_t size : {size_t{30}, size_t{4096}, size_t{300'000}, 3 * kMebibyte}) {
    for (const size_t lead : {size_t{0}, size_t{77}}) {
      std::vector<Buffer> records;
      for (size_t total = 0; total < 7 * kMebibyte; total += size) {
        records.push_back(noise.bytes(size + (records.empty() ? lead : 0)));
      }
      for (int damage = 0; damage < 4; ++damage) {
        // Another size in the middle, a flipped bit, or a cut end.
        if (damage == 1) records[records.size() / 2] = noise.bytes(size / 2);
        Buffer file = framed(records);
        if (damage == 2) file[noise.next() % file.size()] ^= 1;
        if (damage == 3) file.resize(file.size() - 1 - noise.next() % size);
        for (const bool verify : {false, true}) {
          ScanRequest request{.stop = file.size(), .anchor_every = 1, .verify = verify};
          const Scan alone = scan(file, request);
          request.threads = 3;
          const Scan together = scan(file, request);
          check_same(together, alone);
          CHECK(together.anchor_offsets == alone.anchor_offsets);
        }
      }
    }
  }
}

}  // namespace
}  // namespace recmap
