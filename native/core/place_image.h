// Images on their way into a batch: resized, mirrored, their channels apart, their levels looked
// up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pixels.h"

namespace recmap {

struct Placement {
  size_t height, width;
  bool flip = false;            // left becomes right
  bool planes = false;          // a plane for each channel, instead of the channels of each pixel
  const void* table = nullptr;  // 256 values to look levels up in, or null for the levels
  size_t value_bytes = 1;       // 1, 2, 4 or 8
};

// Writes an image to `out`, as resize() makes it. Throws std::bad_alloc. Safe to call from any
// thread.
void place_image(const Pixels& image, const Placement& how, uint8_t* out);

// Places a box of each of some images, all of one shape, on up to `threads` threads: image rows[i]
// of those that begin at `images`, box boxes[i], and mirrored if flips[i] is not 0, or as `how`
// says if there are no flips. Returns false and writes nothing if a row or box is not there.
bool place_images(const Pixels& first, size_t count, std::span<const int64_t> rows,
                  std::span<const Box> boxes, std::span<const uint8_t> flips, const Placement& how,
                  uint8_t* out, size_t threads);

// Writes the pixels of a line in reverse.
void flip_line(const uint8_t* line, size_t width, size_t channels, uint8_t* out);

// Writes the channels of a line apart, each `stride` bytes behind the one before.
void split_line(const uint8_t* line, size_t width, size_t channels, uint8_t* out, size_t stride);

}  // namespace recmap
