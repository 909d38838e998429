// Softmax of rows, dropout, and the LSTM cell.
#include <algorithm>
#include <cstdint>
#include <initializer_list>
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

// The mask drawn where it is used. x is not channels last, and each entry of the mask decides about one element.
template <class Wide>
struct DrawnAndMasked {
  uint8_t* mask;
  uint64_t seed, least;
  Wide factor;
  __device__ Wide operator()(uint32_t i, Wide x) const {
    const uint4 words = dropout_words(seed, i / 4);
    const uint32_t choice = i % 4;
    keep(choice == 0 ? words.x : choice == 1 ? words.y : choice == 2 ? words.z : words.w, least, mask[i]);
    return mask[i] ? x * factor : Wide(0);
  }
  template <uint32_t kCount>
  __device__ __forceinline__ void all(uint32_t i, Wide* x) const {
    Neighbours<uint8_t, kCount> kept;
#pragma unroll
    for (uint32_t k = 0; k < kCount; k += 4) {
      const uint4 words = dropout_words(seed, (i + k) / 4);
      keep(words.x, least, kept.values[k]), keep(words.y, least, kept.values[k + 1]);
      keep(words.z, least, kept.values[k + 2]), keep(words.w, least, kept.values[k + 3]);
    }
    if (reinterpret_cast<uintptr_t>(mask) % kCount == 0) {
      kept.write(mask + i);
    } else {
#pragma unroll
      for (uint32_t k = 0; k < kCount; ++k) mask[i + k] = kept.values[k];
    }
#pragma unroll
    for (uint32_t k = 0; k < kCount; ++k) x[k] = kept.values[k] ? x[k] * factor : Wide(0);
  }
};

// A thread has kCount neighbouring units of one row. Side: the state and the output, which may have another dtype.
template <class Wide, uint32_t kCount, class Access, class Side>
__global__ void __launch_bounds__(kMapThreads)
    lstm_cell(uint32_t n, Divisor hidden, Access z, Side before, Access gates, Side c, Side h) {
  const uint32_t k = (blockIdx.x * kMapThreads + threadIdx.x) * kCount;
  if (k >= n) return;
  uint32_t unit = k;
  const uint32_t row = hidden.divide(unit), size = hidden.divisor, base = row * 4 * size + unit;
  Wide i[kCount], f[kCount], g[kCount], o[kCount], state[kCount];
  load_some<Wide, kCount>(z, base, i), load_some<Wide, kCount>(z, base + size, f);
  load_some<Wide, kCount>(z, base + 2 * size, g), load_some<Wide, kCount>(z, base + 3 * size, o);
  load_some<Wide, kCount>(before, k, state);
#pragma unroll
  for (uint32_t j = 0; j < kCount; ++j) {
    i[j] = formulas::sigmoid(i[j]), f[j] = formulas::sigmoid(f[j]), g[j] = tanh(g[j]), o[j] = formulas::sigmoid(o[j]);
    state[j] = f[j] * state[j] + i[j] * g[j];
  }
  store_some<Wide, kCount>(gates, base, i), store_some<Wide, kCount>(gates, base + size, f);
  store_some<Wide, kCount>(gates, base + 2 * size, g), store_some<Wide, kCount>(gates, base + 3 * size, o);
  store_some<Wide, kCount>(c, k, state);
#pragma unroll
  for (uint32_t j = 0; j < kCount; ++j) o[j] *= tanh(state[j]);
  store_some<Wide, kCount>(h, k, o);
}

template <class Wide, uint32_t kCount, class Access, class Side>
__global__ void __launch_bounds__(kMapThreads)
    lstm_cell_backward(uint32_t n, Divisor hidden, Access gates, Side before, Side c, Side dh, Side dc_next, Access dz,
                       Side dc_before) {
  const uint32_t k = (blockIdx.x * kMapThreads + threadIdx.x) * kCount;
  if (k >= n) return;
  uint32_t unit = k;
  const uint32_t row = hidden.divide(unit), size = hidden.divisor, base = row * 4 * size + unit;
  Wide i[kCount], f[kCount], g[kCount], o[kCount], state[kCount], t[kCount], dout[kCount], dc[kCount];
  load_some<Wide, kCount>(gates, base, i), load_some<Wide, kCount>(gates, base + size, f);
  load_some<Wide, kCount>(gates, base + 2 * size, g), load_some<Wide, kCount>(gates, base + 3 * size, o);
  load_some<Wide, kCount>(before, k, state), load_some<Wide, kCount>(c, k, t);
  load_some<Wide, kCount>(dh, k, dout), load_some<Wide, kCount>(dc_next, k, dc);
#pragma unroll
  for (uint32_t j = 0; j < kCount; ++j) {
    t[j] = tanh(t[j]);
    dc[j] += dout[j] * o[j] * (Wide(1) - t[j] * t[j]);
    o[j] = dout[j] * t[j] * o[j] * (Wide(1) - o[j]);
    const Wide di = dc[j] * g[j] * i[j] * (Wide(1) - i[j]);
    g[j] = dc[j] * i[j] * (Wide(1) - g[j] * g[j]);
    i[j] = di;
    state[j] = dc[j] * state[j] * f[j] * (Wide(1) - f[j]);
    dc[j] *= f[j];
  }
  store_some<Wide, kCount>(dz, base, i), store_some<Wide, kCount>(dz, base + size, state);
  store_some<Wide, kCount>(dz, base + 2 * size, g), store_some<Wide, kCount>(dz, base + 3 * size, o);
  store_some<Wide, kCount>(dc_before, k, dc);
}

