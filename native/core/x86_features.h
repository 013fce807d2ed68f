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

}  // namespace recmap
#endif
