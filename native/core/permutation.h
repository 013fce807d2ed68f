// A random order of n rows that is computed, not stored: a keyed bijection of [0, n).
//
// It is a Feistel network over the fewest bits that hold n - 1, whose halves may differ by one bit.
// A value that leaves [0, n) goes through the network again until it is back, which keeps it a
// bijection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace recmap {

enum class Direction { kForth, kBack };

// Replaces each number by the row at that position (kForth), or by the position of that row
// (kBack). Returns false and writes nothing if a number is not below n. Safe to call from any
// thread.
bool permute(uint64_t n, std::span<const uint32_t> keys, Direction direction,
             std::span<int64_t> numbers, size_t threads = 1);

}  // namespace recmap
