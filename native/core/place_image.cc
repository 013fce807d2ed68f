#include "place_image.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "parallel.h"
#include "pixel_lines.h"
#include "resize.h"

namespace recmap {
namespace {

// Images that one thread takes at a time.
constexpr size_t kBlock = 4;

template <size_t kChannels>
void flip_pixels(const uint8_t* line, size_t width, uint8_t* out) {
  for (size_t x = 0; x < width; ++x) {
    std::memcpy(out + (width - 1 - x) * kChannels, line + x * kChannels, kChannels);
  }
}

class Placer {
 public:
  explicit Placer(const Placement& how, size_t channels)
      : how_(how), channels_(channels), flipped_(how.width * channels), split_(flipped_.size()) {}

  void place(const Pixels& image, bool flip, uint8_t* out) {
    if (image.height != how_.height || image.width != how_.width) {
      if (!flip && !how_.planes && how_.table == nullptr) {
        return resize(image, how_.height, how_.width, out);
      }
      resized_.resize(how_.height * how_.width * channels_);
      resize(image, how_.height, how_.width, resized_.data());
      return lines({resized_.data(), how_.height, how_.width, channels_}, flip, out);
    }
    lines(image, flip, out);
  }

 private:
  void lines(const Pixels& image, bool flip, uint8_t* out) {
    for (size_t y = 0; y < how_.height; ++y) line(image.data + y * image.stride, y, flip, out);
  }

  void line(const uint8_t* levels, size_t y, bool flip, uint8_t* out) {
    const size_t length = how_.width * channels_;
    if (!how_.planes || channels_ == 1) {
      uint8_t* to = out + y * length * how_.value_bytes;
      if (how_.table == nullptr) {
        return flip ? flip_line(levels, how_.width, channels_, to)
                    : void(std::memcpy(to, levels, length));
      }
      return look_up({mirrored(levels, flip), length}, how_.table, how_.value_bytes, to);
    }
    const size_t plane = how_.height * how_.width;
    levels = mirrored(levels, flip);
    if (how_.table == nullptr) {
      return split_line(levels, how_.width, channels_, out + y * how_.width, plane);
    }
    split_line(levels, how_.width, channels_, split_.data(), how_.width);
    for (size_t c = 0; c < channels_; ++c) {
      const std::span<const uint8_t> part(split_.data() + c * how_.width, how_.width);
      uint8_t* to = out + (c * plane + y * how_.width) * how_.value_bytes;
      look_up(part, how_.table, how_.value_bytes, to);
    }
  }

  const uint8_t* mirrored(const uint8_t* levels, bool flip) {
    if (!flip) return levels;
    flip_line(levels, how_.width, channels_, flipped_.data());
    return flipped_.data();
  }

  const Placement& how_;
  size_t channels_;
  std::vector<uint8_t> flipped_, split_, resized_;
};

}  // namespace

void place_image(const Pixels& image, const Placement& how, uint8_t* out) {
  Placer(how, image.channels).place(image, how.flip, out);
}

bool place_images(const Pixels& first, size_t count, std::span<const int64_t> rows,
                  std::span<const Box> boxes, std::span<const uint8_t> flips, const Placement& how,
                  uint8_t* out, size_t threads) {
  if (boxes.size() != rows.size() || (!flips.empty() && flips.size() != rows.size())) return false;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] < 0 || static_cast<size_t>(rows[i]) >= count) return false;
    if (!boxes[i].within(first.height, first.width)) return false;
  }
  const size_t from = first.height * first.stride;
  const size_t to = how.height * how.width * first.channels * how.value_bytes;
  each_block(rows.size(), kBlock, threads, [&](size_t begin, size_t end) {
    Placer placer(how, first.channels);
    for (size_t i = begin; i < end; ++i) {
      Pixels image = first;
      image.data += static_cast<size_t>(rows[i]) * from;
      placer.place(image.part(boxes[i]), flips.empty() ? how.flip : flips[i] != 0, out + i * to);
    }
  });
  return true;
}

void flip_line(const uint8_t* line, size_t width, size_t channels, uint8_t* out) {
  switch (channels) {
    case 1:
      return void(std::reverse_copy(line, line + width, out));
    case 3: {
      const size_t done = flip_some_rgb(line, width, out);
      return flip_pixels<3>(line + 3 * done, width - done, out);
    }
    case 4:
      return flip_pixels<4>(line, width, out);
  }
}

void split_line(const uint8_t* line, size_t width, size_t channels, uint8_t* out, size_t stride) {
  size_t x = channels == 3 ? split_some_rgb(line, width, out, stride) : 0;
  for (; x < width; ++x) {
    for (size_t c = 0; c < channels; ++c) out[c * stride + x] = line[x * channels + c];
  }
}

}  // namespace recmap
