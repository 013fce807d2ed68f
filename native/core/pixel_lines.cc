#include "pixel_lines.h"

#if defined(__x86_64__)
#include <tmmintrin.h>

#include "x86_features.h"
#define RECMAP_SHUFFLES __attribute__((target("ssse3")))
#elif defined(__aarch64__)
#include <arm_neon.h>
#define RECMAP_SHUFFLES
#endif

namespace recmap {

#if defined(RECMAP_SHUFFLES)
namespace {

// The last byte of five pixels in reverse is the last of 16; the first of the 16 is overwritten by
// the five pixels that come before.
constexpr size_t kFlipped = 5;
alignas(16) constexpr uint8_t kReverse[16] = {0, 12, 13, 14, 9, 10, 11, 6, 7, 8, 3, 4, 5, 0, 1, 2};

#if defined(__x86_64__)
bool can_shuffle() {
  static const bool can = x86_has(bit_SSSE3);
  return can;
}

RECMAP_SHUFFLES void flip_five(const uint8_t* line, uint8_t* out) {
  const __m128i order = _mm_load_si128(reinterpret_cast<const __m128i*>(kReverse));
  const __m128i pixels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(line));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_shuffle_epi8(pixels, order));
}

// Byte i of channel c is byte 3 * i + c of 48, which is in one of three registers.
struct SplitOrder {
  alignas(16) uint8_t of[3][3][16];  // by channel and register; 0x80 makes a 0
  constexpr SplitOrder() : of() {
    for (int c = 0; c < 3; ++c) {
      for (int part = 0; part < 3; ++part) {
        for (int i = 0; i < 16; ++i) {
          const int at = 3 * i + c - 16 * part;
          of[c][part][i] = at >= 0 && at < 16 ? static_cast<uint8_t>(at) : 0x80;
        }
      }
    }
  }
};
constexpr SplitOrder kSplit;

RECMAP_SHUFFLES void split_sixteen(const uint8_t* line, uint8_t* out, size_t stride) {
  const auto load = [](const uint8_t* at) RECMAP_SHUFFLES {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  };
  const __m128i a = load(line), b = load(line + 16), d = load(line + 32);
  for (size_t c = 0; c < 3; ++c) {
    const __m128i ab = _mm_or_si128(_mm_shuffle_epi8(a, load(kSplit.of[c][0])),
                                    _mm_shuffle_epi8(b, load(kSplit.of[c][1])));
    const __m128i all = _mm_or_si128(ab, _mm_shuffle_epi8(d, load(kSplit.of[c][2])));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + c * stride), all);
  }
}
#else
bool can_shuffle() { return true; }

void flip_five(const uint8_t* line, uint8_t* out) {
  vst1q_u8(out, vqtbl1q_u8(vld1q_u8(line), vld1q_u8(kReverse)));
}

void split_sixteen(const uint8_t* line, uint8_t* out, size_t stride) {
  const uint8x16x3_t pixels = vld3q_u8(line);
  for (size_t c = 0; c < 3; ++c) vst1q_u8(out + c * stride, pixels.val[c]);
}
#endif

RECMAP_SHUFFLES size_t flip_all_fives(const uint8_t* line, size_t width, uint8_t* out) {
  size_t x = 0;
  // There is a pixel more to read one byte of, and a place before those written.
  for (; x + kFlipped < width; x += kFlipped) {
    flip_five(line + 3 * x, out + 3 * (width - x - kFlipped) - 1);
  }
  return x;
}

RECMAP_SHUFFLES size_t split_all_sixteens(const uint8_t* line, size_t width, uint8_t* out,
                                          size_t stride) {
  size_t x = 0;
  for (; x + 16 <= width; x += 16) split_sixteen(line + 3 * x, out + x, stride);
  return x;
}

}  // namespace

size_t flip_some_rgb(const uint8_t* line, size_t width, uint8_t* out) {
  return can_shuffle() ? flip_all_fives(line, width, out) : 0;
}

size_t split_some_rgb(const uint8_t* line, size_t width, uint8_t* out, size_t stride) {
  return can_shuffle() ? split_all_sixteens(line, width, out, stride) : 0;
}
#else
size_t flip_some_rgb(const uint8_t*, size_t, uint8_t*) { return 0; }
size_t split_some_rgb(const uint8_t*, size_t, uint8_t*, size_t) { return 0; }
#endif

}  // namespace recmap
