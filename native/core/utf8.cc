#include "utf8.h"

#include <cstring>

#include "ragged_offsets.h"

namespace recmap {
namespace {

// Returns where the ASCII at `at` ends, or a few bytes before. Most text is ASCII for long
// stretches.
size_t skip_ascii(Bytes text, size_t at) {
  constexpr uint64_t kHighBits = 0x8080808080808080u;
  for (uint64_t word; text.size() - at >= sizeof word; at += sizeof word) {
    std::memcpy(&word, text.data() + at, sizeof word);
    if ((word & kHighBits) != 0) break;
  }
  return at;
}

}  // namespace

bool is_utf8(Bytes text) {
  for (size_t i = 0; (i = skip_ascii(text, i)) < text.size();) {
    const uint8_t lead = text[i];
    const size_t more = lead < 0x80       ? 0
                        : lead >> 5 == 6  ? 1
                        : lead >> 4 == 14 ? 2
                        : lead >> 3 == 30 ? 3
                                          : 4;
    if (more == 4 || more >= text.size() - i) return false;
    uint32_t point = more == 0 ? lead : lead & (0x3fu >> more);
    for (size_t k = 1; k <= more; ++k) {
      if (text[i + k] >> 6 != 2) return false;
      point = point << 6 | (text[i + k] & 0x3f);
    }
    constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
    if (point < kLeast[more] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
      return false;
    i += more + 1;
  }
  return true;
}

int64_t first_invalid_utf8(Bytes values, std::span<const int64_t> offsets) {
  if (!offsets_are_sound(offsets, values.size())) return -2;
  for (size_t row = 0; row + 1 < offsets.size(); ++row) {
    const auto begin = static_cast<size_t>(offsets[row]);
    const auto end = static_cast<size_t>(offsets[row + 1]);
    if (!is_utf8(values.subspan(begin, end - begin))) return static_cast<int64_t>(row);
  }
  return -1;
}

}  // namespace recmap
