// Softmax of rows, dropout, and the LSTM cell.
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/division.cuh"
#include "kernels/cuda/images.cuh"
#include "kernels/cuda/maps.cuh"
#include "kernels/cuda/softmax_packs.cuh"

namespace halfmark::kernels::cuda {
namespace {

// A block for each row that does not fit registers (softmax_packs.cuh). A thread reads the values that it writes, so that out may be x.
template <class Wide, class Access>
__global__ void __launch_bounds__(kMostRowThreads) softmax(SoftmaxForm s, Access x, Access out) {
  __shared__ Wide shared[kMostWarps];
  const uint32_t start = blockIdx.x * s.width;
  const uint32_t seen = s.queries ? min(s.width, blockIdx.x % s.queries + 1) : s.width;
  Wide top = minus_infinity<Wide>(), sum = 0;
  each_in_row<Wide>(x, start, s.width, seen, [&](uint32_t i, Wide value) {
    if (i < seen) top = Larger()(top, value);
  });
  top = over_block(top, shared, Larger());
  each_in_row<Wide>(x, start, s.width, seen, [&](uint32_t i, Wide value) {
    if (i < seen) sum += exp(value - top);
  });
  sum = over_block(sum, shared, Plus());
  const bool nothing = s.masked && top == minus_infinity<Wide>();
  const Wide log_sum = s.log ? log(sum) : Wide(0);
  map_row<Wide>(x, out, start, s.width, [&](uint32_t i, Wide value) {
    if (i >= seen || nothing) return Wide(0);
    return s.log ? value - top - log_sum : exp(value - top) / sum;
  });
}

template <class Wide, class Access>
__global__ void __launch_bounds__(kMostRowThreads)
    softmax_backward(uint32_t width, bool log, Access y, Access dy, Access dx) {
  __shared__ Wide shared[kMostWarps];
  const uint32_t start = blockIdx.x * width;
  Wide sum = 0;
  each_in_rows<Wide>(y, dy, start, width, [&](uint32_t, Wide a, Wide b) { sum += log ? b : b * a; });
  sum = over_block(sum, shared, Plus());
  map_rows<Wide>(y, dy, dx, start, width,
                 [&](uint32_t, Wide a, Wide b) { return log ? b - exp(a) * sum : a * (b - sum); });
}

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw, SC 2011), as tensor/random.cpp: words 4 `number` to 4 `number` + 3.
__device__ inline uint4 dropout_words(uint64_t seed, uint64_t number) {
  uint32_t a = static_cast<uint32_t>(number), b = static_cast<uint32_t>(number >> 32), c = 0x64726f70, d = 0;
  uint32_t low = static_cast<uint32_t>(seed), high = static_cast<uint32_t>(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint32_t high_a = __umulhi(0xD2511F53u, a), low_a = 0xD2511F53u * a;
    const uint32_t high_c = __umulhi(0xCD9E8D57u, c), low_c = 0xCD9E8D57u * c;
    a = high_c ^ b ^ low, b = low_c, c = high_a ^ d ^ high, d = low_a;
    low += 0x9E3779B9u, high += 0xBB67AE85u;
  }
  return {a, b, c, d};
}

__device__ __forceinline__ void keep(uint32_t word, uint64_t least, uint8_t& kept) { kept = word >= least ? 1 : 0; }

__global__ void __launch_bounds__(kMapThreads) draw_mask(uint32_t n, uint64_t seed, uint64_t least, uint8_t* mask) {
  const uint32_t number = blockIdx.x * kMapThreads + threadIdx.x, i = number * 4;
  if (i >= n) return;
  const uint4 words = dropout_words(seed, number);
  if (n - i >= 4 && reinterpret_cast<uintptr_t>(mask) % 4 == 0) {
    uchar4 kept;
    keep(words.x, least, kept.x), keep(words.y, least, kept.y);
    keep(words.z, least, kept.z), keep(words.w, least, kept.w);
    reinterpret_cast<uchar4*>(mask)[number] = kept;
    return;
  }
  keep(words.x, least, mask[i]);
  if (i + 1 < n) keep(words.y, least, mask[i + 1]);
  if (i + 2 < n) keep(words.z, least, mask[i + 2]);
  if (i + 3 < n) keep(words.w, least, mask[i + 3]);
}

template <class Wide>
struct Masked {
  const uint8_t* mask;
  bool last;                 // x is channels last; the mask is in logical order all the same
  Divisor channels, pixels;  // of x
  Divisor share;             // neighbours in logical order that one entry of the mask decides about
  Wide factor;
  __device__ Wide operator()(uint32_t i, Wide x) const {
    uint32_t place = i;
    if (last) {
      uint32_t channel = i, pixel = channels.divide(channel);
      const uint32_t image = pixels.divide(pixel);
      place = (image * channels.divisor + channel) * pixels.divisor + pixel;
    }
    return mask[share.quotient(place)] ? x * factor : Wide(0);
  }
  template <uint32_t kCount>
  __device__ __forceinline__ void all(uint32_t i, Wide* x) const {
    if (!last && share.divisor == 1 && reinterpret_cast<uintptr_t>(mask) % kCount == 0) {
      Neighbours<uint8_t, kCount> kept;
      kept.read(mask + i);
#pragma unroll
      for (uint32_t k = 0; k < kCount; ++k) x[k] = kept.values[k] ? x[k] * factor : Wide(0);
    } else {
#pragma unroll
      for (uint32_t k = 0; k < kCount; ++k) x[k] = (*this)(i + k, x[k]);
    }
  }
};

template <class Wide, class Access>
__global__ void __launch_bounds__(kMapThreads)
    lstm_cell(uint32_t n, uint32_t hidden, Access z, AnyTyped before, Access gates, AnyTyped c, AnyTyped h) {
  const uint32_t k = blockIdx.x * kMapThreads + threadIdx.x;
  if (k >= n) return;
  const uint32_t base = k / hidden * 4 * hidden + k % hidden;
  const Wide i = formulas::sigmoid(z.template load<Wide>(base)),
             f = formulas::sigmoid(z.template load<Wide>(base + hidden)),
             g = tanh(z.template load<Wide>(base + 2 * hidden)),
             o = formulas::sigmoid(z.template load<Wide>(base + 3 * hidden));
  gates.template store<Wide>(base, i), gates.template store<Wide>(base + hidden, f);
  gates.template store<Wide>(base + 2 * hidden, g), gates.template store<Wide>(base + 3 * hidden, o);
  const Wide next = f * before.load<Wide>(k) + i * g;
  c.store<Wide>(k, next);
  h.store<Wide>(k, o * tanh(next));
}

template <class Wide, class Access>
__global__ void __launch_bounds__(kMapThreads)
    lstm_cell_backward(uint32_t n, uint32_t hidden, Access gates, AnyTyped before, AnyTyped c, AnyTyped dh,
                       AnyTyped dc_next, Access dz, AnyTyped dc_before) {
  const uint32_t k = blockIdx.x * kMapThreads + threadIdx.x;
  if (k >= n) return;
  const uint32_t base = k / hidden * 4 * hidden + k % hidden;
  const Wide i = gates.template load<Wide>(base), f = gates.template load<Wide>(base + hidden),
             g = gates.template load<Wide>(base + 2 * hidden), o = gates.template load<Wide>(base + 3 * hidden);
  const Wide t = tanh(c.load<Wide>(k)), dout = dh.load<Wide>(k);
  const Wide dc = dc_next.load<Wide>(k) + dout * o * (Wide(1) - t * t);
  dz.template store<Wide>(base, dc * g * i * (Wide(1) - i));
  dz.template store<Wide>(base + hidden, dc * before.load<Wide>(k) * f * (Wide(1) - f));
  dz.template store<Wide>(base + 2 * hidden, dc * i * (Wide(1) - g * g));
  dz.template store<Wide>(base + 3 * hidden, dout * t * o * (Wide(1) - o));
  dc_before.store<Wide>(k, dc * f);
}

}  // namespace

