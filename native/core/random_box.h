// Random parts of images. What is random about a row depends only on a key, the epoch and the row's
// position: the numbers are those of Philox 4x64 with that counter, as numpy.random.Philox has
// them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "pixels.h"

namespace recmap {

// The random numbers of a row. Block n has four words; block 0 says whether to mirror the image,
// and block n + 1 is the n-th attempt at a box.
class RowRandom {
 public:
  RowRandom(std::array<uint64_t, 2> key, uint64_t epoch, uint64_t position)
      : key_(key), epoch_(epoch), position_(position) {}

  std::array<uint64_t, 4> block(uint64_t number) const;
  // The same as numbers from 0 to 1, without 1.
  std::array<double, 4> uniform(uint64_t number) const;
  bool flips() const { return uniform(0)[0] < 0.5; }

 private:
  std::array<uint64_t, 2> key_;
  uint64_t epoch_, position_;
};

// The parameters of torchvision's RandomResizedCrop: the part of the area, and width by height.
struct BoxRange {
  double least_area, most_area, least_ratio, most_ratio;
};

// A box of a random area and ratio anywhere in the image. If ten attempts do not fit, it is the
// largest box in the middle whose ratio is in range, as in torchvision. Both sides must be at
// least 1.
Box random_box(const RowRandom& random, const BoxRange& range, size_t height, size_t width);

// A box of this size anywhere in the image, which is at least as large.
Box random_window(const RowRandom& random, size_t box_height, size_t box_width, size_t height,
                  size_t width);

}  // namespace recmap
