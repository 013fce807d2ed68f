#include "locate.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "check.h"
#include "scan.h"
#include "wire_builder.h"

namespace recmap {
namespace {

using wire::Buffer;
using wire::framed;

constexpr int64_t kRecords = 23;

std::vector<Buffer> some_records() {
  std::vector<Buffer> records;
  for (size_t i = 0; i < kRecords; ++i) records.emplace_back(i * 7 % 5, uint8_t{0xaa});
  return records;
}

IndexedFile index_by(Bytes file, const Scan& anchors) {
  return {
      .bytes = file, .anchor_rows = anchors.anchor_rows, .anchor_offsets = anchors.anchor_offsets};
}

struct Located {
  std::vector<uint64_t> offsets;
  Fault fault;
};

Located locate_by(Bytes file, const Scan& anchors, const std::vector<int64_t>& rows) {
  Located located{std::vector<uint64_t>(rows.size()), {}};
  const IndexedFile indexed = index_by(file, anchors);
  located.fault = locate({&indexed, 1}, {}, rows, located.offsets);
  return located;
}

Located locate_every(Bytes file, uint64_t every, const std::vector<int64_t>& rows) {
  return locate_by(file, scan(file, {.anchor_every = every, .verify = true}), rows);
}

void check_located(const std::vector<int64_t>& rows) {
  const Buffer file = framed(some_records());
  const std::vector<uint64_t> offsets = wire::offsets_of(some_records());
  for (uint64_t every = 1; every <= kRecords + 1; ++every) {
    const Located located = locate_every(file, every, rows);
    CHECK(!located.fault);
    for (size_t i = 0; i < rows.size(); ++i) {
      CHECK_EQ(located.offsets[i], offsets[static_cast<size_t>(rows[i])]);
    }
  }
}

std::vector<int64_t> all_rows() {
  std::vector<int64_t> rows(kRecords);
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

TEST(LocateNoRows) { check_located({}); }

TEST(LocateAscendingRows) {
  check_located(all_rows());
  check_located({0, 3, 4, 11, 22});
  check_located({22});
}

TEST(LocateDescendingRows) {
  std::vector<int64_t> rows = all_rows();
  std::reverse(rows.begin(), rows.end());
  check_located(rows);
}

TEST(LocateRepeatedRows) {
  check_located({0, 0, 0});
  check_located({5, 5, 6, 5, 6, 6, 22, 22, 0, 22});
}

TEST(LocateRowsInAnyOrder) {
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < 200; ++i) rows.push_back(i * i * 31 % kRecords);
  check_located(rows);
}

// Rows are handed to threads in blocks of thousands.
TEST(LocateIsTheSameForAnyNumberOfThreads) {
  const Buffer file = framed(some_records());
  const std::vector<uint64_t> offsets = wire::offsets_of(some_records());
  const Scan anchors = scan(file, {.anchor_every = 5, .verify = true});
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < 20'000; ++i) rows.push_back(i * 7919 % kRecords);
  std::vector<uint64_t> found(rows.size());
  const IndexedFile indexed = index_by(file, anchors);
  for (const size_t threads : {0u, 1u, 3u, 8u}) {
    CHECK(!locate({&indexed, 1}, {}, rows, found, threads));
    for (size_t i = 0; i < rows.size(); ++i) {
      CHECK_EQ(found[i], offsets[static_cast<size_t>(rows[i])]);
    }
  }
  for (const size_t bad : {19'000u, 9'000u, 8'999u}) {
    rows[bad] = 1000;
    for (const size_t threads : {1u, 3u}) {
      CHECK_EQ(locate({&indexed, 1}, {}, rows, found, threads).row, bad);
    }
  }
}

TEST(LocateWithUnevenAnchors) {
  const Buffer file = framed(some_records());
  const std::vector<uint64_t> offsets = wire::offsets_of(some_records());
  Scan anchors;
  for (const uint64_t row : {0u, 1u, 2u, 9u, 20u}) {
    anchors.anchor_rows.push_back(row);
    anchors.anchor_offsets.push_back(offsets[row]);
  }
  const Located located = locate_by(file, anchors, all_rows());
  CHECK(!located.fault);
  CHECK(located.offsets == offsets);
}

// Damage is skipped when anchors are made, so what one anchor leads to need not reach the next.
TEST(LocateDoesNotReadAcrossTheGapBetweenTwoAnchors) {
  const Buffer head = framed({Buffer(3, 1), Buffer(3, 2)});
  const Buffer tail = framed({Buffer(3, 3), Buffer(3, 4)});
  const Buffer file = wire::join(head, Buffer(50, 0xff), tail);
  Scan anchors;
  anchors.anchor_rows = {0, 2};
  anchors.anchor_offsets = {0, head.size() + 50};
  const Located located = locate_by(file, anchors, {0, 1, 2, 3, 1});
  CHECK(!located.fault);
  CHECK((located.offsets == std::vector<uint64_t>{0, 19, 88, 107, 19}));
}

TEST(LocateStopsAtDamageAndNamesThePosition) {
  Buffer file = framed(some_records());
  const std::vector<uint64_t> offsets = wire::offsets_of(some_records());
  const Scan anchors = scan(file, {.anchor_every = 10, .verify = true});
  file[offsets[13]] ^= 1;
  const Located located = locate_by(file, anchors, {21, 12, 13, 14, 2});
  CHECK_EQ(located.fault.code, FaultCode::kLengthCrc);
  CHECK_EQ(located.fault.row, 3);
  CHECK_EQ(located.fault.offset, offsets[13]);
}

TEST(LocateFindsNoRowBeyondTheLast) {
  const Buffer file = framed(some_records());
  for (const int64_t row : {kRecords + 1, kRecords + 100, INT64_MAX, INT64_MIN, int64_t{-1}}) {
    for (const uint64_t every : {1u, 4u, 100u}) {
      CHECK_EQ(locate_every(file, every, {row}).fault.code, FaultCode::kHeaderCut);
      const Located located = locate_every(file, every, {0, row});
      CHECK_EQ(located.fault.code, FaultCode::kHeaderCut);
      CHECK_EQ(located.fault.row, 1);
    }
  }
}

TEST(LocateWithAnchorsThatDoNotFitTheFile) {
  const Buffer file = framed(some_records());
  CHECK_EQ(locate_by(file, Scan{}, {0}).fault.code, FaultCode::kChanged);
  Scan anchors;
  anchors.anchor_rows = {3};
  anchors.anchor_offsets = {UINT64_MAX};
  CHECK_EQ(locate_by(file, anchors, {2}).fault.code, FaultCode::kChanged);
  CHECK_EQ(locate_by(file, anchors, {4}).fault.code, FaultCode::kHeaderCut);
}

TEST(ASpanHoldsTheRowAndEndsAtTheNextAnchor) {
  const Buffer file = framed(some_records());
  const std::vector<uint64_t> offsets = wire::offsets_of(some_records());
  const Scan anchors = scan(file, {.anchor_every = 4, .verify = true});
  const IndexedFile indexed = index_by(file, anchors);
  for (uint64_t row = 0; row < kRecords; ++row) {
    const Bytes span = locate_span(indexed, row);
    const uint64_t next = (row / 4 + 1) * 4;
    CHECK(span.data() == file.data() + offsets[row / 4 * 4]);
    CHECK_EQ(span.size(), (next < kRecords ? offsets[next] : file.size()) - offsets[row / 4 * 4]);
  }
  const IndexedFile even{.bytes = file, .stride = 10};
  CHECK(locate_span(even, 2).data() == file.data() + 20);
  CHECK_EQ(locate_span(even, 2).size(), 10u);
  CHECK(locate_span(even, file.size() / 10).empty());
  CHECK(locate_span(even, UINT64_MAX).empty());
}

TEST(SpansOfAnchorsOutsideTheFileAreEmpty) {
  const Buffer file = framed(some_records());
  const std::vector<uint64_t> rows = {5, 6, 7};
  const std::vector<uint64_t> offsets = {40, 30, file.size() + 100};
  const IndexedFile known{.bytes = file, .anchor_rows = rows, .anchor_offsets = offsets};
  CHECK(locate_span(known, 4).empty());
  CHECK(locate_span(known, 5).empty());
  CHECK_EQ(locate_span(known, 6).size(), file.size() - 30);
  CHECK(locate_span(known, 7).empty());
  CHECK(locate_span({.bytes = file}, 0).empty());
}

TEST(LocateRowsOfSeveralFiles) {
  const std::vector<Buffer> records = some_records();
  const std::vector<Buffer> alike(6, Buffer(3, uint8_t{0xbb}));
  const Buffer files[] = {framed(records), framed(alike), framed(records)};
  const Scan anchors = scan(files[0], {.anchor_every = 4, .verify = true});
  const IndexedFile known[] = {index_by(files[0], anchors),
                               {.bytes = files[1], .stride = 3 + kFrameSize},
                               index_by(files[2], anchors)};
  std::vector<int64_t> rows;
  std::vector<uint32_t> owners;
  std::vector<uint64_t> expected;
  for (int64_t i = 0; i < 10'000; ++i) {
    // In order and from file to file, then in any order.
    const auto owner = static_cast<uint32_t>(i < 60 ? i / 20 : i * i * 7 % 3);
    const int64_t row = (i < 60 ? i % 20 : i * i * 31) % (owner == 1 ? 6 : kRecords);
    rows.push_back(row);
    owners.push_back(owner);
    expected.push_back(wire::offsets_of(owner == 1 ? alike : records)[static_cast<size_t>(row)]);
  }
  std::vector<uint64_t> found(rows.size());
  for (const size_t threads : {1u, 3u}) {
    CHECK(!locate(known, owners, rows, found, threads));
    CHECK(found == expected);
  }
  for (const size_t bad : {9'000u, 8'999u, 70u}) {
    rows[bad] = 1000;
    owners[bad] = 2;
    for (const size_t threads : {1u, 3u}) {
      CHECK_EQ(locate(known, owners, rows, found, threads).row, bad);
    }
  }
}

TEST(RowsAreNumberedWithinTheirFiles) {
  const std::vector<int64_t> starts = {0, 3, 3, 10, 11};  // the second file is empty
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < 5000; ++i) rows.push_back(i * 7919 % 11);
  for (const size_t threads : {1, 3}) {
    std::vector<int64_t> numbers(rows.size(), -1);
    std::vector<uint32_t> owners(rows.size(), 99);
    CHECK(divide_among_files(starts, rows, numbers, owners, threads));
    for (size_t i = 0; i < rows.size(); ++i) {
      const uint32_t owner = rows[i] < 3 ? 0 : rows[i] < 10 ? 2 : 3;
      CHECK_EQ(owners[i], owner);
      CHECK_EQ(numbers[i], rows[i] - starts[owner]);
    }
  }
  for (const int64_t wrong : {int64_t{-1}, int64_t{11}, INT64_MAX, INT64_MIN}) {
    std::vector<int64_t> one = {wrong}, numbers(1);
    std::vector<uint32_t> owners(1);
    CHECK(!divide_among_files(starts, one, numbers, owners, 1));
  }
}

}  // namespace
}  // namespace recmap
