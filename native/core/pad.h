// Rows of different lengths -> rows of one length, cut or filled up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace recmap {

struct PadSides {
  bool fill_left = false;  // filler before a short row, not after it
  bool keep_last = false;  // the end of a long row is kept, not its beginning
};

// Fills up with one item, again and again: `size` is a whole number of them.
void fill_items(uint8_t* out, size_t size, std::span<const uint8_t> fill);

// Writes all of `out`: offsets.size() - 1 rows of the same number of items each.
// An item takes fill.size() bytes, and `fill` is the one that fills up short rows.
// False, and nothing written, if the offsets do not fit the values or the sizes
// are no whole numbers of items and rows. The spans must not overlap.
bool pad_rows(std::span<const uint8_t> values, std::span<const int64_t> offsets,
              std::span<const uint8_t> fill, PadSides sides, std::span<uint8_t> out);

}  // namespace recmap
