// The levels of a Parquet page, which say where rows of lists begin. They are a sequence of runs,
// each of which begins with a varint:
//
//   n << 1        the next byte, n times
//   n << 1 | 1    8 * n levels, each of so many bits, lowest bits first
#pragma once

#include <cstdint>

#include "wire.h"

namespace recmap {

// Counts the zeros among the first `count` levels of `bits` bits, 1 to 8. Returns -1 if there are
// fewer levels. Any bytes are safe. Safe to call from any thread.
int64_t count_zero_levels(Bytes levels, int64_t count, int bits);

}  // namespace recmap
