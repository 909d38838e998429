// Loops compiled for several instruction sets, of which the widest that this CPU has is chosen at run time. The results
// do not depend on the choice: the compiler neither reorders nor contracts floating-point operations.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/cpu/instruction_sets.h"
#include "kernels/cpu/thread_pool.h"

namespace halfmark::kernels::host {

enum class Vectors : uint8_t { baseline, avx2, avx512 };

inline Vectors widest_vectors() {
#if defined(__x86_64__)
  static const Vectors widest = has_avx512()                                       ? Vectors::avx512
                                : has_avx2_f16c() && __builtin_cpu_supports("fma") ? Vectors::avx2
                                                                                   : Vectors::baseline;
  return widest;
#else
  return Vectors::baseline;
#endif
}

#if defined(__x86_64__)
// `flatten` inlines everything that f calls, so that it is compiled for these instructions.
template <class F>
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"), flatten, noinline)) void in_avx512(
    F& f, int64_t begin, int64_t end) {
  f(begin, end);
}
template <class F>
__attribute__((target("avx2,fma,f16c"), flatten, noinline)) void in_avx2(F& f, int64_t begin, int64_t end) {
  f(begin, end);
}
#endif

// kernels::parallel_for with pieces that use the widest vectors.
template <class F>
void parallel_for(int64_t n, int64_t grain, F&& f) {
  const Vectors vectors = widest_vectors();
  kernels::parallel_for(n, grain, [&f, vectors](int64_t begin, int64_t end) {
    switch (vectors) {
#if defined(__x86_64__)
      case Vectors::avx512:
        return in_avx512(f, begin, end);
      case Vectors::avx2:
        return in_avx2(f, begin, end);
#else
      case Vectors::avx512:
      case Vectors::avx2:
#endif
      case Vectors::baseline:
        break;
    }
    f(begin, end);
  });
}

}  // namespace halfmark::kernels::host
