// Sorts the values of many channels side by side, and keeps one of several neighbours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace recmap {

// Values in a group, which are sorted together.
inline constexpr size_t kThinGroup = 256;

// `rows` are kThinGroup runs of as many values as there are lanes. Sorts each lane, in which
// numbers that are not finite count as infinity, and writes its values number f, f + step ... as
// runs of lanes to `out`, where f is that of the lane in `first`, and less than `step`, which
// divides kThinGroup. Defined for integers of 32 and 64 bits, float and double.
template <typename T>
void thin_lanes(std::span<const T> rows, std::span<const uint8_t> first, size_t step,
                std::span<T> out);

}  // namespace recmap
