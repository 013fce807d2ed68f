// Inflating by a C library that another package in this process was linked with: ISA-L or zlib-ng.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire.h"

namespace recmap {

// Takes the functions from a shared library, instead of those taken before. Returns false and
// changes nothing if it does not export them. Call it while nothing inflates.
bool use_isal_of(const char* library);
bool use_zlib_ng_of(const char* library);

// The following return false if there is no library, there is no memory, or the bytes are not a
// sound stream that fills `out` exactly and ends where its bytes do. What `out` holds then is
// unspecified. Any bytes are safe. Safe to call from any thread.

// A stream without header and checksum.
bool inflate_raw(Bytes stream, std::span<uint8_t> out);
// A stream with both. A gzip stream of several members, or with rare parts in its header, is
// refused, too.
bool inflate_zlib(Bytes stream, std::span<uint8_t> out);
bool inflate_gzip(Bytes stream, std::span<uint8_t> out);

// Inflates from within a stream until `out` is full, whatever follows. If `bits` (at most 7) are
// unused of the byte before, `rest` begins with that byte. `window` are the plain bytes before.
bool inflate_rest(Bytes rest, unsigned bits, Bytes window, std::span<uint8_t> out);

// A part of a stream, as in inflate_rest, and the CRC-32C of all plain bytes before it, and with
// it.
struct StreamPart {
  Bytes rest;
  unsigned bits;
  Bytes window;
  std::span<uint8_t> out;
  uint32_t crc_before, crc_after;
};

// Inflates parts on up to `threads` threads. Returns how many there are before the first one that
// is not sound.
size_t inflate_parts(std::span<const StreamPart> parts, size_t threads);

}  // namespace recmap
