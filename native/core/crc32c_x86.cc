// CRC32C by the SSE4.2 crc32 instruction, its streams joined by PCLMULQDQ.
#if defined(__x86_64__)

#include <nmmintrin.h>
#include <wmmintrin.h>

#include "crc32c_paths.h"

namespace recmap {
namespace {

struct X86 {
  // By the published latencies: 3 cycles a step, about 15 to join.
  static constexpr size_t kMinInterleaved = 144;

  static uint32_t step(uint32_t crc, uint64_t word) {
    return static_cast<uint32_t>(_mm_crc32_u64(crc, word));
  }
  static uint32_t step(uint32_t crc, uint32_t word) { return _mm_crc32_u32(crc, word); }
  static uint32_t step(uint32_t crc, uint16_t word) { return _mm_crc32_u16(crc, word); }
  static uint32_t step(uint32_t crc, uint8_t word) { return _mm_crc32_u8(crc, word); }

  static uint64_t multiply(uint32_t a, uint32_t b) {
    const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128(a), _mm_cvtsi64_si128(b), 0);
    return static_cast<uint64_t>(_mm_cvtsi128_si64(product));
  }
};

}  // namespace

uint32_t crc32c_x86(uint32_t crc, const uint8_t* data, size_t n) {
  return extend_interleaved<X86>(crc, data, n);
}

uint32_t crc32c_copy_x86(uint32_t crc, const uint8_t* data, size_t n, uint8_t* to) {
  return extend_and_copy<X86>(crc, data, n, to);
}

void crc32c_four_x86(const uint8_t* const (&data)[4], size_t n, uint32_t (&crcs)[4]) {
  four_side_by_side<X86>(data, n, crcs);
}

}  // namespace recmap

#endif  // defined(__x86_64__)
