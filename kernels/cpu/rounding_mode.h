// The processor's rounding mode, for instructions without a rounding operand (all of AVX2).
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>

namespace halfmark::kernels {

// While an object of this class exists, SSE and AVX arithmetic in this thread rounds toward zero. Compilers do not know
// about this dependence: put the affected code in a function that is never inlined, and call it during that time.
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
