// Element-wise operations. Formulas: kernels/ops/formulas.h.
#include <cstdint>
#include <string>
#include <type_traits>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/division.cuh"
#include "kernels/cuda/maps.cuh"
#include "kernels/cuda/noise.cuh"
#include "kernels/cuda/rounding.cuh"
#include "kernels/number/error.h"
#include "kernels/ops/activations.h"

namespace halfmark::kernels::cuda {
namespace {

template <class Wide>
struct Same {
  __device__ Wide operator()(uint32_t, Wide x) const { return x; }
};

template <class Row>
constexpr bool kPassesOperand = requires {
  requires Row::passes_operand;
};

template <class Wide, class Row>
struct Forward {
  using Computes = std::bool_constant<!kPassesOperand<Row>>;
  __device__ Wide operator()(uint32_t, Wide x) const { return Row::forward(x); }
};

template <class Wide, class Row>
struct Backward {
  using Computes = std::bool_constant<!kPassesOperand<Row>>;
  __device__ Wide operator()(uint32_t, Wide kept, Wide dy) const { return Row::backward(kept, dy); }
};

template <class Wide>
struct Sum {
  using Computes = std::true_type;
  __device__ Wide operator()(uint32_t, Wide a, Wide b) const { return a + b; }
};

template <class Wide>
struct Times {
  using Computes = std::true_type;
  Wide factor;
  __device__ Wide operator()(uint32_t, Wide x) const { return x * factor; }
};

template <class Wide, class Bias>
struct PlusBias {
  using Computes = std::true_type;
  Bias bias;
  Divisor channels, inner;  // element i belongs to channel i / inner % channels
  __device__ Wide operator()(uint32_t i, Wide x) const { return x + bias.template load<Wide>(channel_of(i)); }
  __device__ __forceinline__ uint32_t channel_of(uint32_t i) const {
    uint32_t channel = inner.quotient(i);
    channels.divide(channel);
    return channel;
  }
  template <uint32_t kCount>
  __device__ __forceinline__ void all(uint32_t i, Wide* x) const {
    Wide values[kCount];
    if (inner.divisor == 1 && channels.divisor % kCount == 0) {
      const uint32_t channel = channel_of(i);
      if constexpr (Bias::kFours) {
        bias.template load_all<Wide, kCount>(channel, values);
      } else {
#pragma unroll
        for (uint32_t k = 0; k < kCount; ++k) values[k] = bias.template load<Wide>(channel + k);
      }
#pragma unroll
      for (uint32_t k = 0; k < kCount; ++k) x[k] += values[k];
    } else if (inner.divisor >= kCount) {  // of two channels at most
      uint32_t at = i, channel = inner.divide(at);
      channels.divide(channel);
      const uint32_t left = inner.divisor - at;
      const Wide here = bias.template load<Wide>(channel);
      Wide next = here;
      if (left < kCount) next = bias.template load<Wide>(channel + 1 == channels.divisor ? 0 : channel + 1);
#pragma unroll
      for (uint32_t k = 0; k < kCount; ++k) x[k] += k < left ? here : next;
    } else {
#pragma unroll 1
      for (uint32_t k = 0; k < kCount; ++k) values[k] = bias.template load<Wide>(channel_of(i + k));
#pragma unroll
      for (uint32_t k = 0; k < kCount; ++k) x[k] += values[k];
    }
  }
};

// Rounded in another mode than to nearest even. Element i of memory is element i of the noise in logical order.
__global__ void __launch_bounds__(kMapThreads)
    cast_rounded(Channels c, uint32_t n, AnyTyped x, void* out, DType dtype, Rounding rounding, uint64_t seed) {
  __shared__ uint32_t table[256];
  if (rounding == Rounding::stochastic) {
    fill_aes_table(table);
    __syncthreads();
  }
  const uint32_t first = (blockIdx.x * kMapThreads + threadIdx.x) * 4, end = n - first < 4 ? n : first + 4;
  if (first >= n) return;
  const RoundTarget target = round_target(dtype);
  NoiseWords words{};
  uint32_t known = 0xffffffff;  // the block of the noise that `words` holds
  for (uint32_t i = first; i < end; ++i) {
    uint64_t noise = 0;
    if (rounding == Rounding::stochastic) {
      const uint32_t place =
          c.last ? (i / c.channels / c.pixels * c.channels + i % c.channels) * c.pixels + i / c.channels % c.pixels : i;
      if (place / 4 != known) known = place / 4, words = noise_words(table, seed, known);
      noise = noise_of(words, place);
    }
    store_code_of(out, dtype, i, rounded_code(x.load<double>(i), target, rounding, noise));
  }
}

// How often the timer advances depends on the implementation (PTX ISA, %globaltimer). The clock of the multiprocessor ends
// the wait too: after the time that the cycles would take at 4 GHz, more than any GPU has.
__global__ void pause(uint64_t nanoseconds) {
  const int64_t first = clock64(), most = static_cast<int64_t>(4 * nanoseconds);
  uint64_t start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (now - start < nanoseconds && clock64() - first < most);
}

// f with a view of an array that is not f64.
template <class F>
void with_typed(const Array& array, F&& f) {
  if (array.dtype == DType::f32) return f(Typed<float>(array));
  if (array.dtype == DType::f16) return f(Typed<__half>(array));
  if (array.dtype == DType::bf16) return f(Typed<__nv_bfloat16>(array));
  if (array.dtype == DType::e4m3) return f(Typed<E4m3>(array));
  if (array.dtype == DType::e5m2) return f(Typed<E5m2>(array));
  throw Error("no view of " + std::string(name_of(array.dtype)) + " for device code that computes in fp32");
}

// f(row) with the row of that number in the list of activations.
template <class... Rows, class F>
void with_activation(activations::List<Rows...>, size_t activation, F&& f) {
  size_t number = 0;
  const bool found = ((number++ == activation && (f(Rows{}), true)) || ...);
  HM_CHECK(found, "no activation has number " + std::to_string(activation));
}
template <class F>
void with_activation(size_t activation, F&& f) {
  with_activation(activations::All{}, activation, f);
}

}  // namespace

void launch_cast(cudaStream_t stream, uint32_t n, Array x, Array out) {
  if (x.dtype == DType::f64 || out.dtype == DType::f64) {
    start_one<double>(stream, n, AnyTyped(x), AnyTyped(out), Same<double>{});
  } else {
    with_typed(
        x, [&](auto from) { with_typed(out, [&](auto to) { start_one<float>(stream, n, from, to, Same<float>{}); }); });
  }
  launched("cast");
}

void launch_cast_rounded(cudaStream_t stream, const Channels& c, Array x, Array out, Rounding rounding, uint64_t seed) {
  cast_rounded<<<blocks_for(c.elements(), 4 * kMapThreads), kMapThreads, 0, stream>>>(
      c, c.elements(), AnyTyped(x), out.data, out.dtype, rounding, seed);
  launched("cast with another rounding");
}

void launch_activation(cudaStream_t stream, size_t activation, uint32_t n, Array x, Array out) {
  with_activation(activation, [&](auto row) {
    using Row = decltype(row);
    with_access({x.dtype, out.dtype}, [&](auto choice) {
      using Access = typename decltype(choice)::Access;
      using Wide = typename decltype(choice)::Wide;
      start_one<Wide>(stream, n, Access(x), Access(out), Forward<Wide, Row>{});
    });
  });
  launched("activation");
}

void launch_activation_backward(cudaStream_t stream, size_t activation, uint32_t n, Array kept, Array dy, Array dx) {
  with_activation(activation, [&](auto row) {
    using Row = decltype(row);
    with_access({kept.dtype, dy.dtype, dx.dtype}, [&](auto choice) {
      using Access = typename decltype(choice)::Access;
      using Wide = typename decltype(choice)::Wide;
      start_two<Wide>(stream, n, Access(kept), Access(dy), Access(dx), Backward<Wide, Row>{});
    });
  });
  launched("activation_backward");
}

void launch_add(cudaStream_t stream, uint32_t n, Array a, Array b, Array out) {
  with_access({a.dtype, b.dtype, out.dtype}, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    start_two<Wide>(stream, n, Access(a), Access(b), Access(out), Sum<Wide>{});
  });
  launched("add");
}

