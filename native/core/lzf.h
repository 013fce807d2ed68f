// LZF, the fast compression of h5py. A stream is a sequence of items, each of which begins with a
// control byte:
//
//   000nnnnn                      n + 1 literal bytes follow
//   lllooooo oooooooo             repeat l + 2 bytes from o + 1 bytes before, l = 1..6
//   111ooooo llllllll oooooooo    repeat l + 9 bytes from o + 1 bytes before
//
// The repeated bytes may overlap the output: from one byte before, they are a run of that byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire.h"

namespace recmap {

// A stream expands to at most this many times its size: three bytes make 264.
inline constexpr size_t kLzfMostGrowth = 88;

enum class LzfFault : uint8_t {
  kNone = 0,
  kCut,          // the stream ends inside an item
  kTooLong,      // it expands to more than expected
  kTooShort,     // it expands to less
  kBeforeStart,  // it repeats bytes from before the first
};

struct LzfResult {
  LzfFault fault;
  size_t made;  // bytes of `out` written before the fault
};

// Fills `out`, which must not overlap the stream, or says why the stream does not fill it exactly.
// Any bytes are safe as a stream. Safe to call from any thread.
LzfResult lzf_expand(Bytes stream, std::span<uint8_t> out);

}  // namespace recmap
