// One suite for every path this CPU can run.
#include "fixed_lines.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

#include "check.h"

namespace recmap {
namespace {

template <typename Body>
void on_every_path(Body body) {
  for (const FixedPath& path : fixed_paths()) {
    const check::Scope scope(path.name);
    body(path);
  }
}

using Random = std::mt19937;

size_t below(Random& random, size_t end) { return random() % end; }

std::vector<uint8_t> levels_of(Random& random, size_t count) {
  // Many of the least and the most, where sums could overflow.
  std::vector<uint8_t> levels(count);
  for (uint8_t& level : levels) {
    const size_t kind = below(random, 4);
    level = static_cast<uint8_t>(kind == 0 ? 0 : kind == 1 ? 255 : random());
  }
  return levels;
}

std::vector<int16_t> values_of(Random& random, size_t count) {
  std::vector<int16_t> values(count);
  for (int16_t& value : values) {
    const size_t kind = below(random, 4);
    value = static_cast<int16_t>(kind == 0 ? 0 : kind == 1 ? 32640 : random() % 32641);
  }
  return values;
}

// Add up to 32768, or are 32767 and zeros.
std::vector<int16_t> weights_of(Random& random, size_t taps) {
  std::vector<int> parts(taps);
  int rest = 32768;
  for (int& part : parts) {
    part = static_cast<int>(below(random, static_cast<size_t>(rest) + 1));
    rest -= part;
  }
  parts[0] += rest;
  std::shuffle(parts.begin(), parts.end(), random);
  std::vector<int16_t> weights;
  for (const int part : parts) weights.push_back(static_cast<int16_t>(std::min(part, 32767)));
  return weights;
}

// What a sum has in 65536ths of a level, 256 at a time.
uint32_t sum_of(const std::vector<uint32_t>& values, const std::vector<int16_t>& weights) {
  size_t taps = weights.size();
  while (taps > 1 && weights[taps - 1] == 0) --taps;
  uint32_t sum = static_cast<uint32_t>(taps / 2);
  for (size_t tap = 0; tap < taps; ++tap) {
    sum += values[tap] * 2 * static_cast<uint32_t>(weights[tap]) / 65536;
  }
  return sum;
}

template <typename From>
std::vector<uint32_t> column_of(const std::vector<From>& line, size_t i, size_t stride, size_t taps,
                                uint32_t scale) {
  std::vector<uint32_t> values;
  for (size_t tap = 0; tap < taps; ++tap) {
    values.push_back(static_cast<uint32_t>(line[i + tap * stride]) * scale);
  }
  return values;
}

// From and into allocations of exactly the size, so that the sanitizer sees every byte beyond.
TEST(LinesAreAddedUpAsOneByOne) {
  on_every_path([](const FixedPath& path) {
    Random random(1);
    for (int round = 0; round < 400; ++round) {
      const size_t taps = 1 + below(random, kMostFixedTaps), length = 1 + below(random, 150);
      const size_t stride = length + below(random, 5), size = (taps - 1) * stride + length;
      const std::vector<int16_t> weights = weights_of(random, taps);
      const std::vector<uint8_t> levels = levels_of(random, size);
      const std::vector<int16_t> values = values_of(random, size);
      std::vector<int16_t> summed(length);
      std::vector<uint8_t> rounded(length);
      path.sum_levels(levels.data(), length, stride, weights, summed.data());
      path.sum_values(values.data(), length, stride, weights, rounded.data());
      for (size_t i = 0; i < length; ++i) {
        const uint32_t sum = sum_of(column_of(levels, i, stride, taps, 256), weights);
        CHECK_EQ(static_cast<uint32_t>(summed[i]), (sum + 1) / 2);
        const uint32_t other = sum_of(column_of(values, i, stride, taps, 2), weights);
        CHECK_EQ(static_cast<uint32_t>(rounded[i]), (other + 128) / 256);
      }
    }
  });
}

TEST(ValuesAreRoundedToTheNearestLevel) {
  on_every_path([](const FixedPath& path) {
    std::vector<int16_t> values(32641);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int16_t>(i);
    std::vector<uint8_t> levels(values.size());
    path.round_values(values.data(), values.size(), levels.data());
    for (size_t i = 0; i < values.size(); ++i) CHECK_EQ(levels[i], (i + 64) / 128);
    std::vector<int16_t> fixed(256);
    std::vector<uint8_t> all(256), back(256);
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint8_t>(i);
    fix_levels(all.data(), all.size(), fixed.data());
    path.round_values(fixed.data(), fixed.size(), back.data());
    CHECK(back == all);
  });
}

TEST(PixelsOfALineAreAddedUpAsOneByOne) {
  on_every_path([](const FixedPath& path) {
    Random random(2);
    for (int round = 0; round < 300; ++round) {
      const size_t kChannels[] = {1, 3, 4};
      const size_t channels = kChannels[below(random, 3)], width = 1 + below(random, 60);
      const size_t taps = 1 + below(random, std::min(width, kMostFixedTaps)),
                   even = taps + taps % 2;
      const size_t made = 1 + below(random, 60);
      FixedWeights across{even, {}, {}};
      for (size_t x = 0; x < made; ++x) {
        across.first.push_back(below(random, width - taps + 1));
        std::vector<int16_t> weights = weights_of(random, taps);
        weights.resize(even);
        across.weights.insert(across.weights.end(), weights.begin(), weights.end());
      }
      const size_t stride = width * channels + kBehindFixed;
      const size_t out_stride = made * channels + kBehindFixed;
      const std::vector<int16_t> lines = values_of(random, kFixedLines * stride);
      std::vector<int16_t> out(kFixedLines * out_stride);
      path.resize_lines(lines.data(), stride, channels, across, out.data(), out_stride);
      for (size_t i = 0; i < kFixedLines * made * channels; ++i) {
        const size_t c = i % channels, x = i / channels % made, y = i / channels / made;
        int64_t sum = 1 << 14;
        for (size_t tap = 0; tap < taps; ++tap) {
          sum += static_cast<int64_t>(across.of(x)[tap]) *
                 lines[y * stride + (across.first[x] + tap) * channels + c];
        }
        CHECK_EQ(static_cast<int64_t>(out[y * out_stride + x * channels + c]), sum >> 15);
      }
    }
  });
}

TEST(FixedPathsEndWithThePortableOne) {
  CHECK(!fixed_paths().empty());
  CHECK_EQ(std::string_view(fixed_paths().back().name), "portable");
}

}  // namespace
}  // namespace recmap
