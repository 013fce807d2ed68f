#include "resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
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
  size_t taps() const { return taps_; }
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

// Adds up lines, each times its weight.
template <typename Value>
void add_lines(const Value* line, size_t length, std::span<const float> weights, float* out) {
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
      values += length;
    }
    std::copy_n(sums, count, out + at);
  }
}

// The same for bytes in 16 bits, eight of which are the fraction, twice as fast. Each product loses
// up to 1/256 of a level, half of which is added again, so there may be only a few.
constexpr size_t kMostShortTaps = 16;

void add_bytes(const uint8_t* line, size_t length, std::span<const float> weights, float* out) {
  constexpr size_t kBlock = 32;
  uint16_t shorts[kMostShortTaps];
  for (size_t i = 0; i < weights.size(); ++i) {
    shorts[i] = static_cast<uint16_t>(std::min(weights[i] * 65536 + 0.5F, 65535.0F));
  }
  const auto begin = static_cast<uint16_t>(weights.size() / 2);
  const auto product = [](uint8_t value, uint16_t weight) {
    return static_cast<uint16_t>((static_cast<uint32_t>(value) << 8) * weight >> 16);
  };
  size_t at = 0;
  for (; at + kBlock <= length; at += kBlock) {
    uint16_t sums[kBlock];
    std::fill_n(sums, kBlock, begin);
    const uint8_t* values = line + at;
    for (size_t tap = 0; tap < weights.size(); ++tap, values += length) {
      const uint16_t weight = shorts[tap];
      for (size_t i = 0; i < kBlock; ++i) {
        sums[i] = static_cast<uint16_t>(sums[i] + product(values[i], weight));
      }
    }
    for (size_t i = 0; i < kBlock; ++i) out[at + i] = static_cast<float>(sums[i]) / 256;
  }
  for (; at < length; ++at) {
    uint16_t sum = begin;
    for (size_t tap = 0; tap < weights.size(); ++tap) {
      sum = static_cast<uint16_t>(sum + product(line[at + tap * length], shorts[tap]));
    }
    out[at] = static_cast<float>(sum) / 256;
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

void round_levels(const float* values, size_t count, uint8_t* out) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = static_cast<uint8_t>(static_cast<int32_t>(values[i] + 0.5F));
  }
}

template <size_t kChannels>
void resize_by(const Pixels& image, size_t height, size_t width, uint8_t* out) {
  const Weights down(image.height, height), across(image.width, width);
  const size_t from = image.width * kChannels, to = width * kChannels;
  const auto resize_to = [&](size_t count, const std::vector<float>& lines, float* made,
                             size_t stride) {
    if (count == kLines) {
      resize_lines<kChannels, kLines>(lines.data(), from + kBehind, across, width, made, stride);
    } else {
      for (size_t i = 0; i < count; ++i) {
        resize_lines<kChannels, 1>(lines.data() + i * (from + kBehind), 0, across, width,
                                   made + i * stride, 0);
      }
    }
  };
  std::vector<float> lines(kLines * (from + kBehind)), made(kLines * (to + kBehind));
  // The order that keeps what lies between the two steps small.
  if (height <= image.height) {
    const auto add = down.taps() <= kMostShortTaps ? add_bytes : add_lines<uint8_t>;
    for (size_t y = 0; y < height; y += kLines) {
      const size_t count = std::min(kLines, height - y);
      for (size_t i = 0; i < count; ++i) {
        add(image.data + down.first(y + i) * from, from, down.of(y + i),
            lines.data() + i * (from + kBehind));
      }
      resize_to(count, lines, made.data(), to + kBehind);
      for (size_t i = 0; i < count; ++i, out += to) {
        round_levels(made.data() + i * (to + kBehind), to, out);
      }
    }
    return;
  }
  std::vector<float> narrow(image.height * to + kBehind);
  for (size_t y = 0; y < image.height; ++y) {
    std::copy_n(image.data + y * from, from, lines.data());
    resize_to(1, lines, narrow.data() + y * to, 0);
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