// f(neighbours of a thread, how the state is accessed): wide accesses if all operands have one dtype and begin at 16 bytes.
template <class Access, class F>
void with_units(uint32_t hidden, std::initializer_list<Array> all, F&& f) {
  if constexpr (Access::kFours) {
    const auto is_wide = [&](const Array& one) {
      return one.dtype == all.begin()->dtype && reinterpret_cast<uintptr_t>(one.data) % 16 == 0;
    };
    if (hidden % Access::kNeighbours == 0 && std::all_of(all.begin(), all.end(), is_wide))
      return f(std::integral_constant<uint32_t, Access::kNeighbours>{}, std::type_identity<Access>{});
  }
  f(std::integral_constant<uint32_t, 1>{}, std::type_identity<AnyTyped>{});
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

void launch_dropout(cudaStream_t stream, const Channels& places, uint32_t share, uint64_t seed, uint64_t least,
                    double factor, uint8_t* mask, Array x, Array out) {
  const uint32_t n = places.elements();
  bool is_done = false;
  if (share == 1 && !places.last)
    with_access({x.dtype, out.dtype}, [&](auto choice) {
      using Access = typename decltype(choice)::Access;
      using Wide = typename decltype(choice)::Wide;
      if constexpr (Access::kFours) {
        start_one<Wide>(stream, n, Access(x), Access(out),
                        DrawnAndMasked<Wide>{mask, seed, least, static_cast<Wide>(factor)});
        is_done = true;
      }
    });
  if (!is_done) {
    draw_mask<<<blocks_for(n / share, 4 * kMapThreads), kMapThreads, 0, stream>>>(n / share, seed, least, mask);
    launched("mask of dropout");
    return launch_masked(stream, places, share, mask, factor, x, out);
  }
  launched("dropout");
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
    with_units<Access>(hidden, {a.z, a.gates, a.c_before, a.c, a.h}, [&](auto count, auto side) {
      constexpr uint32_t kCount = decltype(count)::value;
      using Side = typename decltype(side)::type;
      lstm_cell<Wide, kCount><<<blocks_for(n, kCount * kMapThreads), kMapThreads, 0, stream>>>(
          n, Divisor(hidden), Access(a.z), Side(a.c_before), Access(a.gates), Side(a.c), Side(a.h));
    });
  });
  launched("lstm_cell");
}

void launch_lstm_cell_backward(cudaStream_t stream, uint32_t n, uint32_t hidden, const LstmBackwardArrays& a) {
  with_access({a.gates.dtype, a.dz.dtype}, {a.c_before.dtype, a.c.dtype, a.dh.dtype, a.dc.dtype, a.dc_before.dtype},
              [&](auto choice) {
                using Access = typename decltype(choice)::Access;
                using Wide = typename decltype(choice)::Wide;
                const std::initializer_list<Array> all = {a.gates, a.dz, a.c_before, a.c, a.dh, a.dc, a.dc_before};
                with_units<Access>(hidden, all, [&](auto count, auto side) {
                  constexpr uint32_t kCount = decltype(count)::value;
                  using Side = typename decltype(side)::type;
                  lstm_cell_backward<Wide, kCount><<<blocks_for(n, kCount * kMapThreads), kMapThreads, 0, stream>>>(
                      n, Divisor(hidden), Access(a.gates), Side(a.c_before), Side(a.c), Side(a.dh), Side(a.dc),
                      Access(a.dz), Side(a.dc_before));
                });
              });
  launched("lstm_cell_backward");
}

}  // namespace halfmark::kernels::cuda
