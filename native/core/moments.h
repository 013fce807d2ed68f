// The mean and the spread of numbers, channel by channel, in one pass that does not cancel.
//
// Values lie as groups of `channels` runs of `inner` values each: pixels of RGB have 3 channels and
// an inner size of 1, planes of 224 x 224 pixels an inner size of 50,176.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace recmap {

// Of each channel: the values that are finite, NaN, infinite and negative infinite; the mean of the
// finite ones, and the sum of their squared distances from it; the least and the greatest. Of no
// values, all of these are 0.
template <typename T>
struct Moments {
  std::span<int64_t> finite, nan, infinite, negative;
  std::span<double> mean, squares;
  std::span<T> low, high;
};

// A sample of each channel: of every `step` values, one whose place among them was drawn. The
// values of all channels at the first place are followed by those at the second, and so on.
template <typename T>
struct Drawn {
  std::span<const uint32_t> places;
  size_t step;
  std::span<T> values;
};

// Fills `moments`, and the values that were drawn. The size of `values` is a multiple of
// channels * inner, and each span of `moments` has an item per channel. Defined for 16, 32 and
// 64-bit integers, float and double.
template <typename T>
void find_moments(std::span<const T> values, size_t inner, const Moments<T>& moments,
                  const Drawn<T>& drawn = {});

// Adds how often each byte occurs in each channel to `counts`: 256 for every channel.
void count_bytes(std::span<const uint8_t> values, size_t inner, std::span<int64_t> counts);

}  // namespace recmap
