// Resizing of images, bilinear, and antialiased where they shrink: the triangle filter of Pillow
// and of tf.image.resize(antialias=True).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pixels.h"

namespace recmap {

// Fills `out` with `height` lines of `width` pixels of as many channels, rounded to whole levels,
// half a level up. All sides must be at least 1. Takes at most twice the memory of the image, and
// that of a few dozen lines of `out`. Throws std::bad_alloc. Safe to call from any thread.
void resize(const Pixels& image, size_t height, size_t width, uint8_t* out);

// Looks every level up in a table of 256 values of `size` bytes, 1, 2, 4 or 8.
void look_up(std::span<const uint8_t> levels, const void* table, size_t size, void* out);

}  // namespace recmap
