#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "check.h"
#include "frame.h"
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

struct Located {
  std::vector<uint64_t> offsets;
  Fault fault;
};

Located locate_by(Bytes file, const Scan& marks, const std::vector<int64_t>& rows) {
  Located located{std::vector<uint64_t>(rows.size()), {}};
  located.fault = locate(file, marks.mark_rows, marks.mark_offsets, rows, located.offsets);
  return located;
}

Located locate_every(Bytes file, uint64_t every, const std::vector<int64_t>& rows) {
  return locate_by(file, scan(file, 0, file.size(), UINT64_MAX, every, true), rows);
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
  const Scan marks = scan(file, 0, file.size(), UINT64_MAX, 5, true);
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < 20'000; ++i) rows.push_back(i * 7919 % kRecords);
  std::vector<uint64_t> found(rows.size());
  for (const size_t threads : {0u, 1u, 3u, 8u}) {
    CHECK(!locate(file, marks.mark_rows, marks.mark_offsets, rows, found, threads));
    for (size_t i = 0; i < rows.size(); ++i) {
      CHECK_EQ(found[i], offsets[static_cast<size_t>(rows[i])]);
    }
  }
  for (const size_t bad : {19'000u, 9'000u, 8'999u}) {
    rows[bad] = 1000;
    for (const size_t threads : {1u, 3u}) {
      CHECK_EQ(locate(file, marks.mark_rows, marks.mark_offsets, rows, found, threads).row, bad);
    }
  }
}

TEST(LocateWithUnevenMarks) {
  const Buffer file = framed(some_records());
  const std::vector<uint64_t> offsets = wire::offsets_of(some_records());
  Scan marks;
  for (const uint64_t row : {0u, 1u, 2u, 9u, 20u}) {
    marks.mark_rows.push_back(row);
    marks.mark_offsets.push_back(offsets[row]);
  }
  const Located located = locate_by(file, marks, all_rows());
  CHECK(!located.fault);
  CHECK(located.offsets == offsets);
}

// Damage before a mark was dropped when the marks were made: the records of two
// marks need not touch.
TEST(LocateDoesNotReadWhatLiesBetweenTheRecordsOfTwoMarks) {
  const Buffer head = framed({Buffer(3, 1), Buffer(3, 2)});
  const Buffer tail = framed({Buffer(3, 3), Buffer(3, 4)});
  const Buffer file = wire::join(head, Buffer(50, 0xff), tail);
  Scan marks;
  marks.mark_rows = {0, 2};
  marks.mark_offsets = {0, head.size() + 50};
  const Located located = locate_by(file, marks, {0, 1, 2, 3, 1});
  CHECK(!located.fault);
  CHECK((located.offsets == std::vector<uint64_t>{0, 19, 88, 107, 19}));
}

TEST(LocateStopsAtDamageAndNamesThePosition) {
  Buffer file = framed(some_records());
  const std::vector<uint64_t> offsets = wire::offsets_of(some_records());
  const Scan marks = scan(file, 0, file.size(), UINT64_MAX, 10, true);
  file[offsets[13]] ^= 1;
  const Located located = locate_by(file, marks, {21, 12, 13, 14, 2});
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

TEST(LocateWithMarksThatDoNotFitTheFile) {
  const Buffer file = framed(some_records());
  CHECK_EQ(locate_by(file, Scan{}, {0}).fault.code, FaultCode::kChanged);
  Scan marks;
  marks.mark_rows = {3};
  marks.mark_offsets = {UINT64_MAX};
  CHECK_EQ(locate_by(file, marks, {2}).fault.code, FaultCode::kChanged);
  CHECK_EQ(locate_by(file, marks, {4}).fault.code, FaultCode::kHeaderCut);
}

TEST(AStretchHoldsTheRowAndNoMoreThanItsMarkDoes) {
  const Buffer file = framed(some_records());
  const std::vector<uint64_t> offsets = wire::offsets_of(some_records());
  const Scan marks = scan(file, 0, file.size(), UINT64_MAX, 4, true);
  const KnownFile known{file, 0, marks.mark_rows, marks.mark_offsets};
  for (uint64_t row = 0; row < kRecords; ++row) {
    const Bytes stretch = stretch_of(known, row);
    const uint64_t next = (row / 4 + 1) * 4;
    CHECK(stretch.data() == file.data() + offsets[row / 4 * 4]);
    CHECK_EQ(stretch.size(),
             (next < kRecords ? offsets[next] : file.size()) - offsets[row / 4 * 4]);
  }
  const KnownFile even{file, 10, {}, {}};
  CHECK(stretch_of(even, 2).data() == file.data() + 20);
  CHECK_EQ(stretch_of(even, 2).size(), 10u);
  CHECK(stretch_of(even, file.size() / 10).empty());
  CHECK(stretch_of(even, UINT64_MAX).empty());
}

TEST(StretchesOfMarksOutsideOfTheFileAreNone) {
  const Buffer file = framed(some_records());
  const std::vector<uint64_t> rows = {5, 6, 7};
  const std::vector<uint64_t> offsets = {40, 30, file.size() + 100};
  const KnownFile known{file, 0, rows, offsets};
  CHECK(stretch_of(known, 4).empty());
  CHECK(stretch_of(known, 5).empty());
  CHECK_EQ(stretch_of(known, 6).size(), file.size() - 30);
  CHECK(stretch_of(known, 7).empty());
  CHECK(stretch_of({file, 0, {}, {}}, 0).empty());
}

TEST(LocateRowsOfSeveralFiles) {
  const std::vector<Buffer> records = some_records();
  const std::vector<Buffer> alike(6, Buffer(3, uint8_t{0xbb}));
  const Buffer files[] = {framed(records), framed(alike), framed(records)};
  const Scan marks = scan(files[0], 0, files[0].size(), UINT64_MAX, 4, true);
  const KnownFile known[] = {{files[0], 0, marks.mark_rows, marks.mark_offsets},
                             {files[1], 3 + kFrameSize, {}, {}},
                             {files[2], 0, marks.mark_rows, marks.mark_offsets}};
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

}  // namespace
}  // namespace recmap
