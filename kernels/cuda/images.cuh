// The offsets of the elements of an image or filter, and the element that belongs to a thread's number.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"

namespace halfmark::kernels::cuda {

struct Place {
  uint32_t n, c, y, x;
};

__device__ __forceinline__ uint32_t offset(const Image& s, uint32_t n, uint32_t c, uint32_t y, uint32_t x) {
  return s.last ? ((n * s.h + y) * s.w + x) * s.c + c : ((n * s.c + c) * s.h + y) * s.w + x;
}

// The inverse of offset, so that neighbouring threads write neighbouring elements in either layout.
__device__ __forceinline__ Place place_of(const Image& s, uint32_t i) {
  Place p;
  if (s.last) {
    p.c = i % s.c, i /= s.c;
    p.x = i % s.w, i /= s.w;
    p.y = i % s.h, p.n = i / s.h;
  } else {
    p.x = i % s.w, i /= s.w;
    p.y = i % s.h, i /= s.h;
    p.c = i % s.c, p.n = i / s.c;
  }
  return p;
}

__host__ __device__ inline uint32_t elements(const Image& s) { return s.n * s.c * s.h * s.w; }

}  // namespace halfmark::kernels::cuda
