#include "pad.h"

#include <algorithm>
#include <cstring>

#include "ragged_offsets.h"

namespace recmap {

// Most fill values are zero, or one byte repeated, and memset is fastest. Otherwise what has been
// written is doubled, because copying a few bytes costs as much as copying many.
void fill_items(uint8_t* out, size_t size, std::span<const uint8_t> fill) {
  if (size == 0) return;
  if (std::equal(fill.begin() + 1, fill.end(), fill.begin())) {
    std::memset(out, fill[0], size);
    return;
  }
  std::memcpy(out, fill.data(), fill.size());
  for (size_t done = fill.size(); done < size;) {
    const size_t more = std::min(done, size - done);
    std::memcpy(out + done, out, more);
    done += more;
  }
}

bool pad_rows(std::span<const uint8_t> values, std::span<const int64_t> offsets,
              std::span<const uint8_t> fill, PadSides sides, std::span<uint8_t> out) {
  const size_t item = fill.size();
  if (item == 0 || values.size() % item != 0) return false;
  if (!offsets_are_sound(offsets, values.size() / item)) return false;
  const size_t rows = offsets.size() - 1;
  if (rows == 0) return out.empty();
  if (out.size() % rows != 0 || out.size() / rows % item != 0) return false;
  const size_t width = out.size() / rows;
  for (size_t row = 0; row < rows; ++row) {
    const size_t begin = static_cast<size_t>(offsets[row]) * item;
    const size_t end = static_cast<size_t>(offsets[row + 1]) * item;
    const size_t kept = std::min(width, end - begin);
    const size_t from = sides.keep_last ? end - kept : begin;
    uint8_t* const to = out.data() + row * width;
    const size_t gap = sides.fill_left ? width - kept : 0;
    fill_items(to, gap, fill);
    if (kept != 0) std::memcpy(to + gap, values.data() + from, kept);
    fill_items(to + gap + kept, width - gap - kept, fill);
  }
  return true;
}

}  // namespace recmap
