#include "fixed_lines.h"

#include <array>
#include <cstring>
#include <type_traits>

#if defined(__x86_64__)
#include <immintrin.h>

#include "x86_features.h"
#endif

namespace recmap {
namespace {

constexpr int kFraction = 7;  // bits of a value
constexpr int kWeightBits = 15;

// Sums have a bit more.
uint16_t widened(uint8_t level) { return static_cast<uint16_t>(level << 8); }
uint16_t widened(int16_t value) { return static_cast<uint16_t>(value << 1); }

void narrow(uint16_t sum, int16_t& value) {
  value = static_cast<int16_t>(static_cast<uint16_t>((sum + 1U) >> 1));
}
void narrow(uint16_t sum, uint8_t& level) { level = static_cast<uint8_t>((sum + 128U) >> 8); }

// How much a weight counts, in 65536ths.
uint16_t doubled(int16_t weight) { return static_cast<uint16_t>(2 * weight); }

// Each product loses up to one of 256 parts of a level, half of which is added again.
uint16_t begin_of(size_t taps) { return static_cast<uint16_t>(taps / 2); }

// The weights up to the last that counts.
std::span<const int16_t> counting(std::span<const int16_t> weights) {
  while (weights.size() > 1 && weights.back() == 0) weights = weights.first(weights.size() - 1);
  return weights;
}

template <size_t kCount, typename From, typename To>
void sum_some(const From* line, size_t stride, std::span<const int16_t> weights, To* out) {
  uint16_t sums[kCount];
  for (size_t i = 0; i < kCount; ++i) sums[i] = begin_of(weights.size());
  for (const int16_t weight : weights) {
    const uint16_t by = doubled(weight);
    for (size_t i = 0; i < kCount; ++i) {
      const auto product =
          static_cast<uint16_t>(static_cast<uint32_t>(widened(line[i])) * by >> 16);
      sums[i] = static_cast<uint16_t>(sums[i] + product);
    }
    line += stride;
  }
  for (size_t i = 0; i < kCount; ++i) narrow(sums[i], out[i]);
}

// Calls some(i) for every kBlock of `length` values, and one(i) for each of fewer. The last block
// may overlap the one before.
constexpr size_t kBlock = 32;

template <typename Some, typename One>
void each_block(size_t length, Some some, One one) {
  if (length < kBlock) {
    for (size_t i = 0; i < length; ++i) one(i);
    return;
  }
  for (size_t i = 0; i + kBlock < length; i += kBlock) some(i);
  some(length - kBlock);
}

template <typename From, typename To>
void sum_lines(const From* line, size_t length, size_t stride, std::span<const int16_t> weights,
               To* out) {
  weights = counting(weights);
  each_block(
      length, [&](size_t i) { sum_some<kBlock>(line + i, stride, weights, out + i); },
      [&](size_t i) { sum_some<1>(line + i, stride, weights, out + i); });
}

void round_values(const int16_t* line, size_t length, uint8_t* out) {
  constexpr int kHalf = 1 << (kFraction - 1);
  for (size_t i = 0; i < length; ++i) {
    out[i] = static_cast<uint8_t>(static_cast<uint16_t>(line[i] + kHalf) >> kFraction);
  }
}

using Shorts = int16_t __attribute__((vector_size(8)));
using Numbers = int32_t __attribute__((vector_size(16)));

// Handles four channels at a time: of three, the next pixel's first is read and written too.
template <size_t kChannels>
void resize_pixels(const int16_t* lines, size_t stride, const FixedWeights& across, int16_t* out,
                   size_t out_stride) {
  constexpr bool kGrey = kChannels == 1;
  using Values = std::conditional_t<kGrey, int16_t, Shorts>;
  using Sums = std::conditional_t<kGrey, int32_t, Numbers>;
  for (size_t x = 0; x < across.first.size(); ++x, out += kChannels) {
    const int16_t* pixel = lines + across.first[x] * kChannels;
    Sums sums[kFixedLines] = {};
    for (const int16_t weight : across.of(x)) {
      for (size_t i = 0; i < kFixedLines; ++i) {
        Values values;
        std::memcpy(&values, pixel + i * stride, sizeof values);
        if constexpr (kGrey) {
          sums[i] += values * weight;
        } else {
          sums[i] += __builtin_convertvector(values, Numbers) * static_cast<int32_t>(weight);
        }
      }
      pixel += kChannels;
    }
    for (size_t i = 0; i < kFixedLines; ++i) {
      const Sums rounded = (sums[i] + (1 << (kWeightBits - 1))) >> kWeightBits;
      Values values;
      if constexpr (kGrey) {
        values = static_cast<int16_t>(rounded);
      } else {
        values = __builtin_convertvector(rounded, Shorts);
      }
      std::memcpy(out + i * out_stride, &values, sizeof values);
    }
  }
}

void resize_lines(const int16_t* lines, size_t stride, size_t channels, const FixedWeights& across,
                  int16_t* out, size_t out_stride) {
  switch (channels) {
    case 1:
      return resize_pixels<1>(lines, stride, across, out, out_stride);
    case 3:
      return resize_pixels<3>(lines, stride, across, out, out_stride);
    case 4:
      return resize_pixels<4>(lines, stride, across, out, out_stride);
  }
}

#if defined(__x86_64__)
// Lambdas and functions of the standard library would be compiled for other CPUs, and not inlined.
#define RECMAP_AVX2 __attribute__((target("avx2")))

RECMAP_AVX2 inline __m256i load(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

RECMAP_AVX2 inline void store(__m256i values, void* to) {
  _mm256_storeu_si256(static_cast<__m256i*>(to), values);
}

RECMAP_AVX2 inline __m256i plus_product(__m256i sum, __m256i value, __m256i by) {
  return _mm256_add_epi16(sum, _mm256_mulhi_epu16(value, by));
}

// Weights, ready to be multiplied by. Returns how many there are.
size_t doubled_pairs(std::span<const int16_t> weights, uint32_t* pairs) {
  weights = counting(weights);
  for (size_t tap = 0; tap < weights.size(); ++tap) pairs[tap] = doubled(weights[tap]) * 0x10001U;
  return weights.size();
}

RECMAP_AVX2 void sum_32_levels(const uint8_t* line, size_t stride, const uint32_t* pairs,
                               size_t taps, int16_t* out) {
  const __m256i zero = _mm256_setzero_si256();
  __m256i low = _mm256_set1_epi16(static_cast<int16_t>(taps / 2)), high = low;
  for (size_t tap = 0; tap < taps; ++tap, line += stride) {
    const __m256i by = _mm256_set1_epi32(static_cast<int32_t>(pairs[tap]));
    const __m256i levels = load(line);
    low = plus_product(low, _mm256_unpacklo_epi8(zero, levels), by);
    high = plus_product(high, _mm256_unpackhi_epi8(zero, levels), by);
  }
  low = _mm256_avg_epu16(low, zero);
  high = _mm256_avg_epu16(high, zero);
  // Each half of a register was unpacked on its own.
  store(_mm256_permute2x128_si256(low, high, 0x20), out);
  store(_mm256_permute2x128_si256(low, high, 0x31), out + 16);
}

RECMAP_AVX2 void sum_32_values(const int16_t* line, size_t stride, const uint32_t* pairs,
                               size_t taps, uint8_t* out) {
  __m256i low = _mm256_set1_epi16(static_cast<int16_t>(taps / 2)), high = low;
  for (size_t tap = 0; tap < taps; ++tap, line += stride) {
    const __m256i by = _mm256_set1_epi32(static_cast<int32_t>(pairs[tap]));
    low = plus_product(low, _mm256_slli_epi16(load(line), 1), by);
    high = plus_product(high, _mm256_slli_epi16(load(line + 16), 1), by);
  }
  const __m256i half = _mm256_set1_epi16(128);
  low = _mm256_srli_epi16(_mm256_add_epi16(low, half), 8);
  high = _mm256_srli_epi16(_mm256_add_epi16(high, half), 8);
  store(_mm256_permute4x64_epi64(_mm256_packus_epi16(low, high), 0xD8), out);
}

void sum_levels_avx2(const uint8_t* line, size_t length, size_t stride,
                     std::span<const int16_t> weights, int16_t* out) {
  uint32_t pairs[kMostFixedTaps];
  const size_t taps = doubled_pairs(weights, pairs);
  each_block(
      length, [&](size_t i) { sum_32_levels(line + i, stride, pairs, taps, out + i); },
      [&](size_t i) { sum_some<1>(line + i, stride, counting(weights), out + i); });
}

void sum_values_avx2(const int16_t* line, size_t length, size_t stride,
                     std::span<const int16_t> weights, uint8_t* out) {
  uint32_t pairs[kMostFixedTaps];
  const size_t taps = doubled_pairs(weights, pairs);
  each_block(
      length, [&](size_t i) { sum_32_values(line + i, stride, pairs, taps, out + i); },
      [&](size_t i) { sum_some<1>(line + i, stride, counting(weights), out + i); });
}

// Two lines to a register.
RECMAP_AVX2 inline __m256i load_two(const int16_t* line, size_t stride) {
  const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(line));
  const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(line + stride));
  return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

// Two pixels at a time: each channel of the one beside that of the other, to multiply and add them
// in one step.
template <size_t kChannels, size_t kPairs>
RECMAP_AVX2 void resize_pairs(const int16_t* lines, size_t stride, const FixedWeights& across,
                              int16_t* out, size_t out_stride) {
  const __m128i rgb = _mm_setr_epi8(0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, -1, -1, -1, -1);
  const __m128i rgba = _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
  const __m256i order = _mm256_broadcastsi128_si256(kChannels == 3 ? rgb : rgba);
  const __m256i half = _mm256_set1_epi32(1 << (kWeightBits - 1));
  const size_t count = across.first.size(), pairs = kPairs != 0 ? kPairs : across.taps / 2;
  const size_t* first = across.first.data();
  const int16_t* weight = across.weights.data();
  for (size_t x = 0; x < count; ++x, out += kChannels) {
    const int16_t* pixel = lines + first[x] * kChannels;
    __m256i above = half, below = half;
    for (size_t pair = 0; pair < pairs; ++pair, weight += 2, pixel += 2 * kChannels) {
      int32_t both;
      std::memcpy(&both, weight, sizeof both);
      const __m256i by = _mm256_set1_epi32(both);
      const __m256i one = _mm256_shuffle_epi8(load_two(pixel, stride), order);
      const __m256i other = _mm256_shuffle_epi8(load_two(pixel + 2 * stride, stride), order);
      above = _mm256_add_epi32(above, _mm256_madd_epi16(one, by));
      below = _mm256_add_epi32(below, _mm256_madd_epi16(other, by));
    }
    const __m256i made = _mm256_packs_epi32(_mm256_srai_epi32(above, kWeightBits),
                                            _mm256_srai_epi32(below, kWeightBits));
    // Lines 0 and 2, and 1 and 3.
    const __m128i even = _mm256_castsi256_si128(made), odd = _mm256_extracti128_si256(made, 1);
    const __m128i parts[] = {even, odd, _mm_unpackhi_epi64(even, even),
                             _mm_unpackhi_epi64(odd, odd)};
    for (size_t i = 0; i < kFixedLines; ++i) {
      _mm_storel_epi64(reinterpret_cast<__m128i*>(out + i * out_stride), parts[i]);
    }
  }
}

// Few taps are the rule, and loops of a known length are quick.
template <size_t kChannels>
void resize_pixels_avx2(const int16_t* lines, size_t stride, const FixedWeights& across,
                        int16_t* out, size_t out_stride) {
  switch (across.taps) {
    case 2:
      return resize_pairs<kChannels, 1>(lines, stride, across, out, out_stride);
    case 4:
      return resize_pairs<kChannels, 2>(lines, stride, across, out, out_stride);
    default:
      return resize_pairs<kChannels, 0>(lines, stride, across, out, out_stride);
  }
}

void resize_lines_avx2(const int16_t* lines, size_t stride, size_t channels,
                       const FixedWeights& across, int16_t* out, size_t out_stride) {
  switch (channels) {
    case 3:
      return resize_pixels_avx2<3>(lines, stride, across, out, out_stride);
    case 4:
      return resize_pixels_avx2<4>(lines, stride, across, out, out_stride);
    default:
      return resize_lines(lines, stride, channels, across, out, out_stride);
  }
}
#endif

constexpr FixedPath kPaths[] = {
#if defined(__x86_64__)
    {"avx2", sum_levels_avx2, sum_values_avx2, round_values, resize_lines_avx2},
#endif
    {"portable", sum_lines<uint8_t, int16_t>, sum_lines<int16_t, uint8_t>, round_values,
     resize_lines},
};

bool runs_all() {
#if defined(__x86_64__)
  return x86_has_avx2();
#else
  return true;
#endif
}

}  // namespace

std::span<const FixedPath> fixed_paths() {
  static const bool all = runs_all();
  const std::span<const FixedPath> paths(kPaths);
  return all ? paths : paths.last(1);
}

void fix_levels(const uint8_t* levels, size_t length, int16_t* out) {
  for (size_t i = 0; i < length; ++i) out[i] = static_cast<int16_t>(levels[i] << kFraction);
}

}  // namespace recmap
