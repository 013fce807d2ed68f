// Ragged rows -> rows of one length, cut or filled up. All functions are safe to call from any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace recmap {

struct PadSides {
  bool fill_left = false;  // fill before a short row, not after it
  bool keep_last = false;  // keep the end of a long row, not its beginning
};

// Repeats one item over `size` bytes, a whole number of items.
void fill_items(uint8_t* out, size_t size, std::span<const uint8_t> fill);

// Writes all of `out`: offsets.size() - 1 rows of the same number of items each. `fill` is the item
// that fills up short rows; all items have its size. Returns false and writes nothing if the
// offsets do not fit the values, or the sizes are not whole numbers of items and rows. The spans
// must not overlap.
bool pad_rows(std::span<const uint8_t> values, std::span<const int64_t> offsets,
              std::span<const uint8_t> fill, PadSides sides, std::span<uint8_t> out);

}  // namespace recmap
