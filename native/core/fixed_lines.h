// Lines of levels in 16 bits, 7 of which are a fraction, while an image is resized.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace recmap {

// Which pixels of a side make each pixel of another, and how much each of them counts, in 32768ths.
// They add up to 1; a weight of 1 is 32767, which is rounded to the same level.
struct FixedWeights {
  size_t taps;                   // of each pixel; an even number
  std::vector<size_t> first;     // the first of its taps
  std::vector<int16_t> weights;  // of all pixels; where taps were added, 0

  std::span<const int16_t> of(size_t i) const { return {weights.data() + i * taps, taps}; }
};

// What is lost grows with the number of taps: with so many, up to a tenth of a level.
inline constexpr size_t kMostFixedTaps = 16;
// Lines of pixels that are resized at a time.
inline constexpr size_t kFixedLines = 4;
// The values to read and write behind every line of fixed ones.
inline constexpr size_t kBehindFixed = 8;

// What CPUs do differently. All compute the same.
struct FixedPath {
  const char* name;

  // Adds up lines, each times its weight, and each `stride` behind the one before.
  void (*sum_levels)(const uint8_t* line, size_t length, size_t stride,
                     std::span<const int16_t> weights, int16_t* out);
  void (*sum_values)(const int16_t* line, size_t length, size_t stride,
                     std::span<const int16_t> weights, uint8_t* out);
  void (*round_values)(const int16_t* line, size_t length, uint8_t* out);

  // Resizes kFixedLines lines of pixels of 1, 3 or 4 channels, which lie `stride` apart.
  void (*resize_lines)(const int16_t* lines, size_t stride, size_t channels,
                       const FixedWeights& across, int16_t* out, size_t out_stride);
};

// The paths that this CPU can run, the quickest first.
std::span<const FixedPath> fixed_paths();

// Writes levels as fixed values.
void fix_levels(const uint8_t* levels, size_t length, int16_t* out);

}  // namespace recmap
