// Pixels of 1, 3 or 4 bytes, line by line.
#pragma once

#include <cstddef>
#include <cstdint>

namespace recmap {

// A part of an image.
struct Box {
  size_t top, left, height, width;

  bool within(size_t lines, size_t pixels) const {
    return height > 0 && width > 0 && top <= lines && height <= lines - top && left <= pixels &&
           width <= pixels - left;
  }
};

struct Pixels {
  const uint8_t* data;
  size_t height, width, channels;
  size_t stride = width * channels;  // bytes from one line to the next

  Pixels part(const Box& box) const {
    const uint8_t* first = data + box.top * stride + box.left * channels;
    return {first, box.height, box.width, channels, stride};
  }
};

}  // namespace recmap
