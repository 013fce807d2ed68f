// What an x86 CPU can do, from its cpuid instruction. __builtin_cpu_supports needs a part of the
// compiler's runtime that zig, which builds the wheels, does not have.
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>

namespace recmap {

// `bits` are those of leaf 1 in ecx: bit_SSSE3, bit_SSE4_2, bit_PCLMUL.
inline bool x86_has(unsigned bits) {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bits) == bits;
}

// Whether the CPU has AVX2, and the system keeps its wide registers.
inline bool x86_has_avx2() {
  if (!x86_has(bit_OSXSAVE)) return false;
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & 6) != 6) return false;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & bit_AVX2) != 0;
}

}  // namespace recmap
#endif
