// CRC32C by tables, eight bytes at a time, for CPUs without a CRC instruction.
#include "crc32c_paths.h"

namespace recmap {
namespace {

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// tables[k][b] is the effect of byte b followed by k zero bytes. The checksum is
// linear, so a word's is the XOR of its bytes', looked up all at once instead of
// each waiting for the one before.
consteval Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = times_x_mod_p(crc);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t crc = tables[k - 1][byte];
      tables[k][byte] = crc >> 8 ^ tables[0][crc & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

uint32_t crc32c_portable(uint32_t crc, const uint8_t* data, size_t n) {
  crc = ~crc;
  for (; n >= 8; data += 8, n -= 8) {
    const uint64_t word = load_le<uint64_t>(data) ^ crc;
    crc = kTables[7][word & 0xff] ^ kTables[6][word >> 8 & 0xff] ^ kTables[5][word >> 16 & 0xff] ^
          kTables[4][word >> 24 & 0xff] ^ kTables[3][word >> 32 & 0xff] ^
          kTables[2][word >> 40 & 0xff] ^ kTables[1][word >> 48 & 0xff] ^ kTables[0][word >> 56];
  }
  for (; n != 0; ++data, --n) crc = crc >> 8 ^ kTables[0][(crc ^ *data) & 0xff];
  return ~crc;
}

uint32_t crc32c_copy_portable(uint32_t crc, const uint8_t* data, size_t n, uint8_t* to) {
  copy_cache_lines(to, data, n);
  return crc32c_portable(crc, data, n);
}

void crc32c_four_portable(const uint8_t* const (&data)[4], size_t n, uint32_t (&crcs)[4]) {
  for (size_t k = 0; k < 4; ++k) crcs[k] = crc32c_portable(0, data[k], n);
}

}  // namespace recmap
