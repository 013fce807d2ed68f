#include "chunks.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "check.h"
#include "chunk_builder.h"
#include "crc32c.h"
#include "shuffle.h"

namespace recmap {
namespace {

using namespace stored;
using Codecs = std::vector<ChunkCodec>;

// From an allocation of exactly the size into one of exactly the size, so that the sanitizer sees
// every byte beyond.
bool decodes(const Codecs& codecs, const Buffer& stored, Buffer& out, uint64_t mask = 0) {
  const Buffer exact(stored.begin(), stored.end());
  return decode_chunk(codecs, mask, exact, out);
}

bool is(const Codecs& codecs, const Buffer& stored, const Buffer& expected, uint64_t mask = 0) {
  Buffer out(expected.size());
  return decodes(codecs, stored, out, mask) && out == expected;
}

// What a filter that rearranges bytes stores, found by undoing it for every byte.
template <typename Undo>
Buffer rearranged(const Buffer& bytes, Undo undo) {
  Buffer stored(bytes.size()), place(bytes.size()), found(bytes.size());
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::fill(place.begin(), place.end(), uint8_t{0});
    place[bit / 8] = static_cast<uint8_t>(1 << bit % 8);
    undo(place, found);
    for (size_t i = 0; i < bytes.size(); ++i) {
      if ((found[i] & bytes[i]) != 0) stored[bit / 8] |= static_cast<uint8_t>(1 << bit % 8);
    }
  }
  return stored;
}

Buffer bitshuffled(const Buffer& bytes, size_t item, size_t block) {
  return rearranged(bytes,
                    [=](Bytes from, Buffer& to) { CHECK(unbitshuffle(from, item, block, to)); });
}

Buffer shuffled(const Buffer& bytes, size_t item) {
  return rearranged(bytes, [=](Bytes from, Buffer& to) { CHECK(unshuffle(from, item, to)); });
}

Buffer with_crc32c(const Buffer& bytes) {
  return join(bytes, little(crc32c_extend(0, bytes.data(), bytes.size()), 4));
}

Buffer with_fletcher(const Buffer& bytes) { return join(bytes, little(fletcher32(bytes), 4)); }

// Blocks of bitshuffle, compressed; items that make no whole eight follow as they are.
template <typename Pack>
Buffer bitshuffle_blocks(const Buffer& bytes, size_t item, size_t block, Pack pack) {
  const size_t whole = bytes.size() / item / 8 * 8 * item;
  const Buffer planes = bitshuffled(part(bytes, 0, whole), item, block / item);
  return join(blocks(planes, bytes.size(), block, pack), part(bytes, whole, bytes.size()));
}

struct Case {
  const char* name;
  Codecs codecs;
  Buffer plain, stored;
};

constexpr CodecKind kZstd = CodecKind::kZstd, kLz4 = CodecKind::kLz4;

// Each codec, and chains of them. Those that need a library come first.
std::vector<Case> cases() {
  const Buffer long_one = noise(300), eight = noise(8), odd = noise(44);
  const auto as_is = [](const Buffer& block) { return block; };
  const ChunkCodec shuffle{CodecKind::kShuffle, 4}, bitshuffle{CodecKind::kBitshuffle, 4, 8};
  const ChunkCodec zstd_codec{kZstd}, fletcher{CodecKind::kFletcher32};
  const ChunkCodec in_lz4{CodecKind::kBitshuffle, 1, 0, kLz4};
  const ChunkCodec in_zstd{CodecKind::kBitshuffle, 4, 0, kZstd};
  return {
      {"zstd", {zstd_codec}, long_one, zstd(long_one)},
      {"lz4", {{kLz4}}, eight, lz4(eight)},
      {"hdf5 lz4", {{CodecKind::kHdf5Lz4}}, long_one, blocks(long_one, 300, 70, as_is)},
      {"blosc", {{CodecKind::kBlosc}}, long_one, blosc(long_one)},
      {"bitshuffle lz4", {in_lz4}, noise(11), bitshuffle_blocks(noise(11), 1, 8, lz4_block)},
      {"bitshuffle zstd", {in_zstd}, odd, bitshuffle_blocks(odd, 4, 32, zstd)},
      {"shuffle, zstd", {shuffle, zstd_codec}, odd, zstd(shuffled(odd, 4))},
      {"checksums around",
       {fletcher, shuffle, {CodecKind::kCrc32c}, zstd_codec, fletcher},
       odd,
       with_fletcher(zstd(with_crc32c(shuffled(with_fletcher(odd), 4))))},
      {"nothing", {}, odd, odd},
      {"lzf", {{CodecKind::kLzf}}, long_one, lzf(long_one)},
      {"shuffle", {shuffle}, noise(43), shuffled(noise(43), 4)},
      {"bitshuffle", {bitshuffle}, odd, bitshuffled(odd, 4, 8)},
      {"fletcher32", {fletcher}, noise(43), with_fletcher(noise(43))},
      {"crc32c", {{CodecKind::kCrc32c}}, odd, with_crc32c(odd)},
  };
}

// The first test of this file: nothing has taken a codec yet.
TEST(WithoutTheirLibrariesChunksFail) {
  const Buffer bytes = noise(64);
  CHECK(!use_codec_of(kZstd, "/nowhere/at/all.so"));
  CHECK(!use_codec_of(CodecKind::kLzf, STORED_CODECS));
  CHECK(!use_isal_of("/nowhere/at/all.so"));
  CHECK(!use_zlib_ng_of("/nowhere/at/all.so"));
  if (any_taken) return;
  CHECK(!is({{kZstd}}, zstd(bytes), bytes));
  CHECK(!is({{kLz4}}, lz4(noise(8)), noise(8)));
  CHECK(!is({{CodecKind::kBlosc}}, blosc(bytes), bytes));
  CHECK(!is({{CodecKind::kZlib}}, stored::zlib(bytes), bytes));
  CHECK(!is({{CodecKind::kGzip}}, stored::gzip(bytes), bytes));
  CHECK(!is({{CodecKind::kHdf5Lz4}}, blocks(noise(8), 8, 8, lz4_block), noise(8)));
  for (const CodecKind inner : {kZstd, kLz4}) {
    const Buffer packed = bitshuffle_blocks(noise(8), 1, 8, inner == kZstd ? zstd : lz4_block);
    CHECK(!is({{CodecKind::kBitshuffle, 1, 0, inner}}, packed, noise(8)));
  }
  Buffer out(64);
  CHECK(!inflate_raw(deflate(bytes), out));
  CHECK(!inflate_rest(deflate(bytes), 0, {}, out));
}

TEST(ChunksOfEveryCodecAreTheirBytes) {
  CHECK(use_others());
  for (const auto& [name, codecs, plain, stored] : cases()) {
    const check::Scope scope(name);
    CHECK(is(codecs, stored, plain));
  }
}

TEST(ChunksOfAnotherSizeFail) {
  CHECK(use_others());
  for (const auto& [name, codecs, plain, stored] : cases()) {
    const check::Scope scope(name);
    for (const size_t size : {size_t{0}, size_t{1}, plain.size() - 1, plain.size() + 1,
                              plain.size() + 4, 2 * plain.size(), size_t{1} << 16}) {
      Buffer out(size);
      CHECK(!decodes(codecs, stored, out));
    }
  }
}

TEST(ChunksCutAtEveryByteFail) {
  CHECK(use_others());
  for (const auto& [name, codecs, plain, stored] : cases()) {
    const check::Scope scope(name);
    for (size_t left = 0; left < stored.size(); ++left) {
      Buffer out(plain.size());
      CHECK(!decodes(codecs, part(stored, 0, left), out));
    }
    // What follows the last block, HDF5 does not read either.
    const bool ends_with_block = !codecs.empty() && codecs.back().kind == CodecKind::kHdf5Lz4;
    Buffer out(plain.size());
    CHECK_EQ(decodes(codecs, join(stored, Buffer{0}), out), ends_with_block);
  }
}

TEST(AnyBytesAreSafeToDecode) {
  CHECK(use_others());
  for (const auto& [name, codecs, plain, stored] : cases()) {
    const check::Scope scope(name);
    std::mt19937 draw(7);
    for (int i = 0; i < 2000; ++i) {
      Buffer changed = stored;
      for (size_t n = draw() % 3 + 1; n > 0; --n) {
        changed[draw() % std::min<size_t>(changed.size(), draw() % 2 == 0 ? 24 : SIZE_MAX)] =
            static_cast<uint8_t>(draw());
      }
      Buffer out(plain.size());
      decodes(codecs, changed, out);
      decodes(codecs, noise(draw() % 80, static_cast<unsigned>(draw())), out);
    }
  }
}

TEST(ADamagedChecksumIsFound) {
  CHECK(use_others());
  for (const auto& [name, codecs, plain, stored] : cases()) {
    const CodecKind last = codecs.empty() ? kZstd : codecs.back().kind;
    if (last != CodecKind::kFletcher32 && last != CodecKind::kCrc32c) continue;
    for (size_t bit = 0; bit < 8 * stored.size(); ++bit) {
      Buffer changed = stored;
      changed[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      CHECK(!is(codecs, changed, plain));
    }
  }
}

TEST(ChecksumsOfOldHdf5HaveTheirBytesSwapped) {
  CHECK(use_others());
  const Buffer plain = noise(44);
  Buffer stored = with_fletcher(plain);
  std::swap(stored[44], stored[45]);
  std::swap(stored[46], stored[47]);
  CHECK(is({{CodecKind::kFletcher32}}, stored, plain));
}

TEST(CodecsInTheMaskWereNotApplied) {
  CHECK(use_others());
  const Codecs codecs = {{CodecKind::kShuffle, 4}, {kZstd}, {CodecKind::kCrc32c}};
  const Buffer plain = noise(44), planes = shuffled(plain, 4);
  CHECK(is(codecs, with_crc32c(zstd(planes)), plain, 0));
  CHECK(is(codecs, with_crc32c(zstd(plain)), plain, 1));
  CHECK(is(codecs, with_crc32c(planes), plain, 2));
  CHECK(is(codecs, zstd(planes), plain, 4));
  CHECK(is(codecs, plain, plain, 7));
  CHECK(!is(codecs, plain, plain, 0));
}

TEST(MoreCodecsThanTheMaskHasBitsAreAllApplied) {
  CHECK(use_others());
  const Codecs codecs(66, {CodecKind::kFletcher32});
  Buffer stored = noise(44);
  for (int i = 0; i < 2; ++i) stored = with_fletcher(stored);
  CHECK(is(codecs, stored, noise(44), UINT64_MAX));
}

TEST(SizesThatBlocksClaimAreNotBelieved) {
  CHECK(use_others());
  const Codecs codecs = {{CodecKind::kHdf5Lz4}};
  const Buffer plain = noise(64);
  const auto as_is = [](const Buffer& block) { return block; };
  CHECK(is(codecs, blocks(plain, 64, 64, as_is), plain));
  CHECK(is(codecs, blocks(plain, 64, 1000, as_is), plain));  // larger than all
  CHECK(!is(codecs, blocks(plain, 65, 64, as_is), plain));
  CHECK(!is(codecs, join(big(64, 8), big(0, 4), big(64, 4), plain), plain));
  CHECK(!is(codecs, join(big(64, 8), big(64, 4), big(0, 4), plain), plain));
  CHECK(!is(codecs, join(big(64, 8), big(64, 4), big(65, 4), plain), plain));
  CHECK(!is(codecs, join(big(64, 8), big(64, 4), big(0xffffffff, 4), plain), plain));
  // A block that grew.
  CHECK(!is(codecs, join(big(64, 8), big(63, 4), big(64, 4), plain), plain));
  // Blocks of bitshuffle that are no whole eight items.
  CHECK(!is({{CodecKind::kBitshuffle, 4, 0, kZstd}}, blocks(plain, 64, 16, zstd), plain));
  CHECK(!is({{CodecKind::kBitshuffle, 0, 0, kZstd}}, blocks(plain, 64, 64, zstd), plain));
  CHECK(!is({{CodecKind::kBitshuffle, 0, 8}}, plain, plain));
  CHECK(is({{CodecKind::kShuffle, 0}}, plain, plain));  // as if items had one byte
}

TEST(SizesNoStreamCanMakeNeedNoMemory) {
  CHECK(use_others());
  // With this much, the sanitizer would stop.
  constexpr size_t kHuge = size_t{1} << 45;
  uint8_t byte = 0;
  const std::span<uint8_t> out(&byte, kHuge);
  for (const CodecKind kind :
       {kZstd, kLz4, CodecKind::kHdf5Lz4, CodecKind::kLzf, CodecKind::kZlib, CodecKind::kGzip}) {
    const Codecs codecs = {{CodecKind::kShuffle, 4}, {kind}};
    CHECK(!decode_chunk(codecs, 0, join(big(kHuge, 8), big(1, 4)), out));
    CHECK(!decode_chunk(codecs, 0, join(little(kHuge, 8), big(1, 4)), out));
  }
}

// A file of these bytes until it is destroyed.
class File {
 public:
  explicit File(const Buffer& bytes) {
    fd = mkstemp(path.data());
    CHECK(write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  }
  ~File() {
    close(fd);
    unlink(path.c_str());
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::string path = "/tmp/recmap-test-XXXXXX";
  int fd;
};

std::vector<size_t> failed_of(const Codecs& codecs, const std::vector<ChunkJob>& jobs,
                              size_t threads = 3) {
  return decode_chunks(codecs, jobs, threads);
}

using Failed = std::vector<size_t>;

TEST(ChunksLieInMemoryInOpenFilesAndInTheirOwn) {
  CHECK(use_others());
  const Buffer plain = noise(300), stored = zstd(plain);
  const Codecs codecs = {{kZstd}};
  const File own(stored), shared(join(Buffer(5), stored, Buffer(5)));
  std::vector<Buffer> outs(3, Buffer(300));
  const std::vector<ChunkJob> jobs = {
      {.stored = {Bytes(stored)}, .out = outs[0]},
      {.stored = {shared.fd, 5, stored.size()}, .out = outs[1]},
      {.stored = {own.path.c_str()}, .out = outs[2]},
  };
  CHECK(failed_of(codecs, jobs) == Failed{});
  for (const Buffer& out : outs) CHECK(out == plain);
}

TEST(FilesThatCannotBeReadFailByNumber) {
  CHECK(use_others());
  const Buffer plain = noise(300), stored = zstd(plain);
  const File sound(stored), cut(part(stored, 0, 100)), longer(Buffer((size_t{1} << 16) + 700));
  std::vector<Buffer> outs(8, Buffer(300));
  const std::vector<ChunkJob> jobs = {
      {.stored = {sound.path.c_str()}, .out = outs[0]},
      {.stored = {"/nowhere/at/all"}, .out = outs[1]},
      {.stored = {"/tmp"}, .out = outs[2]},
      {.stored = {longer.path.c_str()}, .out = outs[3]},
      {.stored = {cut.fd, 0, stored.size()}, .out = outs[4]},
      {.stored = {sound.fd, stored.size(), 1}, .out = outs[5]},
      {.stored = {sound.fd, SIZE_MAX, 1}, .out = outs[6]},
      {.stored = {sound.fd, 0, size_t{1} << 45}, .out = outs[7]},
  };
  for (const size_t threads : {1, 4}) {
    CHECK(failed_of({{{kZstd}}}, jobs, threads) == (Failed{1, 2, 3, 4, 5, 6, 7}));
  }
  CHECK(outs[0] == plain);
}

TEST(ManyChunksFillTheirPlacesAndOnlyTheDamagedFail) {
  CHECK(use_others());
  constexpr size_t kCount = 200, kSize = 64;
  std::vector<Buffer> stored;
  for (unsigned i = 0; i < kCount; ++i) stored.push_back(zstd(noise(kSize, i)));
  Failed expected;
  for (size_t i = 3; i < kCount; i += 17) {
    stored[i].pop_back();
    expected.push_back(i);
  }
  for (const size_t threads : {1, 2, 5}) {
    Buffer out(kCount * kSize);
    std::vector<ChunkJob> jobs;
    for (size_t i = 0; i < kCount; ++i) {
      jobs.push_back({.stored = {Bytes(stored[i])}, .out = {out.data() + i * kSize, kSize}});
    }
    CHECK(failed_of({{{kZstd}}}, jobs, threads) == expected);
    for (unsigned i = 0; i < kCount; ++i) {
      if (!std::ranges::binary_search(expected, size_t{i})) {
        CHECK(part(out, i * kSize, (i + 1) * kSize) == noise(kSize, i));
      }
    }
  }
}

TEST(RowsOfAChunkGoWhereTheyBelong) {
  CHECK(use_others());
  // Rows of 3 by 4 bytes, of which the chunk has columns 1 and 2 of rows 1 and 2.
  const Buffer plain = noise(5 * 4), stored = zstd(plain);
  const ChunkPart inner{{{2, 2, 4}}, 2, 5, 4, 12, plain.size()};
  const std::vector<int64_t> from = {4, 0}, to = {1, 6};
  Buffer out(7 * 12), expected(7 * 12);
  const auto expect = [&](size_t a, size_t b) {
    for (size_t y = 0; y < 2; ++y) {
      for (size_t x = 0; x < 2; ++x)
        expected[12 * b + 4 * (y + 1) + x + 1] = plain[4 * a + 2 * y + x];
    }
  };
  std::vector<ChunkJob> jobs = {
      {.stored = {Bytes(stored)}, .out = out, .part = &inner, .rows = RowSpan{1, 2, 3}},
      {.stored = {Bytes(stored)}, .out = out, .part = &inner, .rows = RowNumbers{from, to}},
  };
  CHECK(failed_of({{{kZstd}}}, jobs) == Failed{});
  for (size_t i = 0; i < 3; ++i) expect(1 + i, 2 + i);
  for (size_t i = 0; i < 2; ++i) expect(static_cast<size_t>(from[i]), static_cast<size_t>(to[i]));
  CHECK(out == expected);

  // Whole rows lie together.
  const ChunkPart whole{{}, 4, 0, 4, 4, plain.size()};
  Buffer rows(3 * 4);
  jobs = {{.stored = {Bytes(stored)}, .out = rows, .part = &whole, .rows = RowSpan{2, 1, 2}}};
  CHECK(failed_of({{{kZstd}}}, jobs) == Failed{});
  CHECK(rows == join(Buffer(4), part(plain, 8, 16)));
}

TEST(RowsAndPartsThatDoNotFitFail) {
  CHECK(use_others());
  const Buffer plain = noise(5 * 4), stored = zstd(plain);
  const ChunkPart whole{{}, 4, 0, 4, 4, plain.size()};
  const auto fails = [&](const ChunkPart& where, const std::variant<RowSpan, RowNumbers>& rows) {
    Buffer out(3 * 4);
    const std::vector<ChunkJob> jobs = {
        {.stored = {Bytes(stored)}, .out = out, .part = &where, .rows = rows}};
    return failed_of({{{kZstd}}}, jobs) == Failed{0};
  };
  const std::vector<int64_t> one = {1}, two = {1, 2}, negative = {-1}, beyond = {5}, third = {3};
  CHECK(!fails(whole, RowSpan{2, 0, 3}));
  CHECK(fails(whole, RowSpan{3, 0, 3}));
  CHECK(fails(whole, RowSpan{6, 0, 0}));
  CHECK(fails(whole, RowSpan{SIZE_MAX, 0, 2}));
  CHECK(fails(whole, RowSpan{0, 1, 3}));
  CHECK(fails(whole, RowSpan{0, SIZE_MAX, 2}));
  CHECK(fails(whole, RowSpan{0, 0, SIZE_MAX}));
  CHECK(!fails(whole, RowNumbers{one, one}));
  CHECK(fails(whole, RowNumbers{one, two}));
  CHECK(fails(whole, RowNumbers{negative, one}));
  CHECK(fails(whole, RowNumbers{beyond, one}));
  CHECK(fails(whole, RowNumbers{one, negative}));
  CHECK(fails(whole, RowNumbers{one, third}));
  const RowSpan row{0, 0, 1};
  CHECK(fails({{}, 5, 0, 4, 8, plain.size()}, row));
  CHECK(fails({{}, 4, 1, 4, 4, plain.size()}, row));
  CHECK(fails({{}, 4, 5, 4, 4, plain.size()}, row));
  CHECK(fails({{{0, 1, 1}}, 4, 0, 4, 4, plain.size()}, row));
  CHECK(fails({{{3, SIZE_MAX / 2, 1}}, 1, 0, 4, 4, plain.size()}, row));
  CHECK(fails({{}, 4, 0, 4, 4, plain.size() + 1}, row));
  CHECK(fails({{}, 0, 0, 0, 0, 0}, row));
  CHECK(fails({{}, 4, 0, 4, 4, SIZE_MAX / 2}, row));
}

}  // namespace
}  // namespace recmap
