// Where ragged rows begin and end: row i is [offsets[i], offsets[i + 1]).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace recmap {

// Whether offsets begin at 0 or more, ascend, and end at or below `limit`.
inline bool offsets_are_sound(std::span<const int64_t> offsets, uint64_t limit) {
  if (offsets.empty() || offsets.front() < 0) return false;
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] < offsets[i - 1]) return false;
  }
  return static_cast<uint64_t>(offsets.back()) <= limit;
}

}  // namespace recmap
