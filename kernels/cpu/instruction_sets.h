// The instruction sets of this CPU, for kernels that choose at run time. For names that the compilers'
// __builtin_cpu_supports knows, it also checks that the system saves the wide registers. The rest is read from CPUID
// (Intel SDM volume 2, CPUID).
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace halfmark::kernels {

#if defined(__x86_64__)

inline bool has_avx2_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) && ((c >> 29) & 1);  // leaf 1, ecx bit 29
}

inline bool has_avx2_and_fma() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

inline bool has_avx512() {  // F, BW, DQ, VL: every CPU with AVX-512 since Skylake-X
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

inline bool has_avx512_fp16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return has_avx512() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && ((d >> 23) & 1);  // leaf 7, edx bit 23
}

#else

inline bool has_avx2_f16c() { return false; }
inline bool has_avx2_and_fma() { return false; }
inline bool has_avx512() { return false; }
inline bool has_avx512_fp16() { return false; }

#endif

}  // namespace halfmark::kernels
