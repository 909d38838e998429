// What moves elements without changing them: axes in another order, channels of images, rows of a table, indices of 32
// bits. Elements are moved as units of 1 to 16 bytes, as wide as the operands allow.
#include <cstdint>
#include <string>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/division.cuh"
#include "kernels/cuda/images.cuh"
#include "kernels/number/error.h"

namespace halfmark::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 256;

// f(unit) with a type of that many bytes.
template <class F>
void with_unit(size_t bytes, F&& f) {
  if (bytes == 16) return f(uint4{});
  if (bytes == 8) return f(uint64_t{});
  if (bytes == 4) return f(uint32_t{});
  if (bytes == 2) return f(uint16_t{});
  if (bytes == 1) return f(uint8_t{});
  throw Error("no unit of " + std::to_string(bytes) + " bytes");
}

template <class Unit>
__global__ void __launch_bounds__(kThreads) permute(PermuteArgs s, uint32_t n, const Unit* x, Unit* out) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  uint32_t rest = i, place = 0;
#pragma unroll
  for (int axis = kMostAxes - 1; axis >= 0; --axis) {
    if (axis >= s.rank) continue;
    const uint32_t next = rest / s.extents[axis];
    place += (rest - next * s.extents[axis]) * s.steps[axis];
    rest = next;
  }
  out[i] = x[place];
}

// Four units for each thread: they may be as short as a byte.
constexpr uint32_t kUnitsPerThread = 4;
template <class Unit>
__global__ void __launch_bounds__(kThreads) copy_runs(CopyArgs s, Divisor width, uint32_t n, const Unit* x, Unit* out) {
  const uint32_t first = blockIdx.x * kThreads * kUnitsPerThread + threadIdx.x;
  Unit units[kUnitsPerThread];
  uint32_t places[kUnitsPerThread];
#pragma unroll
  for (uint32_t k = 0; k < kUnitsPerThread; ++k) {
    const uint32_t i = first + k * kThreads;
    if (i >= n) break;
    uint32_t at = i;
    const uint32_t run = width.divide(at);
    places[k] = s.to + run * s.to_step + at;
    units[k] = x[s.from + run * s.from_step + at];
  }
#pragma unroll
  for (uint32_t k = 0; k < kUnitsPerThread; ++k)
    if (first + k * kThreads < n) out[places[k]] = units[k];
}

// Between two layouts: element i of `count` channels of x, in the order of out.
template <class Unit>
__global__ void __launch_bounds__(kThreads)
    copy_channels(Image xs, Image ys, uint32_t from, uint32_t to, uint32_t count, const Unit* x, Unit* out) {
  const Image piece{ys.n, count, ys.h, ys.w, ys.last};
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= elements(piece)) return;
  const Place p = place_of(piece, i);
  out[offset(ys, p.n, to + p.c, p.y, p.x)] = x[offset(xs, p.n, from + p.c, p.y, p.x)];
}

__device__ __forceinline__ void set_ones(uint4& unit) { unit = {~0u, ~0u, ~0u, ~0u}; }
template <class Unit>
__device__ __forceinline__ void set_ones(Unit& unit) {
  unit = static_cast<Unit>(~Unit{0});
}

// A code of all ones is NaN in every floating dtype.
template <class Unit>
__global__ void __launch_bounds__(kThreads)
    take_rows(uint32_t n, uint32_t width, uint32_t entries, const int32_t* indices, const Unit* table, Unit* out) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  const uint32_t row = i / width, index = static_cast<uint32_t>(indices[row]);
  Unit unit;
  if (index < entries)
    unit = table[index * width + (i - row * width)];
  else
    set_ones(unit);
  out[i] = unit;
}

__global__ void __launch_bounds__(kThreads) narrow(uint32_t n, const int32_t* wide, int32_t* out) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  // A slice of i32 need not begin at a multiple of 8 bytes.
  const int32_t low = wide[2 * size_t{i}], high = wide[2 * size_t{i} + 1];
  out[i] = high == (low < 0 ? -1 : 0) ? low : static_cast<int32_t>(0x80000000);
}

}  // namespace

void launch_permute(cudaStream_t stream, const PermuteArgs& s, size_t bytes, const void* x, void* out) {
  uint32_t n = 1;
  for (int axis = 0; axis < s.rank; ++axis) n *= s.extents[axis];
  with_unit(bytes, [&](auto unit) {
    using Unit = decltype(unit);
    permute<<<blocks_for(n, kThreads), kThreads, 0, stream>>>(s, n, static_cast<const Unit*>(x),
                                                              static_cast<Unit*>(out));
  });
  launched("permute");
}

void launch_copy_runs(cudaStream_t stream, const CopyArgs& s, size_t bytes, const void* x, void* out) {
  with_unit(bytes, [&](auto unit) {
    using Unit = decltype(unit);
    const uint32_t n = s.runs * s.width;
    copy_runs<<<blocks_for(n, kThreads * kUnitsPerThread), kThreads, 0, stream>>>(
        s, Divisor(s.width), n, static_cast<const Unit*>(x), static_cast<Unit*>(out));
  });
  launched("copy_channels");
}

void launch_copy_channels(cudaStream_t stream, const Image& x, const Image& out, uint32_t from, uint32_t to,
                          uint32_t count, size_t bytes, const void* x_data, void* out_data) {
  const uint32_t n = out.n * out.h * out.w * count;
  with_unit(bytes, [&](auto unit) {
    using Unit = decltype(unit);
    copy_channels<<<blocks_for(n, kThreads), kThreads, 0, stream>>>(
        x, out, from, to, count, static_cast<const Unit*>(x_data), static_cast<Unit*>(out_data));
  });
  launched("copy_channels between layouts");
}

void launch_take_rows(cudaStream_t stream, uint32_t rows, uint32_t width, uint32_t entries, size_t bytes,
                      const int32_t* indices, const void* table, void* out) {
  with_unit(bytes, [&](auto unit) {
    using Unit = decltype(unit);
    take_rows<<<blocks_for(rows * width, kThreads), kThreads, 0, stream>>>(
        rows * width, width, entries, indices, static_cast<const Unit*>(table), static_cast<Unit*>(out));
  });
  launched("embedding");
}

void launch_narrow_indices(cudaStream_t stream, uint32_t n, const int32_t* wide, int32_t* out) {
  narrow<<<blocks_for(n, kThreads), kThreads, 0, stream>>>(n, wide, out);
  launched("narrow_indices");
}

}  // namespace halfmark::kernels::cuda
