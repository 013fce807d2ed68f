#include "place_image.h"

#include <cstdint>
#include <random>
#include <vector>

#include "check.h"
#include "random_box.h"
#include "resize.h"

namespace recmap {
namespace {

using Levels = std::vector<uint8_t>;

Levels noise(size_t size) {
  std::mt19937 random(static_cast<unsigned>(size));
  Levels levels(size);
  for (uint8_t& level : levels) level = static_cast<uint8_t>(random());
  return levels;
}

// From and into allocations of exactly the size, so that the sanitizer sees every byte beyond.
TEST(LinesOfEveryLengthAreFlippedAndSplit) {
  for (size_t channels : {1, 3, 4}) {
    for (size_t width = 1; width < 70; ++width) {
      const Levels line = noise(width * channels);
      Levels flipped(line.size()), split(line.size());
      flip_line(line.data(), width, channels, flipped.data());
      split_line(line.data(), width, channels, split.data(), width);
      for (size_t x = 0; x < width; ++x) {
        for (size_t c = 0; c < channels; ++c) {
          CHECK_EQ(flipped[(width - 1 - x) * channels + c], line[x * channels + c]);
          CHECK_EQ(split[c * width + x], line[x * channels + c]);
        }
      }
    }
  }
}

TEST(BoxesOfImagesArePlacedLikeCopiesOfThem) {
  const size_t height = 13, width = 17, channels = 3;
  const Levels images = noise(4 * height * width * channels);
  const Pixels first{images.data(), height, width, channels};
  const std::vector<int64_t> rows{3, 0, 3};
  const std::vector<Box> boxes{{0, 0, 13, 17}, {12, 16, 1, 1}, {2, 3, 7, 9}};
  for (const bool planes : {false, true}) {
    const Placement how{7, 9, false, planes};
    Levels out(3 * 7 * 9 * channels);
    CHECK(place_images(first, 4, rows, boxes, {}, how, out.data(), 2));
    for (size_t i = 0; i < rows.size(); ++i) {
      const uint8_t* image = images.data() + static_cast<size_t>(rows[i]) * height * width * 3;
      Levels part;
      for (size_t y = 0; y < boxes[i].height; ++y) {
        const uint8_t* line = image + ((boxes[i].top + y) * width + boxes[i].left) * channels;
        part.insert(part.end(), line, line + boxes[i].width * channels);
      }
      Levels wanted(7 * 9 * channels);
      resize({part.data(), boxes[i].height, boxes[i].width, channels}, 7, 9, wanted.data());
      if (boxes[i].height == 7) wanted = part;
      for (size_t pixel = 0; pixel < 63; ++pixel) {
        for (size_t c = 0; c < channels; ++c) {
          const size_t at = planes ? c * 63 + pixel : pixel * channels + c;
          CHECK_EQ(out[i * wanted.size() + at], wanted[pixel * channels + c]);
        }
      }
    }
  }
}

TEST(RowsAndBoxesThatAreNotThereAreRefused) {
  const Levels images(2 * 4 * 5 * 3);
  const Pixels first{images.data(), 4, 5, 3};
  const Placement how{2, 2};
  Levels out(2 * 2 * 3);
  const auto placed = [&](int64_t row, const Box& box) {
    return place_images(first, 2, {&row, 1}, {&box, 1}, {}, how, out.data(), 1);
  };
  CHECK(placed(1, {0, 0, 4, 5}));
  CHECK(!placed(2, {0, 0, 4, 5}));
  CHECK(!placed(-1, {0, 0, 4, 5}));
  CHECK(!placed(0, {1, 0, 4, 5}));
  CHECK(!placed(0, {0, 0, 4, 6}));
  CHECK(!placed(0, {0, 0, 0, 5}));
  CHECK(!placed(0, {static_cast<size_t>(-1), 0, 2, 2}));
}

TEST(RandomBoxesLieInTheImage) {
  for (size_t height = 1; height < 40; height += 3) {
    for (size_t width = 1; width < 40; width += 4) {
      for (uint64_t position = 0; position < 20; ++position) {
        const RowRandom random({7, 8}, 1, position);
        const BoxRange range{0.08, 1, 0.75, 4.0 / 3};
        CHECK(random_box(random, range, height, width).within(height, width));
        CHECK(random_window(random, 1, 1, height, width).within(height, width));
      }
    }
  }
}

}  // namespace
}  // namespace recmap
