// Division by a number that the host knows: a multiplication, where the GPU has no instruction for a division.
#pragma once

#include <cstdint>

namespace halfmark::kernels::cuda {

// Of dividends below 2^31. With 2^(shift - 1) < divisor <= 2^shift and factor = floor(2^32 (2^shift - divisor) / divisor) + 1
// the quotient is exact (Granlund and Montgomery, PLDI 1994); the sum does not overflow.
struct Divisor {
  uint32_t divisor = 1, factor = 1, shift = 0;
  Divisor() = default;
  explicit Divisor(uint32_t d) : divisor(d) {
    while ((uint64_t{1} << shift) < d) ++shift;
    factor = static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d)) / d + 1);
  }
  __device__ __forceinline__ uint32_t quotient(uint32_t x) const { return (__umulhi(factor, x) + x) >> shift; }
  // The quotient; x becomes the remainder.
  __device__ __forceinline__ uint32_t divide(uint32_t& x) const {
    const uint32_t result = quotient(x);
    x -= result * divisor;
    return result;
  }
};

}  // namespace halfmark::kernels::cuda
