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

bool continues(uint8_t byte) { return byte >> 6 == 2; }

// Returns the bytes of the character at the beginning, which is not ASCII; 0 if it is none.
size_t character_size(Bytes text) {
  const uint8_t lead = text[0];
  const size_t size = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  if (size == 0 || text.size() < size || !continues(text[1])) return 0;
  if (size >= 3 && !continues(text[2])) return 0;
  if (size == 4 && !continues(text[3])) return 0;
  // The second byte of characters that fewer bytes hold, of surrogates, and of those too large.
  switch (lead) {
    case 0xe0:
      return text[1] >= 0xa0 ? size : 0;
    case 0xed:
      return text[1] < 0xa0 ? size : 0;
    case 0xf0:
      return text[1] >= 0x90 ? size : 0;
    case 0xf4:
      return text[1] < 0x90 ? size : 0;
    default:
      return size;
  }
}

}  // namespace

bool is_utf8(Bytes text) {
  for (size_t at = 0; at < text.size();) {
    if (text[at] < 0x80) {
      at = skip_ascii(text, at + 1);
      continue;
    }
    const size_t size = character_size(text.subspan(at));
    if (size == 0) return false;
    at += size;
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
