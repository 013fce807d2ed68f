// Rows drawn at random by computation: which one comes at a position follows from a key alone.
//
// A draw hashes its position (SplitMix64) to a number of 53 bits, and multiplies it by the number
// of slots: the whole part chooses a slot, and the fraction is the chance for what comes next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace recmap {

// Replaces each position by the row that an alias table draws there. A slot has the chance of its
// own row in the upper 32 bits, and the other row in the lower ones. Returns false and writes
// nothing if there are no slots. Safe to call from any thread.
bool draw_by_slots(std::span<const uint64_t> slots, uint64_t key, std::span<int64_t> positions,
                   size_t threads = 1);

}  // namespace recmap
