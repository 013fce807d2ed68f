#include "resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "fixed_lines.h"

namespace recmap {
namespace {

// The pixels of a side, `from` long, that make pixel `i` of the `to` pixels it becomes, and how
// much each counts before they are scaled to add up to 1. Some count nothing.
class Triangle {
 public:
  Triangle(size_t from, size_t to, size_t i) {
    const double scale = static_cast<double>(from) / static_cast<double>(to);
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    reach_ = std::max(scale, 1.0);
    taps_ = std::min(from, static_cast<size_t>(std::ceil(2 * reach_)));
    first_ = std::min(static_cast<size_t>(std::max(centre - reach_ + 0.5, 0.0)), from - taps_);
    centre_ = centre - static_cast<double>(first_);
  }

  size_t first() const { return first_; }
  size_t taps() const { return taps_; }
  double weight(size_t tap) const {
    return std::max(1 - std::abs(static_cast<double>(tap) + 0.5 - centre_) / reach_, 0.0);
  }

 private:
  size_t first_, taps_;
  double centre_, reach_;
};

// The triangles of all pixels of a side. All have equally many taps: loops of one length are
// predicted well.
class Weights {
 public:
  Weights(size_t from, size_t to) : first_(to), taps_(Triangle(from, to, 0).taps()) {
    values_.resize(taps_ * to);
    std::vector<double> weights(taps_);
    for (size_t i = 0; i < to; ++i) {
      const Triangle triangle(from, to, i);
      first_[i] = triangle.first();
      double sum = 0;
      for (size_t tap = 0; tap < taps_; ++tap) sum += weights[tap] = triangle.weight(tap);
      for (size_t tap = 0; tap < taps_; ++tap) {
        values_[i * taps_ + tap] = static_cast<float>(weights[tap] / sum);
      }
    }
  }

  size_t first(size_t i) const { return first_[i]; }
  size_t taps() const { return taps_; }
  std::span<const float> of(size_t i) const { return {values_.data() + i * taps_, taps_}; }

  FixedWeights fixed() const {
    constexpr int kOne = 1 << 15, kMost = kOne - 1;
    const size_t even = taps_ + taps_ % 2;
    FixedWeights made{even, first_, std::vector<int16_t>(even * first_.size())};
    for (size_t i = 0; i < first_.size(); ++i) {
      const std::span<const float> given = of(i);
      const std::span<int16_t> weights(made.weights.data() + i * even, taps_);
      int rest = kOne;
      for (size_t tap = 0; tap < taps_; ++tap) {
        const int weight = std::min(static_cast<int>(given[tap] * kOne + 0.5F), kMost);
        weights[tap] = static_cast<int16_t>(weight);
        rest -= weight;
      }
      int16_t& largest = *std::max_element(weights.begin(), weights.end());
      largest = static_cast<int16_t>(std::min(largest + rest, kMost));
    }
    return made;
  }

