// The filters of HDF5 and Zarr that rearrange or check the bytes of a chunk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire.h"

namespace recmap {

// Undoes the shuffle filter, which stores the first bytes of all items, then the second ones, and
// so on. Bytes that make no whole item come last, as they are. Returns false and writes nothing if
// the sizes differ or items have no bytes. The spans must not overlap. Safe to call from any
// thread.
bool unshuffle(Bytes planes, size_t item_size, std::span<uint8_t> items);

// Undoes bitshuffle, which stores the first bits of all items of a block, then the second ones, and
// so on; the lowest bit of a byte comes first. Items that make no whole eight come last, as they
// are. Returns false and writes nothing if the sizes differ, items have no bytes, or a block has a
// number of items that is not a multiple of 8. Otherwise like unshuffle.
bool unbitshuffle(Bytes planes, size_t item_size, size_t block_items, std::span<uint8_t> items);

// The checksum of HDF5: Fletcher's, of big-endian words. An odd last byte is the high byte of a
// word.
uint32_t fletcher32(Bytes data);

}  // namespace recmap
