// Rows by number.
#include "gather.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "check.h"

namespace recmap {
namespace {

using Buffer = std::vector<uint8_t>;
using Rows = std::vector<int64_t>;

TEST(RowsOfAnySizeComeInTheOrderAskedFor) {
  for (const size_t size : {1, 3, 40, 64, 1023, 1024, 5000, 20000}) {
    Buffer from(7 * size);
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 31 + i / size);
    Rows rows;
    for (int64_t i = 0; i < 1000; ++i) rows.push_back((i * 5) % 7);
    Buffer to(rows.size() * size);
    for (const size_t threads : {1, 3}) {
      std::fill(to.begin(), to.end(), uint8_t{0});
      CHECK(gather_rows(from, size, rows, to, threads));
      for (size_t i = 0; i < to.size(); ++i) {
        const size_t row = static_cast<size_t>(rows[i / size]);
        if (to[i] != from[row * size + i % size]) CHECK(false);
      }
    }
  }
}

TEST(ShiftedRowsComeWithTheOthers) {
  for (const size_t size : {1, 3, 40, 64, 1023, 1024, 5000, 20000}) {
    for (const size_t by : {size_t{0}, size_t{2}, size + 1}) {
      Buffer from(7 * size + by);
      for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 31 + i / size);
      Rows rows;
      for (int64_t i = 0; i < 500; ++i) rows.push_back((i * 5) % 7);
      Buffer to(rows.size() * size), later(to.size()), wanted;
      for (const int64_t row : rows) {
        const auto begin =
            from.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(row) * size + by);
        wanted.insert(wanted.end(), begin, begin + static_cast<ptrdiff_t>(size));
      }
      for (const size_t threads : {1, 3}) {
        std::fill(later.begin(), later.end(), uint8_t{0});
        CHECK(gather_rows(from, size, rows, to, threads, {by, later}));
        CHECK(later == wanted);
      }
      CHECK_EQ(static_cast<int>(to[size]), static_cast<int>(from[5 * size]));
    }
  }
}

TEST(RowsOutsideAndSizesThatDoNotFitAreRefused) {
  const Buffer from(10);
  Buffer to(4);
  CHECK(!gather_rows(from, 4, Rows{2}, to, 1));  // only two whole rows
  CHECK(!gather_rows(from, 4, Rows{-1}, to, 1));
  CHECK(!gather_rows(from, 4, Rows{0, 1}, to, 1));
  CHECK(!gather_rows(from, 0, Rows{0}, to, 1));
  CHECK(gather_rows(from, 4, Rows{1}, to, 1));
  Buffer later(4), longer(5);
  CHECK(gather_rows(from, 4, Rows{1}, to, 1, {2, later}));
  CHECK(!gather_rows(from, 4, Rows{1}, to, 1, {3, later}));  // ends behind the array
  CHECK(!gather_rows(from, 4, Rows{0}, to, 1, {SIZE_MAX, later}));
  CHECK(!gather_rows(from, 4, Rows{1}, to, 1, {1, longer}));
  CHECK(gather_rows(from, 4, Rows{}, std::span<uint8_t>{}, 1));
}

// Rows of 2 x 6 bytes in chunks of 3 rows; each holds 2 x 4 bytes of a row, or 2 x 2 at the end.
TEST(BoxesGoToTheirPlaceInEachRow) {
  Buffer left(3 * 8), right(3 * 8);
  for (size_t i = 0; i < left.size(); ++i) {
    left[i] = static_cast<uint8_t>(i);
    right[i] = static_cast<uint8_t>(100 + i);
  }
  const std::vector<Bytes> sources{left, right};
  Buffer to(3 * 12, 0xee);
  const Rows offsets{16, -1, 0};
  const std::vector<BoxAxis> axes{{2, 4, 6}};
  for (const size_t threads : {1, 3}) {
    CHECK(gather_boxes({sources, {}, offsets, axes, 4}, to, 12, 0, threads));
    const std::vector<uint32_t> owners{1, 1, 1};
    CHECK(gather_boxes({sources, owners, offsets, axes, 2}, to, 12, 4, threads));
  }
  const Buffer wanted{16, 17, 18, 19, 116, 117, 20, 21, 22, 23, 120, 121};
  CHECK(std::equal(wanted.begin(), wanted.end(), to.begin()));
  CHECK_EQ(static_cast<int>(to[12]), 0xee);  // a box that lies nowhere
  CHECK_EQ(static_cast<int>(to[28]), 100);
  // Without axes, boxes are whole rows.
  CHECK(gather_boxes({sources, {}, Rows{12, 0, 3}, {}, 12}, to, 12, 0, 2));
  CHECK_EQ(static_cast<int>(to[0]), 12);
  CHECK_EQ(static_cast<int>(to[35]), 14);
}