 private:
  std::vector<size_t> first_;
  size_t taps_;
  std::vector<float> values_;
};

// Images with a side shorter than kThin and the other longer than kLong: weights, or lines of
// floats, could take many times the memory of the image.
constexpr size_t kThin = 24;
constexpr size_t kLong = 4096;

// Adds up items of `size` values, up to kThin pixels of 4 channels, as a triangle says. Each is
// `stride` bytes behind the one before. Slow, but takes no memory.
void add_items(const uint8_t* items, size_t size, size_t stride, const Triangle& triangle,
               float* out) {
  double sums[kThin * 4] = {}, weights = 0;
  const uint8_t* item = items + triangle.first() * stride;
  for (size_t tap = 0; tap < triangle.taps(); ++tap, item += stride) {
    const double weight = triangle.weight(tap);
    weights += weight;
    for (size_t i = 0; i < size; ++i) sums[i] += weight * item[i];
  }
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<float>(sums[i] / weights);
}

// Adds up lines, each times its weight. Each is `stride` values behind the one before.
template <typename Value>
void add_lines(const Value* line, size_t length, size_t stride, std::span<const float> weights,
               float* out) {
  constexpr size_t kBlock = 16;  // sums that stay in registers
  for (size_t at = 0; at < length; at += kBlock) {
    float sums[kBlock] = {};
    const size_t count = std::min(kBlock, length - at);
    const Value* values = line + at;
    for (const float weight : weights) {
      if (count == kBlock) {
        for (size_t i = 0; i < kBlock; ++i) sums[i] += weight * static_cast<float>(values[i]);
      } else {
        for (size_t i = 0; i < count; ++i) sums[i] += weight * static_cast<float>(values[i]);
      }
      values += stride;
    }
    std::copy_n(sums, count, out + at);
  }
}

using Lanes = float __attribute__((vector_size(16)));

// Resizes lines of pixels, several at once, so that the CPU need not wait for each sum. It handles
// four channels at a time: of three, the next pixel's first is read and written too, so there must
// be room for kBehind values behind every line.
constexpr size_t kLines = 4;
constexpr size_t kBehind = 1;

template <size_t kChannels, size_t kCount>
void resize_lines(const float* lines, size_t stride, const Weights& weights, size_t width,
                  float* out, size_t out_stride) {
  using Sum = std::conditional_t<kChannels == 1, float, Lanes>;
  for (size_t x = 0; x < width; ++x, out += kChannels) {
    const float* pixel = lines + weights.first(x) * kChannels;
    Sum sums[kCount] = {};
    for (const float weight : weights.of(x)) {
      for (size_t i = 0; i < kCount; ++i) {
        Sum values;
        std::memcpy(&values, pixel + i * stride, sizeof values);
        sums[i] += weight * values;
      }
      pixel += kChannels;
    }
    for (size_t i = 0; i < kCount; ++i) std::memcpy(out + i * out_stride, sums + i, sizeof(Sum));
  }
}

// The same for up to kLines lines.
template <size_t kChannels>
void resize_some(const float* lines, size_t stride, size_t count, const Weights& weights,
                 size_t width, float* out, size_t out_stride) {
  if (count == kLines) {
    return resize_lines<kChannels, kLines>(lines, stride, weights, width, out, out_stride);
  }
  for (size_t i = 0; i < count; ++i) {
    resize_lines<kChannels, 1>(lines + i * stride, 0, weights, width, out + i * out_stride, 0);
  }
}

void round_levels(const float* values, size_t count, uint8_t* out) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = static_cast<uint8_t>(static_cast<int32_t>(values[i] + 0.5F));
  }
}

// Makes every line of `out` from lines of floats, `length` long and `stride` apart.
void resize_down(const std::vector<float>& lines, size_t length, size_t stride, const Weights& down,
                 size_t height, uint8_t* out) {
  std::vector<float> made(length);
  for (size_t y = 0; y < height; ++y, out += length) {
    add_lines(lines.data() + down.first(y) * stride, length, stride, down.of(y), made.data());
    round_levels(made.data(), length, out);
  }
}

template <size_t kChannels>
void resize_wide(const Pixels& image, size_t height, size_t width, uint8_t* out) {
  std::vector<float> narrow(image.height * width * kChannels);
  float* made = narrow.data();
  for (size_t y = 0; y < image.height; ++y) {
    const uint8_t* line = image.data + y * image.stride;
    for (size_t x = 0; x < width; ++x, made += kChannels) {
      add_items(line, kChannels, kChannels, Triangle(image.width, width, x), made);
    }
  }
  const size_t length = width * kChannels;
  resize_down(narrow, length, length, Weights(image.height, height), height, out);
}

template <size_t kChannels>
void resize_tall(const Pixels& image, size_t height, size_t width, uint8_t* out) {
  const Weights across(image.width, width);
  const size_t from = image.width * kChannels, to = width * kChannels;
  std::vector<float> line(from + kBehind), made(to + kBehind);
  for (size_t y = 0; y < height; ++y, out += to) {
    add_items(image.data, from, image.stride, Triangle(image.height, height, y), line.data());
    resize_lines<kChannels, 1>(line.data(), 0, across, width, made.data(), 0);
    round_levels(made.data(), to, out);
  }
}

// Makes the lines of `out` from levels, when there are fewer of them than there were.
void fewer_lines(const Pixels& image, const FixedWeights& down, const FixedWeights& across,
                 uint8_t* out) {
  const FixedPath& path = fixed_paths().front();
  const size_t from = image.width * image.channels, to = across.first.size() * image.channels;
  const size_t stride = from + kBehindFixed, made_stride = to + kBehindFixed;
  std::vector<int16_t> lines(kFixedLines * stride), made(kFixedLines * made_stride);
  for (size_t y = 0; y < down.first.size(); y += kFixedLines) {
    const size_t count = std::min(kFixedLines, down.first.size() - y);
    for (size_t i = 0; i < count; ++i) {
      path.sum_levels(image.data + down.first[y + i] * image.stride, from, image.stride,
                      down.of(y + i), lines.data() + i * stride);
    }
    path.resize_lines(lines.data(), stride, image.channels, across, made.data(), made_stride);
    for (size_t i = 0; i < count; ++i, out += to) {
      path.round_values(made.data() + i * made_stride, to, out);
    }
  }
}

