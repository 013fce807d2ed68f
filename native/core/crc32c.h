// CRC32C (Castagnoli), the checksum of TFRecord. All functions are pure and
// safe to call from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "format.h"

namespace recmap {

// One implementation: extends `crc`, the checksum of what came before (0 for
// nothing), over `n` bytes at any alignment.
using CrcExtend = uint32_t (*)(uint32_t crc, const uint8_t* data, size_t n);

// The same, and copies the bytes to `to`, which they must not overlap. Data that comes from memory
// is then read once.
using CrcCopy = uint32_t (*)(uint32_t crc, const uint8_t* data, size_t n, uint8_t* to);

// The checksums of four pieces of data of `n` bytes each, computed side by side: one step of a
// checksum waits for the step before it, but not for those of the others.
using CrcFour = void (*)(const uint8_t* const (&data)[4], size_t n, uint32_t (&crcs)[4]);

struct CrcPath {
  const char* name;
  CrcExtend extend;
  CrcCopy copy;
  CrcFour four;
};

// The paths this CPU can run, best first; the portable one is always last.
std::span<const CrcPath> crc32c_paths();

// By the best path.
uint32_t crc32c_extend(uint32_t crc, const uint8_t* data, size_t n);
uint32_t crc32c_copy(uint32_t crc, const uint8_t* data, size_t n, uint8_t* to);
void crc32c_four(const uint8_t* const (&data)[4], size_t n, uint32_t (&crcs)[4]);

inline uint32_t crc32c(const uint8_t* data, size_t n) { return crc32c_extend(0, data, n); }

inline uint32_t masked_crc32c(const uint8_t* data, size_t n) { return mask_crc(crc32c(data, n)); }

}  // namespace recmap
