// A random order of n rows that is computed, not stored: a keyed bijection of [0, n).
//
// A Feistel network over the least number of bits that n fits in, of which the halves
// may differ by one bit; a value that falls outside is sent through again until it
// falls inside, which keeps it a bijection.
#pragma once

#include <cstdint>
#include <span>

namespace recmap {

enum class Direction { kForth, kBack };

// Each number is replaced by the row at that position (kForth), or by the position of
// that row (kBack). False, and nothing written, if a number is not below n.
bool permute(uint64_t n, std::span<const uint32_t> keys, Direction direction,
             std::span<int64_t> numbers);

}  // namespace recmap