// The same when there are more of them.
void more_lines(const Pixels& image, const FixedWeights& down, const FixedWeights& across,
                uint8_t* out) {
  const FixedPath& path = fixed_paths().front();
  const size_t from = image.width * image.channels, to = across.first.size() * image.channels;
  const size_t stride = from + kBehindFixed, made_stride = to + kBehindFixed;
  std::vector<int16_t> lines(kFixedLines * stride);
  std::vector<int16_t> made((image.height + kFixedLines - 1) * made_stride);
  for (size_t y = 0; y < image.height; y += kFixedLines) {
    const size_t count = std::min(kFixedLines, image.height - y);
    for (size_t i = 0; i < count; ++i) {
      fix_levels(image.data + (y + i) * image.stride, from, lines.data() + i * stride);
    }
    path.resize_lines(lines.data(), stride, image.channels, across, made.data() + y * made_stride,
                      made_stride);
  }
  for (size_t y = 0; y < down.first.size(); ++y, out += to) {
    path.sum_values(made.data() + down.first[y] * made_stride, to, made_stride, down.of(y), out);
  }
}

template <size_t kChannels>
void resize_by(const Pixels& image, size_t height, size_t width, uint8_t* out) {
  if (image.height < kThin && image.width > std::max(kLong, width)) {
    return resize_wide<kChannels>(image, height, width, out);
  }
  if (image.width < kThin && image.height > std::max(kLong, height)) {
    return resize_tall<kChannels>(image, height, width, out);
  }
  const Weights down(image.height, height), across(image.width, width);
  if (std::max(down.taps(), across.taps()) <= kMostFixedTaps) {
    // The order that keeps what lies between the two steps small.
    const auto make = height > image.height ? more_lines : fewer_lines;
    return make(image, down.fixed(), across.fixed(), out);
  }
  const size_t from = image.width * kChannels, to = width * kChannels;
  const size_t stride = from + kBehind, made_stride = to + kBehind;
  // The order that keeps what lies between the two steps small.
  if (height > image.height) {
    const size_t most = std::min(kLines, image.height);
    std::vector<float> lines(most * stride), narrow(image.height * made_stride);
    for (size_t y = 0; y < image.height; y += kLines) {
      const size_t count = std::min(kLines, image.height - y);
      for (size_t i = 0; i < count; ++i) {
        std::copy_n(image.data + (y + i) * image.stride, from, lines.data() + i * stride);
      }
      resize_some<kChannels>(lines.data(), stride, count, across, width,
                             narrow.data() + y * made_stride, made_stride);
    }
    return resize_down(narrow, to, made_stride, down, height, out);
  }
  const size_t most = std::min(kLines, height);
  std::vector<float> lines(most * stride), made(most * made_stride);
  for (size_t y = 0; y < height; y += kLines) {
    const size_t count = std::min(kLines, height - y);
    for (size_t i = 0; i < count; ++i) {
      add_lines(image.data + down.first(y + i) * image.stride, from, image.stride, down.of(y + i),
                lines.data() + i * stride);
    }
    resize_some<kChannels>(lines.data(), stride, count, across, width, made.data(), made_stride);
    for (size_t i = 0; i < count; ++i, out += to) {
      round_levels(made.data() + i * made_stride, to, out);
    }
  }
}

template <typename Value>
void look_up_by(std::span<const uint8_t> levels, const void* table, void* out) {
  const auto* values = static_cast<const Value*>(table);
  std::transform(levels.begin(), levels.end(), static_cast<Value*>(out),
                 [&](uint8_t level) { return values[level]; });
}

}  // namespace

void resize(const Pixels& image, size_t height, size_t width, uint8_t* out) {
  switch (image.channels) {
    case 1:
      return resize_by<1>(image, height, width, out);
    case 3:
      return resize_by<3>(image, height, width, out);
    case 4:
      return resize_by<4>(image, height, width, out);
  }
}

void look_up(std::span<const uint8_t> levels, const void* table, size_t size, void* out) {
  switch (size) {
    case 1:
      return look_up_by<uint8_t>(levels, table, out);
    case 2:
      return look_up_by<uint16_t>(levels, table, out);
    case 4:
      return look_up_by<uint32_t>(levels, table, out);
    case 8:
      return look_up_by<uint64_t>(levels, table, out);
  }
}

}  // namespace recmap
