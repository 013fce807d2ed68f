// Rows by number.
#include "gather.h"

#include <cstdint>
#include <vector>

#include "check.h"

namespace recmap {
namespace {

using Bytes = std::vector<uint8_t>;
using Rows = std::vector<int64_t>;

TEST(RowsOfAnySizeComeInTheOrderAskedFor) {
  for (const size_t size : {1, 3, 40, 64, 1023, 1024, 5000, 20000}) {
    Bytes from(7 * size);
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<uint8_t>(i * 31 + i / size);
    Rows rows;
    for (int64_t i = 0; i < 1000; ++i) rows.push_back((i * 5) % 7);
    Bytes to(rows.size() * size);
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

TEST(RowsOutsideAndSizesThatDoNotFitAreRefused) {
  const Bytes from(10);
  Bytes to(4);
  CHECK(!gather_rows(from, 4, Rows{2}, to, 1));  // only two whole rows
  CHECK(!gather_rows(from, 4, Rows{-1}, to, 1));
  CHECK(!gather_rows(from, 4, Rows{0, 1}, to, 1));
  CHECK(!gather_rows(from, 0, Rows{0}, to, 1));
  CHECK(gather_rows(from, 4, Rows{1}, to, 1));
  CHECK(gather_rows(from, 4, Rows{}, std::span<uint8_t>{}, 1));
}

}  // namespace
}  // namespace recmap
