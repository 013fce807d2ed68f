#include "resize.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "check.h"

namespace recmap {
namespace {

using Image = std::vector<uint8_t>;

Image noise(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  Image image(size);
  for (uint8_t& level : image) level = static_cast<uint8_t>(random());
  return image;
}

double weight(size_t at, size_t i, double scale) {
  const double reach = std::max(scale, 1.0);
  const double centre = (static_cast<double>(i) + 0.5) * scale;
  return std::max(0.0, 1 - std::abs(static_cast<double>(at) + 0.5 - centre) / reach);
}

// One level, from all pixels of the image.
double exact(const Pixels& image, size_t height, size_t width, size_t y, size_t x, size_t channel) {
  const double down = static_cast<double>(image.height) / static_cast<double>(height);
  const double across = static_cast<double>(image.width) / static_cast<double>(width);
  double sum = 0, weights = 0;
  for (size_t v = 0; v < image.height; ++v) {
    const double by = weight(v, y, down);
    for (size_t u = 0; by > 0 && u < image.width; ++u) {
      const double both = by * weight(u, x, across);
      sum += both * image.data[(v * image.width + u) * image.channels + channel];
      weights += both;
    }
  }
  return sum / weights;
}

// From and into allocations of exactly the size, so that the sanitizer sees every byte beyond.
double largest_difference(size_t channels, size_t h, size_t w, size_t height, size_t width) {
  const Image levels = noise(h * w * channels, static_cast<unsigned>(h * 31 + w));
  const Pixels image{levels.data(), h, w, channels};
  Image out(height * width * channels);
  resize(image, height, width, out.data());
  double largest = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t pixel = i / channels;
    const double wanted = exact(image, height, width, pixel / width, pixel % width, i % channels);
    largest = std::max(largest, std::abs(out[i] - wanted));
  }
  return largest;
}

TEST(ResizedLevelsAreTheNearest) {
  constexpr size_t kSizes[][4] = {
      {1, 1, 1, 1},   {1, 1, 5, 7},   {7, 9, 3, 4},    {7, 9, 20, 31},   {9, 7, 20, 3},
      {40, 33, 8, 5}, {3, 90, 2, 11}, {150, 3, 4, 40}, {64, 64, 63, 65}, {5, 200, 9, 3},
  };
  for (const auto& [h, w, height, width] : kSizes) {
    for (const size_t channels : {1U, 3U, 4U}) {
      // Half a level from rounding, and what the products of 16 bits lose.
      CHECK(largest_difference(channels, h, w, height, width) < 0.6);
    }
  }
}

TEST(LevelsOfAnySizeAreTheNearest) {
  std::mt19937 random(3);
  const auto side = [&](size_t most) { return 1 + random() % most; };
  for (int round = 0; round < 150; ++round) {
    const size_t h = side(90), w = side(90), height = side(50), width = side(50);
    CHECK(largest_difference(round % 2 == 0 ? 3 : 4, h, w, height, width) < 0.6);
  }
}

TEST(LongAndThinImagesAreResizedAlike) {
  constexpr size_t kSizes[][4] = {
      {1, 5000, 7, 9}, {5000, 1, 9, 7},  {23, 4097, 4, 3},   {4097, 23, 3, 4},   {2, 5000, 2, 1},
      {5000, 2, 1, 2}, {3, 4100, 1, 80}, {4100, 3, 80, 1},   {24, 4097, 2, 3},   {4097, 24, 3, 2},
      {5000, 1, 5, 1}, {1, 5000, 1, 5},  {1, 4097, 1, 4099}, {4097, 1, 4099, 1},
  };
  for (const auto& [h, w, height, width] : kSizes) {
    for (const size_t channels : {1U, 3U, 4U}) {
      CHECK(largest_difference(channels, h, w, height, width) < 0.6);
    }
  }
}

TEST(ResizingAnImageOfOneLevelKeepsIt) {
  for (const int level : {0, 1, 127, 254, 255}) {
    for (const size_t side : {1U, 10U, 33U, 100U, 700U}) {
      const Image image(side * side * 3, static_cast<uint8_t>(level));
      Image out(20 * 20 * 3);
      resize({image.data(), side, side, 3}, 20, 20, out.data());
      CHECK(std::ranges::all_of(out, [&](uint8_t found) { return found == level; }));
    }
  }
}

TEST(LevelsAreLookedUp) {
  const Image levels = noise(1000, 1);
  std::vector<uint64_t> table(256), out(levels.size());
  for (size_t i = 0; i < table.size(); ++i) table[i] = i * 0x0101010101010101;
  look_up(levels, table.data(), 8, out.data());
  for (size_t i = 0; i < levels.size(); ++i) CHECK_EQ(out[i], table[levels[i]]);
}

}  // namespace
}  // namespace recmap