TEST(RowsOfDifferentLengthsFollowEachOther) {
  const Buffer values{1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const Rows offsets{1, 1, 3, 4, 5};  // of items of two bytes: none, 3 to 6, 7 and 8, 9 and 10
  const Rows rows{3, 1, 0, 1};
  Rows to(5);
  CHECK(gather_offsets({offsets, rows}, to));
  CHECK((to == Rows{0, 1, 3, 3, 5}));
  for (const size_t threads : {1, 3}) {
    Buffer out(10);
    CHECK(gather_ragged(values, {offsets, rows}, 2, to, out, threads));
    CHECK((out == Buffer{9, 10, 3, 4, 5, 6, 3, 4, 5, 6}));
  }
}

TEST(RaggedRowsThatDoNotExistOrFitAreRefused) {
  const Buffer values(10);
  Buffer out(10);
  Rows to(2);
  const auto offsets_of = [&](const Rows& offsets, const Rows& rows) {
    return gather_offsets({offsets, rows}, to);
  };
  CHECK(offsets_of({0, 4}, {0}));
  CHECK(!offsets_of({0, 4}, {1}));
  CHECK(!offsets_of({0, 4}, {-1}));
  CHECK(!offsets_of({}, {0}));
  CHECK(!offsets_of({4, 0}, {0}));
  CHECK(!offsets_of({INT64_MIN, INT64_MAX}, {0}));
  CHECK(!offsets_of({0, 4}, {0, 0}));  // no room for two
  const auto copy = [&](const Rows& offsets, const Rows& rows, const Rows& places) {
    return gather_ragged(values, {offsets, rows}, 2, places, out, 1);
  };
  CHECK(copy({0, 4}, {0}, {0, 4}));
  CHECK(copy({0, 4}, {0}, {1, 5}));
  CHECK(!copy({0, 4}, {0}, {2, 6}));  // past the output
  CHECK(!copy({2, 6}, {0}, {0, 4}));  // past the values
  CHECK(!copy({-1, 2}, {0}, {0, 3}));
  CHECK(!copy({0, 4}, {1}, {0, 4}));
  CHECK(!copy({0, 4}, {0}, {0}));
  CHECK(!copy({INT64_MIN, INT64_MAX}, {0}, {0, 1}));
}

TEST(BoxesOutsideAndSizesThatDoNotFitAreRefused) {
  const Buffer from(10);
  const std::vector<Bytes> sources{from};
  Buffer to(4);
  const std::vector<BoxAxis> axes{{2, 5, 2}};
  const std::vector<uint32_t> owners{1};
  CHECK(gather_boxes({sources, {}, Rows{3}, axes, 2}, to, 4, 0, 1));
  CHECK(!gather_boxes({sources, {}, Rows{4}, axes, 2}, to, 4, 0, 1));
  CHECK(!gather_boxes({sources, {}, Rows{INT64_MAX}, axes, 2}, to, 4, 0, 1));
  CHECK(!gather_boxes({sources, {}, Rows{3}, axes, 2}, to, 4, 1, 1));  // past its row
  CHECK(!gather_boxes({sources, {}, Rows{3, 3}, axes, 2}, to, 4, 0, 1));
  CHECK(!gather_boxes({sources, owners, Rows{3}, axes, 2}, to, 4, 0, 1));
  CHECK(!gather_boxes({{}, {}, Rows{3}, axes, 2}, to, 4, 0, 1));
  CHECK(!gather_boxes({sources, {}, Rows{3}, axes, 0}, to, 4, 0, 1));
  const std::vector<BoxAxis> endless{{SIZE_MAX, SIZE_MAX, 1}};
  CHECK(!gather_boxes({sources, {}, Rows{3}, endless, 1}, to, 4, 0, 1));
  CHECK(gather_boxes({sources, {}, Rows{}, axes, 2}, std::span<uint8_t>{}, 4, 0, 1));
}

}  // namespace
}  // namespace recmap
