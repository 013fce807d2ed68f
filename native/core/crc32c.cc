#include "crc32c.h"

#include <atomic>
#include <iterator>

#include "crc32c_paths.h"
#include "x86_features.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace recmap {
namespace {

constexpr CrcPath kPaths[] = {
#if defined(__x86_64__)
    {"x86 sse4.2+pclmul", crc32c_x86, crc32c_copy_x86, crc32c_four_x86},
#elif defined(__aarch64__)
    {"arm64 crc+pmull", crc32c_arm64, crc32c_copy_arm64, crc32c_four_arm64},
#endif
    {"portable", crc32c_portable, crc32c_copy_portable, crc32c_four_portable},
};

// Asked here, because the compiler may use the instructions anywhere in the files for CPUs.
bool cpu_runs_all_paths() {
#if defined(__x86_64__)
  return x86_has(bit_SSE4_2 | bit_PCLMUL);
#elif defined(__aarch64__) && defined(__APPLE__)
  return true;
#elif defined(__aarch64__) && defined(__linux__)
  constexpr unsigned long kNeeded = HWCAP_CRC32 | HWCAP_PMULL;
  return (getauxval(AT_HWCAP) & kNeeded) == kNeeded;
#else
  return false;
#endif
}

uint32_t choose_and_extend(uint32_t crc, const uint8_t* data, size_t n);
uint32_t choose_and_copy(uint32_t crc, const uint8_t* data, size_t n, uint8_t* to);
void choose_and_do_four(const uint8_t* const (&data)[4], size_t n, uint32_t (&crcs)[4]);

// Constant-initialised, so they are right even during static initialisation, and need no guard on
// each call. Threads that race to choose all store the same pointer, so relaxed order is enough.
constinit std::atomic<CrcExtend> best_extend{choose_and_extend};
constinit std::atomic<CrcCopy> best_copy{choose_and_copy};
constinit std::atomic<CrcFour> best_four{choose_and_do_four};

uint32_t choose_and_extend(uint32_t crc, const uint8_t* data, size_t n) {
  const CrcExtend extend = crc32c_paths().front().extend;
  best_extend.store(extend, std::memory_order_relaxed);
  return extend(crc, data, n);
}

uint32_t choose_and_copy(uint32_t crc, const uint8_t* data, size_t n, uint8_t* to) {
  const CrcCopy copy = crc32c_paths().front().copy;
  best_copy.store(copy, std::memory_order_relaxed);
  return copy(crc, data, n, to);
}

void choose_and_do_four(const uint8_t* const (&data)[4], size_t n, uint32_t (&crcs)[4]) {
  const CrcFour four = crc32c_paths().front().four;
  best_four.store(four, std::memory_order_relaxed);
  four(data, n, crcs);
}

}  // namespace

std::span<const CrcPath> crc32c_paths() {
  return std::span(kPaths).last(cpu_runs_all_paths() ? std::size(kPaths) : 1);
}

uint32_t crc32c_extend(uint32_t crc, const uint8_t* data, size_t n) {
  return best_extend.load(std::memory_order_relaxed)(crc, data, n);
}

uint32_t crc32c_copy(uint32_t crc, const uint8_t* data, size_t n, uint8_t* to) {
  return best_copy.load(std::memory_order_relaxed)(crc, data, n, to);
}

void crc32c_four(const uint8_t* const (&data)[4], size_t n, uint32_t (&crcs)[4]) {
  best_four.load(std::memory_order_relaxed)(data, n, crcs);
}

}  // namespace recmap
