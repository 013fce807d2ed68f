#include "inflate.h"

#include <cstdint>
#include <vector>

#include "check.h"
#include "chunk_builder.h"
#include "chunks.h"
#include "crc32c.h"

namespace recmap {
namespace {

using namespace stored;
using Function = bool (*)(Bytes, std::span<uint8_t>);

bool is(Function function, const Buffer& stream, const Buffer& expected) {
  const Buffer exact(stream.begin(), stream.end());
  Buffer out(expected.size());
  return function(exact, out) && out == expected;
}

bool rest_is(const Buffer& rest, unsigned bits, const Buffer& window, const Buffer& expected) {
  const Buffer exact(rest.begin(), rest.end());
  Buffer out(expected.size());
  return inflate_rest(exact, bits, window, out) && out == expected;
}

void check_raw_streams() {
  for (const size_t size : {1, 999, 1000, 1001, 5000}) {
    const Buffer plain = noise(size), stream = deflate(plain);
    CHECK(is(inflate_raw, stream, plain));
    CHECK(!is(inflate_raw, join(stream, Buffer{0}), plain));
    CHECK(!is(inflate_raw, stream, noise(size + 1)));
    CHECK(!is(inflate_raw, stream, noise(size - 1)));
    for (size_t left = 0; left < stream.size(); left += 1 + left / 20) {
      CHECK(!is(inflate_raw, part(stream, 0, left), plain));
    }
  }
}

// A stream that goes on after its `window`, entered at every bit of a byte.
void check_streams_entered_within() {
  const Buffer window = noise(500), more = noise(100, 2);
  for (unsigned bits = 0; bits < 8; ++bits) {
    // The bits of the byte before, then a block that stands for the window and a stored one.
    const unsigned head = 6, used = bits < 3 ? 0 : bits;
    Buffer rest;
    if (bits != 0) rest.push_back(static_cast<uint8_t>(head << (8 - bits)));
    if (used == 0) rest.push_back(static_cast<uint8_t>(head >> bits));
    rest = join(rest, deflate(more), Buffer{1, 2, 3});
    CHECK(rest_is(rest, bits, window, join(window, more)));
    CHECK(rest_is(rest, bits, window, join(window, part(more, 0, 10))));
    CHECK(rest_is(rest, bits, window, part(window, 0, 10)));
    CHECK(rest_is(rest, bits, {}, more));
    CHECK(!rest_is(rest, bits, window, join(window, more, Buffer{0})));
    CHECK(!rest_is(part(rest, 0, 30), bits, window, join(window, more)));
  }
  CHECK(!rest_is(deflate(more), 8, window, more));
  CHECK(!rest_is({}, 1, window, more));
  CHECK(!rest_is({}, 0, window, more));
}

TEST(RawStreamsFillTheirRoomExactly) {
  CHECK(use_zlib_ng());
  check_raw_streams();
  check_streams_entered_within();
  // A library that refuses to begin.
  CHECK(!is(inflate_zlib, zlib(noise(10)), noise(10)));
  CHECK(use_isal());
  check_raw_streams();
  check_streams_entered_within();
}

TEST(PartsOfStreamsAreInflatedUpToTheFirstUnsoundOne) {
  CHECK(use_isal());
  constexpr unsigned kCount = 40;
  Buffer plain, out(kCount * 100);
  std::vector<Buffer> stored;
  std::vector<StreamPart> parts;
  for (unsigned i = 0; i < kCount; ++i) {
    const uint32_t before = crc32c(plain.data(), plain.size());
    plain = join(plain, noise(100, i));
    stored.push_back(join(deflate(noise(100, i)), Buffer{1, 2, 3}));
    parts.push_back({{},
                     0,
                     {},
                     std::span(out).subspan(100 * i, 100),
                     before,
                     crc32c(plain.data(), plain.size())});
  }
  for (size_t i = 0; i < kCount; ++i) parts[i].rest = stored[i];
  for (const size_t threads : {1, 2, 5}) {
    CHECK_EQ(inflate_parts(parts, threads), kCount);
    CHECK(out == plain);
    for (const size_t bad : {0, 7, 39}) {
      std::vector<StreamPart> changed = parts;
      changed[bad].crc_after ^= 1;
      if (bad < 20) changed[bad + 9].rest = changed[bad + 9].rest.first(50);
      CHECK_EQ(inflate_parts(changed, threads), bad);
    }
  }
  CHECK_EQ(inflate_parts({}, 3), 0);
}

TEST(ZlibStreamsHaveASoundHeaderAndChecksum) {
  CHECK(use_isal());
  const Buffer plain = noise(2500), stream = zlib(plain);
  CHECK(is(inflate_zlib, stream, plain));
  for (size_t left = 0; left < stream.size(); left += 1 + left / 20) {
    CHECK(!is(inflate_zlib, part(stream, 0, left), plain));
  }
  for (const size_t at : {size_t{0}, size_t{1}, stream.size() - 4, stream.size() - 1}) {
    for (unsigned change = 1; change < 256; ++change) {
      Buffer changed = stream;
      changed[at] ^= static_cast<uint8_t>(change);
      // Other headers are sound, too: smaller windows and other levels.
      const unsigned first = changed[0], second = changed[1];
      const bool sound = at < 2 && (first & 15) == 8 && first < 0x80 && (second & 0x20) == 0 &&
                         (first << 8 | second) % 31 == 0;
      CHECK_EQ(is(inflate_zlib, changed, plain), sound);
    }
  }
}

TEST(GzipMembersMayHaveAnyHeaderButRareParts) {
  CHECK(use_isal());
  const Buffer plain = noise(2500), name = {'a', 'b', 0}, extra = {3, 0, 'x', 'y', 'z'};
  CHECK(is(inflate_gzip, gzip(plain), plain));
  CHECK(is(inflate_gzip, gzip(plain, 1), plain));
  CHECK(is(inflate_gzip, gzip(plain, 4, extra), plain));
  CHECK(is(inflate_gzip, gzip(plain, 8, name), plain));
  CHECK(is(inflate_gzip, gzip(plain, 16, name), plain));
  const Buffer all = gzip(plain, 28, join(extra, name, name));
  CHECK(is(inflate_gzip, all, plain));
  for (size_t left = 0; left < all.size(); left += 1 + left / 30) {
    CHECK(!is(inflate_gzip, part(all, 0, left), plain));
  }
  for (const int flag : {2, 32, 64, 128})
    CHECK(!is(inflate_gzip, gzip(plain, static_cast<uint8_t>(flag)), plain));
  CHECK(!is(inflate_gzip, join(all, all), plain));
  CHECK(!is(inflate_gzip, join(all, all), join(plain, plain)));
  for (size_t back = 1; back <= 8; ++back) {
    Buffer changed = all;
    changed[all.size() - back] ^= 1;
    CHECK(!is(inflate_gzip, changed, plain));
  }
  // Parts of a header that reach beyond the member.
  CHECK(!is(inflate_gzip, {0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 255, 255}, {}));
  CHECK(!is(inflate_gzip, {0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 255, 255, 255}, {}));
  CHECK(!is(inflate_gzip, {0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 255, 'a', 'b'}, {}));
}

TEST(ChunksOfZlibAndGzipAreTheirBytes) {
  CHECK(use_isal());
  const Buffer plain = noise(2500);
  Buffer out(plain.size());
  const ChunkCodec as_zlib[] = {{CodecKind::kZlib}}, as_gzip[] = {{CodecKind::kGzip}};
  CHECK(decode_chunk(as_zlib, 0, zlib(plain), out) && out == plain);
  CHECK(!decode_chunk(as_zlib, 0, gzip(plain), out));
  std::fill(out.begin(), out.end(), uint8_t{0});
  CHECK(decode_chunk(as_gzip, 0, gzip(plain), out) && out == plain);
  CHECK(!decode_chunk(as_gzip, 0, zlib(plain), out));
}

}  // namespace
}  // namespace recmap
