#include "random_box.h"

#include <algorithm>
#include <cmath>

namespace recmap {
namespace {

constexpr uint64_t kAttempts = 10;
constexpr int kRounds = 10;

uint64_t multiply(uint64_t a, uint64_t b, uint64_t& high) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  high = static_cast<uint64_t>(product >> 64);
  return static_cast<uint64_t>(product);
}

// A whole number below `count`.
size_t below(size_t count, double uniform) {
  return std::min(count - 1, static_cast<size_t>(uniform * static_cast<double>(count)));
}

size_t rounded(double value) { return static_cast<size_t>(std::max(std::nearbyint(value), 1.0)); }

Box middle(const BoxRange& range, size_t height, size_t width) {
  const auto h = static_cast<double>(height), w = static_cast<double>(width);
  size_t tall = height, wide = width;
  if (w / h < range.least_ratio) {
    tall = std::min(height, rounded(w / range.least_ratio));
  } else if (w / h > range.most_ratio) {
    wide = std::min(width, rounded(h * range.most_ratio));
  }
  return {(height - tall) / 2, (width - wide) / 2, tall, wide};
}

}  // namespace

std::array<uint64_t, 4> RowRandom::block(uint64_t number) const {
  std::array<uint64_t, 4> c{number + 1, 0, position_, epoch_};
  std::array<uint64_t, 2> key = key_;
  for (int round = 0; round < kRounds; ++round) {
    uint64_t high0 = 0, high1 = 0;
    const uint64_t low0 = multiply(0xD2E7470EE14C6C93, c[0], high0);
    const uint64_t low1 = multiply(0xCA5A826395121157, c[2], high1);
    c = {high1 ^ c[1] ^ key[0], low1, high0 ^ c[3] ^ key[1], low0};
    key[0] += 0x9E3779B97F4A7C15;
    key[1] += 0xBB67AE8584CAA73B;
  }
  return c;
}

std::array<double, 4> RowRandom::uniform(uint64_t number) const {
  std::array<double, 4> made{};
  const auto words = block(number);
  for (size_t i = 0; i < 4; ++i) made[i] = static_cast<double>(words[i] >> 11) * 0x1p-53;
  return made;
}

Box random_box(const RowRandom& random, const BoxRange& range, size_t height, size_t width) {
  const double area = static_cast<double>(height) * static_cast<double>(width);
  const double least = std::log(range.least_ratio), most = std::log(range.most_ratio);
  for (uint64_t attempt = 1; attempt <= kAttempts; ++attempt) {
    const auto u = random.uniform(attempt);
    const double part = area * (range.least_area + u[0] * (range.most_area - range.least_area));
    const double ratio = std::exp(least + u[1] * (most - least));
    const double wide = std::nearbyint(std::sqrt(part * ratio));
    const double tall = std::nearbyint(std::sqrt(part / ratio));
    if (wide < 1 || tall < 1 || wide > static_cast<double>(width) ||
        tall > static_cast<double>(height)) {
      continue;
    }
    const auto w = static_cast<size_t>(wide), h = static_cast<size_t>(tall);
    return {below(height - h + 1, u[2]), below(width - w + 1, u[3]), h, w};
  }
  return middle(range, height, width);
}

Box random_window(const RowRandom& random, size_t box_height, size_t box_width, size_t height,
                  size_t width) {
  const auto u = random.uniform(1);
  return {below(height - box_height + 1, u[2]), below(width - box_width + 1, u[3]), box_height,
          box_width};
}

}  // namespace recmap
