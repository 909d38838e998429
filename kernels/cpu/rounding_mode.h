// The processor's rounding mode, for instructions that are not told how to round (AVX2 has no others).
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>

namespace halfmark::kernels {

// While one lives, this thread's SSE and AVX arithmetic rounds toward zero. Compilers do not know that arithmetic
// depends on it: keep what it is meant for in a function that is never inlined, called while it lives.
class RoundingTowardZero {
 public:
  RoundingTowardZero() : before_(_mm_getcsr()) { _mm_setcsr(before_ | _MM_ROUND_TOWARD_ZERO); }
  ~RoundingTowardZero() { _mm_setcsr(before_); }
  RoundingTowardZero(const RoundingTowardZero&) = delete;
  RoundingTowardZero& operator=(const RoundingTowardZero&) = delete;

 private:
  unsigned before_;
};

}  // namespace halfmark::kernels
#endif
