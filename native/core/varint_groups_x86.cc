// Varints by groups with SSSE3.
#if defined(__x86_64__)

#include <tmmintrin.h>

#include "varint_groups_path.h"

namespace recmap {
namespace {

struct Ssse3 {
  static uint64_t ends(const uint8_t* at) {
    uint64_t go_on = 0;
    for (int i = 0; i < 4; ++i) {
      const auto bits = static_cast<uint32_t>(_mm_movemask_epi8(load(at + 16 * i)));
      go_on |= uint64_t{bits} << 16 * i;
    }
    return ~go_on;
  }

  template <size_t kSize>
  static void join(const uint8_t* at, const uint8_t* shuffle, uint8_t* out) {
    const __m128i bytes =
        _mm_and_si128(_mm_shuffle_epi8(load(at), load(shuffle)), _mm_set1_epi8(0x7f));
    // Sums of two: the lower plus the higher times 1 << 7, then 1 << 14.
    const __m128i pairs = _mm_maddubs_epi16(_mm_set1_epi16(static_cast<short>(0x8001)), bytes);
    const __m128i values = _mm_madd_epi16(pairs, _mm_set1_epi32(0x40000001));
    if constexpr (kSize == 4) {
      store(out, values);
    } else {
      store(out, _mm_unpacklo_epi32(values, _mm_setzero_si128()));
      store(out + 16, _mm_unpackhi_epi32(values, _mm_setzero_si128()));
    }
  }

 private:
  static __m128i load(const uint8_t* at) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  }
  static void store(uint8_t* out, __m128i values) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), values);
  }
};

}  // namespace

GroupEnd decode_groups4_x86(const uint8_t* at, const uint8_t* stop, uint8_t* out,
                            const uint8_t* end) {
  return decode_groups_by<Ssse3, 4>(at, stop, out, end);
}

GroupEnd decode_groups8_x86(const uint8_t* at, const uint8_t* stop, uint8_t* out,
                            const uint8_t* end) {
  return decode_groups_by<Ssse3, 8>(at, stop, out, end);
}

}  // namespace recmap

#endif  // defined(__x86_64__)