void launch_scale(cudaStream_t stream, uint32_t n, Array x, Array out, double factor) {
  with_access({x.dtype, out.dtype}, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    start_one<Wide>(stream, n, Access(x), Access(out), Times<Wide>{static_cast<Wide>(factor)});
  });
  launched("scale");
}

void launch_add_bias(cudaStream_t stream, const Channels& c, Array x, Array bias, Array out) {
  with_access({x.dtype, out.dtype}, {bias.dtype}, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    const Divisor channels(c.channels), inner(c.last ? 1 : c.pixels);
    if constexpr (Access::kFours)
      if (bias.dtype == x.dtype)
        return start_one<Wide>(stream, c.elements(), Access(x), Access(out),
                               PlusBias<Wide, Access>{Access(bias), channels, inner});
    start_one<Wide>(stream, c.elements(), Access(x), Access(out),
                    PlusBias<Wide, AnyTyped>{AnyTyped(bias), channels, inner});
  });
  launched("add_bias");
}

void launch_pause(cudaStream_t stream, uint32_t microseconds) {
  pause<<<1, 1, 0, stream>>>(uint64_t{microseconds} * 1000);
  launched("pause");
}

const char* code_for_device() {
  cudaFuncAttributes attributes;
  const cudaError_t status = cudaFuncGetAttributes(&attributes, pause);
  if (status == cudaSuccess) return nullptr;
  (void)cudaGetLastError();
  if (status != cudaErrorNoKernelImageForDevice && status != cudaErrorInvalidDeviceFunction &&
      status != cudaErrorUnsupportedPtxVersion && status != cudaErrorInvalidPtx &&
      status != cudaErrorJitCompilerNotFound && status != cudaErrorJitCompilationDisabled)
    check(status, "cudaFuncGetAttributes");
  return cudaGetErrorString(status);
}

}  // namespace halfmark::kernels::cuda
