// Lines of pixels of three bytes, with the shuffles of the CPU. Each function does as many pixels
// from the beginning as it can, and returns how many; a CPU without shuffles does none.
#pragma once

#include <cstddef>
#include <cstdint>

namespace recmap {

// Writes pixels in reverse, to the end of `out`, which has room for `width`.
size_t flip_some_rgb(const uint8_t* line, size_t width, uint8_t* out);

// Writes red, green and blue apart, each `stride` bytes behind the one before.
size_t split_some_rgb(const uint8_t* line, size_t width, uint8_t* out, size_t stride);

}  // namespace recmap
