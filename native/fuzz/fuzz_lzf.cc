// Any bytes as an LZF stream: it expands to what each item means, byte by byte.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "fuzz_input.h"
#include "lzf.h"

namespace recmap {
namespace {

constexpr size_t kMost = 1 << 20;

// The bytes of the complete items at the front of a stream, and whether nothing follows them.
bool expand_plainly(Bytes stream, std::vector<uint8_t>& out) {
  while (!stream.empty() && out.size() < kMost) {
    const size_t control = stream[0], length = control >> 5;
    const size_t head = length == 0 ? 1 : length == 7 ? 3 : 2;
    const size_t size = length == 0 ? head + control + 1 : head;
    if (stream.size() < size) return false;
    const size_t distance = length == 0 ? 0 : ((control & 0x1f) << 8 | stream[head - 1]) + 1;
    if (distance > out.size()) return false;
    const size_t n = length == 7 ? size_t{9} + stream[1] : length + 2;
    if (length == 0) {
      const Bytes literals = stream.subspan(1, size - 1);
      out.insert(out.end(), literals.begin(), literals.end());
    }
    for (size_t i = 0; length != 0 && i < n; ++i) out.push_back(out[out.size() - distance]);
    stream = stream.subspan(size);
  }
  return stream.empty();
}

}  // namespace
}  // namespace recmap

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace recmap;
  fuzz::Input input({data, size});
  const size_t other = input.pair();
  std::vector<uint8_t> expected;
  const bool sound = expand_plainly(input.rest(), expected);
  for (const size_t room : {expected.size(), other}) {
    std::vector<uint8_t> out(room);
    const LzfResult found = lzf_expand(input.rest(), out);
    REQUIRE(found.made <= room && found.made <= expected.size());
    REQUIRE((found.fault == LzfFault::kNone) == (sound && room == expected.size()));
    REQUIRE(std::equal(out.begin(), out.begin() + static_cast<ptrdiff_t>(found.made),
                       expected.begin()));
  }
  return 0;
}
