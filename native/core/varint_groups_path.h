// Decoding varints by groups, for any CPU that can shuffle bytes by a table; `Lanes` has its
// instructions. Internal to varint_groups*.cc.
//
// A mask has a bit for each byte in which a varint ends. Twelve bits of it say where the next three
// or four varints lie, so that one shuffle puts each into 32 bits of its own, where their seven-bit
// groups are joined.
#pragma once

#include <array>

#include "varint_groups.h"

namespace recmap {

// One implementation. There must be 64 bytes or more to decode.
using DecodeGroups = GroupEnd (*)(const uint8_t* at, const uint8_t* stop, uint8_t* out,
                                  const uint8_t* end);
GroupEnd decode_groups4_arm64(const uint8_t*, const uint8_t*, uint8_t*, const uint8_t*);
GroupEnd decode_groups8_arm64(const uint8_t*, const uint8_t*, uint8_t*, const uint8_t*);
GroupEnd decode_groups4_x86(const uint8_t*, const uint8_t*, uint8_t*, const uint8_t*);
GroupEnd decode_groups8_x86(const uint8_t*, const uint8_t*, uint8_t*, const uint8_t*);

// A mask covers this many bytes; the last of them only complete the groups before.
inline constexpr size_t kMasked = 64;
inline constexpr size_t kStride = 48;
static_assert(kStride + 12 <= kMasked && kStride - 1 + 16 <= kMasked);

// What a mask of 12 bits says: the lengths of the varints, less one, in two bits each.
struct Group {
  uint8_t lengths;
  uint8_t bytes;
  uint8_t count;
};

inline constexpr std::array<Group, 4096> kGroups = [] {
  std::array<Group, 4096> groups{};
  for (unsigned mask = 0; mask < groups.size(); ++mask) {
    Group& group = groups[mask];
    for (unsigned at = 0; at < 12 && group.count < 4; ++at) {
      if ((mask >> at & 1) == 0) continue;
      const unsigned length = at + 1 - group.bytes;
      if (length > 4) break;  // such masks are not looked up
      group.lengths = static_cast<uint8_t>(group.lengths | (length - 1) << 2 * group.count);
      group.bytes = static_cast<uint8_t>(at + 1);
      ++group.count;
    }
  }
  return groups;
}();

// Where the bytes of each lane come from, by the lengths; 0x80 gives zero.
struct alignas(16) Shuffle {
  uint8_t from[16];
};

inline constexpr std::array<Shuffle, 256> kShuffles = [] {
  std::array<Shuffle, 256> shuffles{};
  for (unsigned lengths = 0; lengths < shuffles.size(); ++lengths) {
    unsigned at = 0;
    for (unsigned lane = 0; lane < 4; ++lane) {
      const unsigned length = (lengths >> 2 * lane & 3) + 1;
      for (unsigned i = 0; i < 4; ++i) {
        shuffles[lengths].from[4 * lane + i] = static_cast<uint8_t>(i < length ? at + i : 0x80);
      }
      at += length;
    }
  }
  return shuffles;
}();

template <typename Lanes, size_t kSize>
GroupEnd decode_groups_by(const uint8_t* at, const uint8_t* stop, uint8_t* out,
                          const uint8_t* end) {
  size_t skip = 0;
  // The next mask is made while the varints of this one are decoded: they wait for each other, it
  // does not.
  uint64_t next = Lanes::ends(at);
  for (bool more = true; more; skip -= kStride, at += kStride) {
    const uint64_t inner = ~next;
    if ((inner & inner >> 1 & inner >> 2 & inner >> 3) != 0) break;
    uint64_t ends = next >> skip;
    more = static_cast<size_t>(stop - at) >= kStride + kMasked;
    if (more) next = Lanes::ends(at + kStride);
    while (skip < kStride) {
      if (static_cast<size_t>(end - out) < 4 * kSize) return {at + skip, out};
      const Group& group = kGroups[ends & 0xfff];
      Lanes::template join<kSize>(at + skip, kShuffles[group.lengths].from, out);
      skip += group.bytes;
      out += kSize * group.count;
      ends >>= group.bytes;
    }
  }
  return {at + skip, out};
}

}  // namespace recmap
