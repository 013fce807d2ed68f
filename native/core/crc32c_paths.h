// What the CRC32C paths share: their declarations, and the one algorithm that
// every CPU path runs with its own instructions. Internal to crc32c*.cc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "copy_cache_lines.h"
#include "format.h"

namespace recmap {

uint32_t crc32c_portable(uint32_t crc, const uint8_t* data, size_t n);
uint32_t crc32c_copy_portable(uint32_t crc, const uint8_t* data, size_t n, uint8_t* to);
void crc32c_four_portable(const uint8_t* const (&data)[4], size_t n, uint32_t (&crcs)[4]);

// Each is defined on its own architecture only, and faults on a CPU without the
// instructions: the dispatch asks first.
uint32_t crc32c_x86(uint32_t crc, const uint8_t* data, size_t n);
uint32_t crc32c_copy_x86(uint32_t crc, const uint8_t* data, size_t n, uint8_t* to);
void crc32c_four_x86(const uint8_t* const (&data)[4], size_t n, uint32_t (&crcs)[4]);
uint32_t crc32c_arm64(uint32_t crc, const uint8_t* data, size_t n);
uint32_t crc32c_copy_arm64(uint32_t crc, const uint8_t* data, size_t n, uint8_t* to);
void crc32c_four_arm64(const uint8_t* const (&data)[4], size_t n, uint32_t (&crcs)[4]);

// Polynomials over GF(2) are bit-reflected, as the checksum is: in 32 bits the
// top bit is the coefficient of x^0. The x^32 term of P is left out.
inline constexpr uint32_t kCrcPolynomial = 0x82f63b78u;

constexpr uint32_t times_x_mod_p(uint32_t a) { return a >> 1 ^ (a & 1 ? kCrcPolynomial : 0u); }

constexpr uint32_t x_to_the_mod_p(uint32_t n) {
  uint32_t power = 0x80000000u;
  while (n-- != 0) power = times_x_mod_p(power);
  return power;
}

// Long enough that joining the streams costs little beside reading them, and short
// enough that they lie side by side: data that comes from memory rather than a
// cache is read twice as fast by streams of 24 words as by streams of 100 or more,
// between which the hardware prefetcher gets lost.
inline constexpr size_t kMaxStreamWords = 24;
// When the bytes are copied too, three streams of one line each: measured as fast
// as any, and every copy is of whole lines.
inline constexpr size_t kCopyStreamWords = 8;

// Entry w moves a checksum past w words of 8 bytes, which is multiplication by
// x^(64w) mod P. The entry is x^(64w - 33) because the rest comes for free: the
// carry-less product of two reflected 32-bit values, read as a reflected 64-bit
// one, is already one power of x too high, and the crc32 instruction that
// reduces it mod P multiplies by x^32.
using ShiftTable = std::array<uint32_t, 2 * kMaxStreamWords + 1>;

consteval ShiftTable make_shift_table() {
  ShiftTable table{};
  table[1] = x_to_the_mod_p(64 - 33);
  for (size_t w = 2; w < table.size(); ++w) {
    table[w] = table[w - 1];
    for (int bit = 0; bit < 64; ++bit) table[w] = times_x_mod_p(table[w]);
  }
  return table;
}

inline constexpr ShiftTable kShiftTable = make_shift_table();

// A `Cpu` gives step(crc, word) for words of 1, 2, 4 and 8 bytes; multiply(a, b),
// the carry-less product; and kMinInterleaved, the least size worth dividing in
// three. It must be local to its file: then so are these functions, and no other
// file can be linked to copies that were compiled for a special CPU.

// One crc32 instruction can start each cycle but takes up to three to finish, so
// three independent streams of `words` words each keep the unit busy.
template <typename Cpu>
uint32_t extend_three_streams(uint32_t crc, const uint8_t* data, size_t words) {
  const uint8_t* const data2 = data + 8 * words;
  const uint8_t* const data3 = data2 + 8 * words;
  uint32_t crc2 = 0;
  uint32_t crc3 = 0;
  const size_t last = 8 * (words - 1);
  for (size_t i = 0; i < last; i += 8) {
    crc = Cpu::step(crc, load_le<uint64_t>(data + i));
    crc2 = Cpu::step(crc2, load_le<uint64_t>(data2 + i));
    crc3 = Cpu::step(crc3, load_le<uint64_t>(data3 + i));
  }
  crc = Cpu::step(crc, load_le<uint64_t>(data + last));
  crc2 = Cpu::step(crc2, load_le<uint64_t>(data2 + last));
  // The products ride on the last word, whose step reduces them too.
  const uint64_t products =
      Cpu::multiply(crc, kShiftTable[2 * words]) ^ Cpu::multiply(crc2, kShiftTable[words]);
  return Cpu::step(crc3, load_le<uint64_t>(data3 + last) ^ products);
}

// The last 1 to 7 bytes, when 8 bytes before `end` may be read. Zero bytes leave a
// zero state as it is, so the bytes may be padded in front to a whole word, with
// the state XORed into them; the part of the state that is longer than they are
// remains. No branch: record lengths vary, so branches on their low bits are often
// mispredicted.
template <typename Cpu>
uint32_t extend_last_bytes(uint32_t crc, const uint8_t* end, size_t n) {
  const size_t padding = 64 - 8 * n;
  const uint64_t bytes = load_le<uint64_t>(end - 8) >> padding;
  return Cpu::step(0, (bytes ^ crc) << padding) ^ static_cast<uint32_t>(uint64_t{crc} >> 8 * n);
}

// 0 to 7 bytes.
template <typename Cpu>
uint32_t extend_few_bytes(uint32_t crc, const uint8_t* data, size_t n) {
  if (n & 4) {
    crc = Cpu::step(crc, load_le<uint32_t>(data));
    data += 4;
  }
  if (n & 2) {
    crc = Cpu::step(crc, load_le<uint16_t>(data));
    data += 2;
  }
  return n & 1 ? Cpu::step(crc, *data) : crc;
}

template <typename Cpu>
uint32_t extend_interleaved(uint32_t crc, const uint8_t* data, size_t n) {
  crc = ~crc;
  if (n < 8) return ~extend_few_bytes<Cpu>(crc, data, n);
  while (n >= Cpu::kMinInterleaved) {
    const size_t words = n / 24 < kMaxStreamWords ? n / 24 : kMaxStreamWords;
    crc = extend_three_streams<Cpu>(crc, data, words);
    data += 24 * words;
    n -= 24 * words;
  }
  // By two, because a loop of one step waits on its own branch.
  for (; n >= 16; data += 16, n -= 16) {
    crc = Cpu::step(crc, load_le<uint64_t>(data));
    crc = Cpu::step(crc, load_le<uint64_t>(data + 8));
  }
  if (n >= 8) {
    crc = Cpu::step(crc, load_le<uint64_t>(data));
    data += 8;
    n -= 8;
  }
  if (n != 0) crc = extend_last_bytes<Cpu>(crc, data + n, n);
  return ~crc;
}

template <typename Cpu>
uint32_t extend_and_copy(uint32_t crc, const uint8_t* data, size_t n, uint8_t* to) {
  constexpr size_t kBlock = 24 * kCopyStreamWords;
  crc = ~crc;
  for (; n >= kBlock; data += kBlock, to += kBlock, n -= kBlock) {
    crc = extend_three_streams<Cpu>(crc, data, kCopyStreamWords);
    for (size_t i = 0; i < kBlock; i += 64) copy_cache_line(to + i, data + i);
  }
  copy_cache_lines(to, data, n);
  return extend_interleaved<Cpu>(~crc, data, n);
}

template <typename Cpu>
void four_side_by_side(const uint8_t* const (&data)[4], size_t n, uint32_t (&crcs)[4]) {
  uint32_t a = ~0u, b = ~0u, c = ~0u, d = ~0u;
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    a = Cpu::step(a, load_le<uint64_t>(data[0] + i));
    b = Cpu::step(b, load_le<uint64_t>(data[1] + i));
    c = Cpu::step(c, load_le<uint64_t>(data[2] + i));
    d = Cpu::step(d, load_le<uint64_t>(data[3] + i));
  }
  crcs[0] = a, crcs[1] = b, crcs[2] = c, crcs[3] = d;
  for (size_t k = 0; k < 4; ++k) {
    if (n < 8) {
      crcs[k] = extend_few_bytes<Cpu>(crcs[k], data[k], n);
    } else if (i != n) {
      crcs[k] = extend_last_bytes<Cpu>(crcs[k], data[k] + n, n - i);
    }
    crcs[k] = ~crcs[k];
  }
}

}  // namespace recmap
