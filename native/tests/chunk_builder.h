// Builds chunks that hold their bytes as they are, in the formats that stored_codecs.cc decodes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>

#include "chunks.h"
#include "inflate.h"
#include "wire_builder.h"

namespace recmap::stored {

// Whether a test has taken a codec, which stays with the process.
inline bool any_taken = false;

inline bool use_isal() { return (any_taken = use_isal_of(STORED_CODECS)); }
inline bool use_zlib_ng() { return (any_taken = use_zlib_ng_of(STORED_CODECS)); }
inline bool use_others() {
  any_taken = true;
  return use_codec_of(CodecKind::kZstd, STORED_CODECS) &&
         use_codec_of(CodecKind::kLz4, STORED_CODECS) &&
         use_codec_of(CodecKind::kBlosc, STORED_CODECS);
}

using wire::Buffer;
using wire::join;

inline Buffer noise(size_t size, unsigned seed = 1) {
  std::mt19937 draw(seed);
  Buffer bytes(size);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(draw());
  return bytes;
}

inline Buffer little(uint64_t value, int bytes) {
  Buffer out;
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<uint8_t>(value >> (8 * i)));
  return out;
}

inline Buffer big(uint64_t value, int bytes) {
  const Buffer out = little(value, bytes);
  return {out.rbegin(), out.rend()};
}

inline Buffer part(const Buffer& bytes, size_t begin, size_t end) {
  return {bytes.begin() + static_cast<long>(begin), bytes.begin() + static_cast<long>(end)};
}

inline Buffer zstd(const Buffer& bytes) {
  return join(Buffer{0x28, 0xb5, 0x2f, 0xfd, 0xa0}, little(bytes.size(), 4),
              little(bytes.size() << 3 | 1, 3), bytes);
}

// At most 14 bytes.
inline Buffer lz4_block(const Buffer& bytes) {
  return join(Buffer{static_cast<uint8_t>(bytes.size() << 4)}, bytes);
}

inline Buffer lz4(const Buffer& bytes) { return join(little(bytes.size(), 4), lz4_block(bytes)); }

inline Buffer blosc(const Buffer& bytes) {
  return join(Buffer{2, 1, 2, 1}, little(bytes.size(), 4), little(bytes.size(), 4),
              little(16 + bytes.size(), 4), bytes);
}

inline Buffer lzf(const Buffer& bytes) {
  Buffer out;
  for (size_t at = 0; at < bytes.size(); at += 32) {
    const size_t end = std::min(at + 32, bytes.size());
    out = join(out, Buffer{static_cast<uint8_t>(end - at - 1)}, part(bytes, at, end));
  }
  return out;
}

// Blocks of a filter of HDF5, each made by `pack`.
template <typename Pack>
Buffer blocks(const Buffer& bytes, size_t whole, size_t block, Pack pack) {
  Buffer out = join(big(whole, 8), big(block, 4));
  for (size_t at = 0; at < bytes.size(); at += block) {
    const Buffer packed = pack(part(bytes, at, std::min(at + block, bytes.size())));
    out = join(out, big(packed.size(), 4), packed);
  }
  return out;
}

// A stream of deflate; each block of at most `block` bytes.
inline Buffer deflate(const Buffer& bytes, size_t block = 1000) {
  Buffer out;
  for (size_t at = 0; out.empty() || at < bytes.size(); at += block) {
    const size_t end = std::min(at + block, bytes.size());
    out = join(out, Buffer{static_cast<uint8_t>(end == bytes.size())}, little(end - at, 2),
               little(~(end - at), 2), part(bytes, at, end));
  }
  return out;
}

inline uint32_t crc32(const Buffer& bytes) {
  uint32_t crc = ~0u;
  for (const uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320 : 0);
  }
  return ~crc;
}

inline uint32_t adler32(const Buffer& bytes) {
  uint32_t low = 1, high = 0;
  for (const uint8_t byte : bytes) {
    low = (low + byte) % 65521;
    high = (high + low) % 65521;
  }
  return high << 16 | low;
}

inline Buffer zlib(const Buffer& bytes) {
  return join(Buffer{0x78, 0x9c}, deflate(bytes), big(adler32(bytes), 4));
}

// A gzip member, with `more` after the fixed part of its header.
inline Buffer gzip(const Buffer& bytes, uint8_t flags = 0, const Buffer& more = {}) {
  return join(Buffer{0x1f, 0x8b, 8, flags, 0, 0, 0, 0, 0, 255}, more, deflate(bytes),
              little(crc32(bytes), 4), little(bytes.size(), 4));
}

}  // namespace recmap::stored
