// Ragged rows as rows of one length.
#include "pad.h"

#include <cstdint>
#include <vector>

#include "check.h"

namespace recmap {
namespace {

using Bytes = std::vector<uint8_t>;
using Offsets = std::vector<int64_t>;

const Bytes kValues = {1, 2, 3, 4, 5, 6};
const Offsets kRows = {0, 3, 3, 4, 6};  // 1 2 3 | | 4 | 5 6

Bytes padded(size_t width, PadSides sides) {
  Bytes out(4 * width, 77);
  const Bytes fill = {9};
  CHECK(pad_rows(kValues, kRows, fill, sides, out));
  return out;
}

TEST(ShortRowsAreFilledAndLongOnesCutOnEitherSide) {
  CHECK((padded(3, {}) == Bytes{1, 2, 3, 9, 9, 9, 4, 9, 9, 5, 6, 9}));
  CHECK((padded(3, {.fill_left = true}) == Bytes{1, 2, 3, 9, 9, 9, 9, 9, 4, 9, 5, 6}));
  CHECK((padded(2, {}) == Bytes{1, 2, 9, 9, 4, 9, 5, 6}));
  CHECK((padded(2, {.keep_last = true}) == Bytes{2, 3, 9, 9, 4, 9, 5, 6}));
  CHECK((padded(2, {.fill_left = true, .keep_last = true}) == Bytes{2, 3, 9, 9, 9, 4, 5, 6}));
  CHECK(padded(0, {}).empty());
}

TEST(ItemsOfSeveralBytesAreFilledWhole) {
  const Offsets rows = {0, 1, 2};
  const Bytes fill = {7, 8, 9};
  Bytes out(24);
  CHECK(pad_rows(kValues, rows, fill, {}, out));
  CHECK((out == Bytes{1, 2, 3, 7, 8, 9, 7, 8, 9, 7, 8, 9, 4, 5, 6, 7, 8, 9, 7, 8, 9, 7, 8, 9}));
}

TEST(RowsMayBeginAfterTheFirstValue) {
  const Offsets rows = {4, 6};
  const Bytes fill = {0};
  Bytes out(2);
  CHECK(pad_rows(kValues, rows, fill, {}, out));
  CHECK((out == Bytes{5, 6}));
}

TEST(OffsetsAndSizesThatDoNotFitAreRefused) {
  const Bytes one = {0};
  const Bytes four = {0, 0, 0, 0};
  Bytes out(8, 77);
  for (const Offsets& rows : {Offsets{}, Offsets{0, 7}, Offsets{-1, 2}, Offsets{0, 4, 2},
                              Offsets{0, INT64_MAX}, Offsets{INT64_MIN, 0}}) {
    CHECK(!pad_rows(kValues, rows, one, {}, out));
  }
  CHECK(!pad_rows(kValues, Offsets{0, 1}, four, {}, out));                     // 6 bytes of values
  CHECK(!pad_rows(Bytes{1, 2, 3, 4}, Offsets{0, 1, 1, 1}, one, {}, out));      // 8 bytes, 3 rows
  CHECK(!pad_rows(Bytes{1, 2, 3, 4}, Offsets{0, 1, 1, 1, 1}, four, {}, out));  // half items
  CHECK(!pad_rows(kValues, Offsets{0}, one, {}, out));
  CHECK(!pad_rows(kValues, kRows, Bytes{}, {}, out));
  CHECK((out == Bytes(8, 77)));
}

TEST(NoRowsGiveNothing) {
  const Bytes fill = {0};
  CHECK(pad_rows({}, Offsets{0}, fill, {}, {}));
}

}  // namespace
}  // namespace recmap