void launch_softmax(cudaStream_t stream, uint32_t rows, const SoftmaxForm& s, Array x, Array out) {
  with_access({x.dtype, out.dtype}, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    using T = typename ElementOf<Access>::Type;
    if constexpr (!std::is_void_v<T>)
      if (start_softmax_packs<Wide, T>(stream, rows, s, x, out)) return;
    softmax<Wide><<<rows, row_threads(s.width), 0, stream>>>(s, Access(x), Access(out));
  });
  launched("softmax");
}

void launch_softmax_backward(cudaStream_t stream, uint32_t rows, uint32_t width, bool log, Array y, Array dy,
                             Array dx) {
  with_access({y.dtype, dy.dtype, dx.dtype}, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    using T = typename ElementOf<Access>::Type;
    if constexpr (!std::is_void_v<T>)
      if (start_softmax_packs_backward<Wide, T>(stream, rows, width, log, y, dy, dx)) return;
    softmax_backward<Wide><<<rows, row_threads(width), 0, stream>>>(width, log, Access(y), Access(dy), Access(dx));
  });
  launched("softmax_backward");
}

void launch_draw_mask(cudaStream_t stream, uint32_t n, uint64_t seed, uint64_t least, uint8_t* mask) {
  draw_mask<<<blocks_for(n, 4 * kMapThreads), kMapThreads, 0, stream>>>(n, seed, least, mask);
  launched("mask of dropout");
}

void launch_masked(cudaStream_t stream, const Channels& places, uint32_t share, const uint8_t* mask, double factor,
                   Array x, Array out) {
  with_access({x.dtype, out.dtype}, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    start_one<Wide>(stream, places.elements(), Access(x), Access(out),
                    Masked<Wide>{mask, places.last, Divisor(places.channels), Divisor(places.pixels), Divisor(share),
                                 static_cast<Wide>(factor)});
  });
  launched("dropout");
}

void launch_lstm_cell(cudaStream_t stream, uint32_t n, uint32_t hidden, const LstmArrays& a) {
  with_access({a.z.dtype, a.gates.dtype}, {a.c_before.dtype, a.c.dtype, a.h.dtype}, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    lstm_cell<Wide><<<blocks_for(n, kMapThreads), kMapThreads, 0, stream>>>(
        n, hidden, Access(a.z), AnyTyped(a.c_before), Access(a.gates), AnyTyped(a.c), AnyTyped(a.h));
  });
  launched("lstm_cell");
}

void launch_lstm_cell_backward(cudaStream_t stream, uint32_t n, uint32_t hidden, const LstmBackwardArrays& a) {
  with_access({a.gates.dtype, a.dz.dtype}, {a.c_before.dtype, a.c.dtype, a.dh.dtype, a.dc.dtype, a.dc_before.dtype},
              [&](auto choice) {
                using Access = typename decltype(choice)::Access;
                using Wide = typename decltype(choice)::Wide;
                lstm_cell_backward<Wide><<<blocks_for(n, kMapThreads), kMapThreads, 0, stream>>>(
                    n, hidden, Access(a.gates), AnyTyped(a.c_before), AnyTyped(a.c), AnyTyped(a.dh), AnyTyped(a.dc),
                    Access(a.dz), AnyTyped(a.dc_before));
              });
  launched("lstm_cell_backward");
}

}  // namespace halfmark::kernels::cuda
