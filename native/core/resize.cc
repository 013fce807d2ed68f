#include "resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace recmap {
namespace {

// Which of the `from` pixels of a side make each of the `to` pixels, and how much each counts. All
// are made of equally many, some of which count nothing: loops of one length are predicted well.
class Weights {
 public:
  Weights(size_t from, size_t to) : first_(to) {
    const double scale = static_cast<double>(from) / static_cast<double>(to);
    const double reach = std::max(scale, 1.0);
    taps_ = std::min(from, static_cast<size_t>(std::ceil(2 * reach)));
    values_.resize(taps_ * to);
    for (size_t i = 0; i < to; ++i) {
      const double centre = (static_cast<double>(i) + 0.5) * scale;
      const auto low = static_cast<size_t>(std::max(centre - reach + 0.5, 0.0));
      first_[i] = std::min(low, from - taps_);
      fill(std::span(values_).subspan(i * taps_, taps_), centre - static_cast<double>(first_[i]),
           reach);
    }
  }

  size_t first(size_t i) const { return first_[i]; }
  std::span<const float> of(size_t i) const { return {values_.data() + i * taps_, taps_}; }

 private:
  static void fill(std::span<float> values, double centre, double reach) {
    const auto weight = [&](size_t at) {
      return std::max(1 - std::abs(static_cast<double>(at) + 0.5 - centre) / reach, 0.0);
    };
    double sum = 0;
    for (size_t at = 0; at < values.size(); ++at) sum += weight(at);
    for (size_t at = 0; at < values.size(); ++at) {
      values[at] = static_cast<float>(weight(at) / sum);
    }
  }

  std::vector<size_t> first_;
  size_t taps_;
  std::vector<float> values_;
};

using Lanes = float __attribute__((vector_size(16)));

// Adds up lines, each times its weight.
template <typename Value>
void add_lines(const Value* line, size_t length, std::span<const float> weights, float* out) {
  constexpr size_t kBlock = 16;  // sums that stay in registers
  size_t at = 0;
  for (; at + kBlock <= length; at += kBlock) {
    float sums[kBlock] = {};
    const Value* values = line + at;
    for (const float weight : weights) {
      for (size_t i = 0; i < kBlock; ++i) sums[i] += weight * static_cast<float>(values[i]);
      values += length;
    }
    std::memcpy(out + at, sums, sizeof sums);
  }
  for (; at < length; ++at) {
    float sum = 0;
    const Value* value = line + at;
    for (const float weight : weights) {
      sum += weight * static_cast<float>(*value);
      value += length;
    }
    out[at] = sum;
  }
}

// Resizes a line of pixels. It handles four channels at a time: of three, the next pixel's first
// is read and written too, so there must be room for kBehind values behind both lines.
constexpr size_t kBehind = 1;

template <size_t kChannels>
void resize_line(const float* line, const Weights& weights, size_t width, float* out) {
  for (size_t x = 0; x < width; ++x, out += kChannels) {
    const float* pixel = line + weights.first(x) * kChannels;
    if constexpr (kChannels == 1) {
      float sum = 0;
      for (const float weight : weights.of(x)) sum += weight * *pixel++;
      *out = sum;
    } else {
      Lanes sum = {};
      for (const float weight : weights.of(x)) {
        Lanes values;
        std::memcpy(&values, pixel, sizeof values);
        sum += weight * values;
        pixel += kChannels;
      }
      std::memcpy(out, &sum, sizeof sum);
    }
  }
}

void round_levels(const float* values, size_t count, uint8_t* out) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = static_cast<uint8_t>(static_cast<int32_t>(values[i] + 0.5F));
  }
}

template <size_t kChannels>
void resize_by(const Pixels& image, size_t height, size_t width, uint8_t* out) {
  const Weights down(image.height, height), across(image.width, width);
  const size_t from = image.width * kChannels, to = width * kChannels;
  std::vector<float> line(from + kBehind), made(to + kBehind);
  // The order that keeps what lies between the two steps small.
  if (height <= image.height) {
    for (size_t y = 0; y < height; ++y, out += to) {
      add_lines(image.data + down.first(y) * from, from, down.of(y), line.data());
      resize_line<kChannels>(line.data(), across, width, made.data());
      round_levels(made.data(), to, out);
    }
    return;
  }
  std::vector<float> narrow(image.height * to + kBehind);
  for (size_t y = 0; y < image.height; ++y) {
    std::copy_n(image.data + y * from, from, line.data());
    resize_line<kChannels>(line.data(), across, width, narrow.data() + y * to);
  }
  for (size_t y = 0; y < height; ++y, out += to) {
    add_lines(narrow.data() + down.first(y) * to, to, down.of(y), made.data());
    round_levels(made.data(), to, out);
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
