// Varints by groups with NEON, which every 64-bit ARM has.
#if defined(__aarch64__)

#include <arm_neon.h>

#include "varint_groups_path.h"

namespace recmap {
namespace {

struct Neon {
  static uint64_t ends(const uint8_t* at) {
    const uint8x16_t pairs =
        vpaddq_u8(vpaddq_u8(bits(at), bits(at + 16)), vpaddq_u8(bits(at + 32), bits(at + 48)));
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(pairs, pairs)), 0);
  }

  template <size_t kSize>
  static void join(const uint8_t* at, const uint8_t* shuffle, uint8_t* out) {
    const uint16x8_t bytes = vreinterpretq_u16_u8(vqtbl1q_u8(vld1q_u8(at), vld1q_u8(shuffle)));
    // Each insertion writes over the top bit of the group below it.
    const uint32x4_t pairs = vreinterpretq_u32_u16(vsliq_n_u16(bytes, vshrq_n_u16(bytes, 8), 7));
    const uint32x4_t values = vsliq_n_u32(pairs, vshrq_n_u32(pairs, 16), 14);
    if constexpr (kSize == 4) {
      store(out, values);
    } else {
      store(out, vzip1q_u32(values, vdupq_n_u32(0)));
      store(out + 16, vzip2q_u32(values, vdupq_n_u32(0)));
    }
  }

 private:
  // One bit of each byte, set in those that end a varint, in another place in each of eight.
  static uint8x16_t bits(const uint8_t* at) {
    constexpr uint8_t kBits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const int8x16_t goes_on = vshrq_n_s8(vreinterpretq_s8_u8(vld1q_u8(at)), 7);
    return vbicq_u8(vld1q_u8(kBits), vreinterpretq_u8_s8(goes_on));
  }

  static void store(uint8_t* out, uint32x4_t values) {
    vst1q_u8(out, vreinterpretq_u8_u32(values));
  }
};

}  // namespace

GroupEnd decode_groups4_arm64(const uint8_t* at, const uint8_t* stop, uint8_t* out,
                              const uint8_t* end) {
  return decode_groups_by<Neon, 4>(at, stop, out, end);
}

GroupEnd decode_groups8_arm64(const uint8_t* at, const uint8_t* stop, uint8_t* out,
                              const uint8_t* end) {
  return decode_groups_by<Neon, 8>(at, stop, out, end);
}

}  // namespace recmap

#endif  // defined(__aarch64__)
