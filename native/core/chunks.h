// Chunks of arrays: many at once are read, decoded and put in their place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "gather.h"
#include "wire.h"

namespace recmap {

enum class CodecKind : uint8_t {
  kZlib,
  kGzip,
  kZstd,
  kLz4,      // a block after its decoded size, as numcodecs stores it
  kHdf5Lz4,  // blocks of one size, those that did not shrink as they were
  kBlosc,
  kLzf,
  kShuffle,
  kBitshuffle,
  kFletcher32,
  kCrc32c,
};

// Takes the decompressor of kZstd, kLz4 or kBlosc from a shared library. Returns false if it does
// not export one. Call it while nothing is decoded. inflate.h has its own.
bool use_codec_of(CodecKind kind, const char* library);

// A codec, and for those that rearrange bytes, the size of an item, how many items bitshuffle
// rearranges together, and what compresses such a block: kZstd, kLz4 or nothing.
struct ChunkCodec {
  CodecKind kind;
  size_t item_size = 1;
  size_t block_items = 0;
  std::optional<CodecKind> inner{};
};

// Decodes a chunk into exactly `out`. `codecs` are in the order they were applied, at most one of
// them compresses, and those whose bit is set in `mask` were not applied. Returns false if there is
// no memory or anything is wrong; what `out` holds then is unspecified. Sizes that a chunk claims
// are compared before they are used. Any bytes are safe. Safe to call from any thread.
bool decode_chunk(std::span<const ChunkCodec> codecs, uint64_t mask, Bytes stored,
                  std::span<uint8_t> out);

// A part of every row: the part that a chunk holds.
struct ChunkPart {
  std::vector<BoxAxis> axes;  // as in gather.h
  size_t run;
  size_t at;        // where it begins in a row of the array
  size_t from_row;  // the bytes of a row in the chunk, and in the array
  size_t to_row;
  size_t chunk_bytes;
};

// Which rows of a chunk go where: `count` rows from the first ones on, or those with these numbers.
struct RowSpan {
  size_t from, to, count;
};
struct RowNumbers {
  std::span<const int64_t> from, to;
};

// Bytes in memory, in an open file, or all of the file at a path.
struct StoredAt {
  std::variant<Bytes, int, const char*> where;
  size_t offset = 0, size = 0;  // in an open file
};

struct ChunkJob {
  StoredAt stored;
  uint64_t mask = 0;
  std::span<uint8_t> out;
  const ChunkPart* part = nullptr;  // nullptr if the whole chunk fills `out`
  std::variant<RowSpan, RowNumbers> rows{};
};

// Does all jobs on up to `threads` threads. Returns the numbers of those that failed in any way,
// in order. No places may overlap. Safe to call from any thread.
std::vector<size_t> decode_chunks(std::span<const ChunkCodec> codecs,
                                  std::span<const ChunkJob> jobs, size_t threads);

}  // namespace recmap
