// Parts of JPEGs, decoded by the libjpeg-turbo that another library in this process was linked
// with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "pixels.h"

namespace recmap {

// Takes libjpeg-turbo from a shared library, or from those it needs. Returns false if it has none,
// or none of a version that is known here; then nothing below may be called. Call it once.
bool use_jpeg_of(const char* library);

struct JpegHeader {
  size_t height, width;
  bool common;  // grey or YCbCr, which all decoders read alike
};

// Reads the header of a JPEG of 8 bits, grey, YCbCr or RGB. Other kinds, and damaged headers, are
// nullopt.
std::optional<JpegHeader> read_jpeg_header(std::span<const uint8_t> data);

// Decodes a box of a JPEG into `out`, pixels of 1, 3 or 4 channels, as libjpeg-turbo does by
// default. The box is one of the image at a `by`-th of its size, each side rounded up; `by` is 1,
// 2, 4 or 8. Lines below the box are not decoded, and damage there goes unnoticed, unless the JPEG
// is progressive. Returns false if the box is not in the image, or anything is wrong with the JPEG.
// Safe to call from any thread.
bool decode_jpeg(std::span<const uint8_t> data, size_t channels, size_t by, const Box& box,
                 uint8_t* out);

}  // namespace recmap
