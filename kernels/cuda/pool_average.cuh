// The division of a pooling that averages.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"

namespace halfmark::kernels::cuda {

// A sum by the number of elements of a window; by a power of two it is a product, which has the same bits.
template <class Wide>
struct Average {
  Wide divisor, factor;
  bool exact;
  explicit Average(const WindowArgs& w)
      : divisor(static_cast<Wide>(w.kernel_h * w.kernel_w)),
        factor(1 / divisor),
        exact(((w.kernel_h * w.kernel_w) & (w.kernel_h * w.kernel_w - 1)) == 0) {}
  template <uint32_t kCount>
  __device__ __forceinline__ void of(Wide* sums) const {
    if (exact) {
#pragma unroll
      for (uint32_t k = 0; k < kCount; ++k) sums[k] *= factor;
    } else {
#pragma unroll
      for (uint32_t k = 0; k < kCount; ++k) sums[k] /= divisor;
    }
  }
};

}  // namespace halfmark::kernels::cuda
