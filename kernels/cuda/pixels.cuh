// Kernels in which a thread has one pixel of an image: of one channel, or of neighbouring channels that are one access.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/division.cuh"
#include "kernels/cuda/images.cuh"

namespace halfmark::kernels::cuda {

// What belongs to a thread's number: a place in an image, of whose channels it has `share`.
struct Walk {
  uint32_t threads, share;
  bool last;
  Divisor first, second, third;
  Walk(const Image& s, uint32_t n)
      : threads(elements(s) / n),
        share(n),
        last(s.last),
        first(s.last ? s.c / n : s.w),
        second(s.last ? s.w : s.h),
        third(s.last ? s.h : s.c) {}
  __device__ __forceinline__ Place place(uint32_t i) const {
    uint32_t low = i, middle = first.divide(low), high = second.divide(middle);
    const uint32_t n = third.divide(high);
    return last ? Place{n, low * share, high, middle} : Place{n, high, middle, low};
  }
};

// The offset of a pixel is start + y * row + x * pixel.
struct Steps {
  uint32_t start, row, pixel;
  __device__ __forceinline__ Steps(const Image& s, const Place& p)
      : start(s.last ? p.n * s.h * s.w * s.c + p.c : (p.n * s.c + p.c) * s.h * s.w),
        row(s.last ? s.w * s.c : s.w),
        pixel(s.last ? s.c : 1) {}
  __device__ __forceinline__ uint32_t at(int y, int x) const {
    return start + static_cast<uint32_t>(y) * row + static_cast<uint32_t>(x) * pixel;
  }
};

template <class Access>
constexpr uint32_t most_channels() {
  if constexpr (Access::kFours) return sizeof(typename Access::Element) <= 4 ? Access::kNeighbours : 1;
  return 1;
}

// f(number of channels that a thread takes): several if both images are channels last and begin at 16 bytes.
template <class Access, class F>
void with_channels(const Image& one, const Image& other, const Access& a, const Access& b, F&& f) {
  constexpr uint32_t kMost = most_channels<Access>();
  if constexpr (kMost > 1)
    if (one.last && other.last && one.c % kMost == 0 && a.aligned && b.aligned)
      return f(std::integral_constant<uint32_t, kMost>{});
  f(std::integral_constant<uint32_t, 1>{});
}

}  // namespace halfmark::kernels::cuda
