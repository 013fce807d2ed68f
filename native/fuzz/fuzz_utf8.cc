// Text: what is found sound is what a decoder of one character after another finds sound.
#include <vector>

#include "fuzz_input.h"
#include "utf8.h"

namespace recmap::fuzz {
namespace {

// The obvious decoder: put the bits together, then look at the number.
bool is_text(Bytes text) {
  for (size_t at = 0; at < text.size();) {
    const uint8_t lead = text[at++];
    if (lead < 0x80) continue;
    const int more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    if (lead < 0xc0 || lead >= 0xf8) return false;
    uint32_t character = lead & (0x3fu >> more);
    for (int i = 0; i < more; ++i) {
      if (at == text.size() || (text[at] & 0xc0) != 0x80) return false;
      character = character << 6 | (text[at++] & 0x3fu);
    }
    constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
    if (character < kLeast[more] || character > 0x10ffff) return false;
    if (character >= 0xd800 && character < 0xe000) return false;
  }
  return true;
}

void fuzz_text(Bytes bytes) {
  Input input(bytes);
  const auto cut = static_cast<int64_t>(input.byte());
  const Bytes text = input.rest();
  REQUIRE(is_utf8(text) == is_text(text));
  const auto size = static_cast<int64_t>(text.size());
  const std::vector<int64_t> offsets = {0, cut, size};
  const int64_t found = first_invalid_utf8(text, offsets);
  if (cut > size) {
    REQUIRE(found == -2);
    return;
  }
  const auto end = static_cast<size_t>(cut);
  const bool first = is_text(text.first(end)), second = is_text(text.subspan(end));
  REQUIRE(found == (!first ? 0 : !second ? 1 : -1));
}

}  // namespace
}  // namespace recmap::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  recmap::fuzz::fuzz_text({data, size});
  return 0;
}
