// Strings of Arrow's view layout.
#include "arrow_views.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "check.h"

namespace recmap {
namespace {

// A heap block of exactly the needed size, so that the sanitizer sees every byte read too many.
using Block = std::vector<uint8_t>;

Block block(std::string_view text) { return {text.begin(), text.end()}; }

void add_view(Block& views, int32_t length, std::string_view inside, int32_t buffer = 0,
              int32_t offset = 0) {
  uint8_t view[kArrowViewSize] = {};
  std::memcpy(view, &length, 4);
  if (length > 12) {
    std::memcpy(view + 8, &buffer, 4);
    std::memcpy(view + 12, &offset, 4);
  } else {
    std::memcpy(view + 4, inside.data(), inside.size());
  }
  views.insert(views.end(), view, view + sizeof view);
}

TEST(ShortStringsLieInTheViewAndLongOnesInBuffers) {
  const Block one = block("0123456789abcdef"), other = block("a string of 20 bytes");
  const std::vector<Bytes> buffers = {one, other};
  Block views;
  add_view(views, 0, "");
  add_view(views, 12, "exactly12byt");
  add_view(views, 14, "", 0, 2);
  add_view(views, 20, "", 1, 0);
  add_view(views, 2, "ab");
  std::vector<int64_t> offsets(6);
  CHECK(!measure_views(views, buffers, {}, offsets));
  CHECK((offsets == std::vector<int64_t>{0, 0, 12, 26, 46, 48}));
  Block values(48);
  copy_views(views, buffers, offsets, values);
  CHECK(values == block("exactly12byt23456789abcdefa string of 20 bytesab"));
}

TEST(NullStringsAreEmptyWhateverTheirViewsSay) {
  Block views;
  add_view(views, -1, "");
  add_view(views, 1, "x");
  const Block nulls = {1, 0};
  std::vector<int64_t> offsets(3);
  CHECK(!measure_views(views, {}, nulls, offsets));
  CHECK((offsets == std::vector<int64_t>{0, 0, 1}));
  Block values(1);
  copy_views(views, {}, offsets, values);
  CHECK(values == block("x"));
}

TEST(ViewsOutsideOfTheirBuffersAreFound) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  const Block data(20);
  const std::vector<Bytes> buffers = {data};
  const struct {
    int32_t length, buffer, offset;
  } cases[] = {{-1, 0, 0},  {21, 0, 0},  {13, 0, 8},        {13, 1, 0},
               {13, -1, 0}, {13, 0, -1}, {kMost, 0, kMost}, {13, kMost, 0}};
  for (const auto& [length, buffer, offset] : cases) {
    Block views;
    add_view(views, 1, "x");
    add_view(views, length, "", buffer, offset);
    std::vector<int64_t> offsets(3);
    const auto bad = measure_views(views, buffers, {}, offsets);
    CHECK(bad.has_value());
    CHECK_EQ(bad.value_or(0), size_t{1});
  }
}

}  // namespace
}  // namespace recmap
