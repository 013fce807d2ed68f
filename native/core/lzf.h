// LZF, the fast compression of h5py. A stream is a row of items, each begun by a
// control byte:
//
//   000nnnnn                      n + 1 bytes follow, as they are
//   lllooooo oooooooo             l + 2 bytes again, from o + 1 bytes before, l = 1..6
//   111ooooo llllllll oooooooo    l + 9 bytes again, from o + 1 bytes before
//
// What is repeated may overlap what it makes: one byte from one before is a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire.h"

namespace recmap {

// A stream of n bytes makes no more than n times this: three bytes make 264.
inline constexpr size_t kLzfMostGrowth = 88;

enum class LzfFault : uint8_t {
  kNone = 0,
  kCut,          // the stream ends inside an item
  kTooLong,      // it makes more than was expected
  kTooShort,     // it makes less
  kBeforeStart,  // it repeats what lies before the first byte
};

struct LzfResult {
  LzfFault fault;
  size_t made;  // bytes of `out` that were written before the fault
};

// Fills `out`, which must not overlap the stream, or says why it cannot be filled
// exactly. Any bytes are safe as a stream.
LzfResult lzf_expand(Bytes stream, std::span<uint8_t> out);

}  // namespace recmap
