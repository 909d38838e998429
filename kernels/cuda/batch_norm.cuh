// What the kernels of batch norm compute for each element and each channel: bodies for channel_sums.cuh and channel_maps.cuh.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/channel_maps.cuh"
#include "kernels/cuda/channel_sums.cuh"
#include "kernels/ops/formulas.h"

namespace halfmark::kernels::cuda {

// Mixtures of dtypes are slow anyway, and their code is long.
template <class Access>
constexpr uint32_t kLoadsOf = 4;
template <>
inline constexpr uint32_t kLoadsOf<AnyTyped> = 1;

template <class Wide, class Access>
struct SumOf {
  Access x;
  using Sum = Pair<Wide>;
  struct Constants {};
  static constexpr uint32_t kLoads = kLoadsOf<Access>;
  template <uint32_t width>
  struct Values {
    Vector<Access, Wide, width> x;
  };
  template <uint32_t width>
  __device__ __forceinline__ Values<width> load(uint32_t i) const {
    Values<width> values;
    values.x.load(x, i);
    return values;
  }
  __device__ Constants constants(uint32_t) const { return {}; }
  template <class V>
  __device__ __forceinline__ void add(const V& values, uint32_t k, const Constants&, Pair<Wide>& sum) const {
    sum.first += values.x[k];
  }
  template <uint32_t width, class V, class F>
  __device__ void write(uint32_t, const V&, F) const {}
};

// Deviations from a number near the mean and their squares: never E[x^2] - E[x]^2, which cancels.
template <class Wide, class Access>
struct Statistics : SumOf<Wide, Access> {
  using Sum = Moments<Wide>;
  using Constants = Wide;
  template <class V>
  __device__ __forceinline__ void add(const V& values, uint32_t k, Wide shift, Pair<Wide>& sum) const {
    const Wide deviation = values.x[k] - shift;
    sum.first += deviation, sum.second = fma(deviation, deviation, sum.second);
  }
};

// What a channel's elements are computed from, in one access.
template <class Wide>
struct alignas(16) Factors {
  Wide mean, factor, term, slope;
};

template <class Wide>
struct StoreStatistics {
  AnyTyped scale, shift, mean, variance, running_mean, running_variance;
  Factors<Wide>* factors;
  Wide count, momentum, epsilon;
  __device__ void operator()(uint32_t channel, const Moments<Wide>& x) const {
    const Wide average = x.shift + x.offset, biased = x.squares / count, unbiased = x.squares / (count - 1);
    mean.store<Wide>(channel, average);
    variance.store<Wide>(channel, biased);
    const Wide inverse = formulas::batch_norm_inverse(biased, epsilon);
    factors[channel] = {average, scale.load<Wide>(channel) * inverse, shift.load<Wide>(channel), 0};
    running_mean.store<Wide>(channel, formulas::moving_average(running_mean.load<Wide>(channel), average, momentum));
    running_variance.store<Wide>(channel,
                                 formulas::moving_average(running_variance.load<Wide>(channel), unbiased, momentum));
  }
};

// From the factors that are known.
template <class Wide>
struct Known {
  const Factors<Wide>* factors;
  __device__ Factors<Wide> operator()(uint32_t channel) const { return factors[channel]; }
};
// From running statistics.
template <class Wide>
struct OfStatistics {
  AnyTyped scale, shift, mean, variance;
  Wide epsilon;
  __device__ Factors<Wide> operator()(uint32_t channel) const {
    const Wide inverse = formulas::batch_norm_inverse(variance.load<Wide>(channel), epsilon);
    return {mean.load<Wide>(channel), scale.load<Wide>(channel) * inverse, shift.load<Wide>(channel), 0};
  }
};

// out = (x - mean) factor + term
template <class Wide, class Access, class Source>
struct Normalise {
  Access x, out;
  Source source;
  using Constants = Factors<Wide>;
  static constexpr uint32_t kLoads = kLoadsOf<Access>;
  template <uint32_t width>
  using Values = Vector<Access, Wide, width>;
  template <uint32_t width>
  __device__ __forceinline__ Values<width> load(uint32_t i) const {
    Values<width> values;
    values.load(x, i);
    return values;
  }
  __device__ Constants constants(uint32_t channel) const { return source(channel); }
  template <uint32_t width, class F>
  __device__ __forceinline__ void write(uint32_t i, const Values<width>& values, F constants_of) const {
    Wide result[width];
#pragma unroll
    for (uint32_t k = 0; k < width; ++k) {
      const Constants of = constants_of(k);
      result[k] = fma(values[k] - of.mean, of.factor, of.term);
    }
    Values<width>::store(out, i, result);
  }
};

// out = max(0, (x - mean) factor + term), with an addend in the maximum if there is one.
template <class Wide, class Access, bool adds>
struct NormaliseBeforeRelu {
  Access x, addend, out;
  const Factors<Wide>* factors;
  using Constants = Factors<Wide>;
  static constexpr uint32_t kLoads = kLoadsOf<Access> == 1 || !adds ? kLoadsOf<Access> : 2;
  template <uint32_t width>
  struct Values {
    Vector<Access, Wide, width> x, addend;
  };
  template <uint32_t width>
  __device__ __forceinline__ Values<width> load(uint32_t i) const {
    Values<width> values;
    values.x.load(x, i);
    if constexpr (adds) values.addend.load(addend, i);
    return values;
  }
  __device__ Constants constants(uint32_t channel) const { return factors[channel]; }
  template <uint32_t width, class F>
  __device__ __forceinline__ void write(uint32_t i, const Values<width>& values, F constants_of) const {
    Wide result[width];
#pragma unroll
    for (uint32_t k = 0; k < width; ++k) {
      const Constants of = constants_of(k);
      result[k] = fma(values.x[k] - of.mean, of.factor, of.term);
      if constexpr (adds) result[k] += values.addend[k];
      result[k] = formulas::relu(result[k]);
    }
    Vector<Access, Wide, width>::store(out, i, result);
  }
};

// sum dy and sum dy (x - mean); of constant statistics also dx = scale / sqrt(variance + epsilon) dy.
template <class Wide, class Access, bool constant>
struct GradientSums {
  Access x, dy, dx;
  AnyTyped scale, means, variances;
  Wide epsilon;
  using Sum = Pair<Wide>;
  struct Constants {
    Wide mean, factor;
  };
  static constexpr uint32_t kLoads = kLoadsOf<Access> == 1 ? 1 : 2;
  template <uint32_t width>
  struct Values {
    Vector<Access, Wide, width> x, dy;
  };
  template <uint32_t width>
  __device__ __forceinline__ Values<width> load(uint32_t i) const {
    Values<width> values;
    values.x.load(x, i), values.dy.load(dy, i);
    return values;
  }
  __device__ Constants constants(uint32_t channel) const {
    Constants of{means.load<Wide>(channel), 0};
    if constexpr (constant)
      of.factor = scale.load<Wide>(channel) * formulas::batch_norm_inverse(variances.load<Wide>(channel), epsilon);
    return of;
  }
  template <class V>
  __device__ __forceinline__ void add(const V& values, uint32_t k, const Constants& of, Pair<Wide>& sum) const {
    const Wide gradient = values.dy[k];
    sum.first += gradient, sum.second = fma(gradient, values.x[k] - of.mean, sum.second);
  }
  template <uint32_t width, class V, class F>
  __device__ __forceinline__ void write(uint32_t i, const V& values, F constants_of) const {
    if constexpr (constant) {
      Wide result[width];
#pragma unroll
      for (uint32_t k = 0; k < width; ++k) result[k] = constants_of(k).factor * values.dy[k];
      Vector<Access, Wide, width>::store(dx, i, result);
    }
  }
};

template <class Wide>
struct StoreGradients {
  AnyTyped scale, mean, variance, dscale, dshift;
  Factors<Wide>* factors;  // null: not wanted
  Wide count, epsilon;
  __device__ void operator()(uint32_t channel, const Pair<Wide>& sum) const {
    const Wide inverse = formulas::batch_norm_inverse(variance.load<Wide>(channel), epsilon);
    const Wide of_scale = sum.second * inverse;
    // Before the results, which may replace the operands.
    if (factors)
      factors[channel] = {mean.load<Wide>(channel), scale.load<Wide>(channel) * inverse, sum.first / count,
                          inverse * (of_scale / count)};
    dshift.store<Wide>(channel, sum.first);
    dscale.store<Wide>(channel, of_scale);
  }
};

// x, the result of ReLU, and the gradient of that result.
template <class Wide, class Access, uint32_t width>
struct ValuesBehindRelu {
  Vector<Access, Wide, width> x, kept, dy;
  __device__ __forceinline__ Wide gradient(uint32_t k) const { return formulas::relu_backward(kept[k], dy[k]); }
};

// Sums as those of GradientSums, of the gradient before ReLU, which is also that of the addend.
template <class Wide, class Access, bool adds>
struct GradientSumsBeforeRelu {
  Access x, kept, dy, daddend;
  AnyTyped means;
  using Sum = Pair<Wide>;
  using Constants = Wide;
  static constexpr uint32_t kLoads = kLoadsOf<Access> == 1 ? 1 : 2;
  template <uint32_t width>
  using Values = ValuesBehindRelu<Wide, Access, width>;
  template <uint32_t width>
  __device__ __forceinline__ Values<width> load(uint32_t i) const {
    Values<width> values;
    values.x.load(x, i), values.kept.load(kept, i), values.dy.load(dy, i);
    return values;
  }
  __device__ Constants constants(uint32_t channel) const { return means.load<Wide>(channel); }
  template <class V>
  __device__ __forceinline__ void add(const V& values, uint32_t k, Wide mean, Pair<Wide>& sum) const {
    const Wide gradient = values.gradient(k);
    sum.first += gradient, sum.second = fma(gradient, values.x[k] - mean, sum.second);
  }
  template <uint32_t width, class V, class F>
  __device__ __forceinline__ void write(uint32_t i, const V& values, F) const {
    if constexpr (adds) {
      Wide result[width];
#pragma unroll
      for (uint32_t k = 0; k < width; ++k) result[k] = values.gradient(k);
      Vector<Access, Wide, width>::store(daddend, i, result);
    }
  }
};

// x and the gradient of the norm's result.
template <class Wide, class Access, uint32_t width>
struct ValuesAndGradient {
  Vector<Access, Wide, width> x, dy;
  __device__ __forceinline__ Wide gradient(uint32_t k) const { return dy[k]; }
};

// dx = factor (gradient - term - (x - mean) slope). `masks`: the gradient is that before ReLU, whose result is `kept`.
template <class Wide, class Access, bool masks>
struct NormaliseBackward {
  Access x, kept, dy, dx;
  const Factors<Wide>* factors;
  using Constants = Factors<Wide>;
  static constexpr uint32_t kLoads = kLoadsOf<Access> == 1 ? 1 : 2;
  template <uint32_t width>
  using Values =
      std::conditional_t<masks, ValuesBehindRelu<Wide, Access, width>, ValuesAndGradient<Wide, Access, width>>;
  template <uint32_t width>
  __device__ __forceinline__ Values<width> load(uint32_t i) const {
    Values<width> values;
    values.x.load(x, i), values.dy.load(dy, i);
    if constexpr (masks) values.kept.load(kept, i);
    return values;
  }
  __device__ Constants constants(uint32_t channel) const { return factors[channel]; }
  template <uint32_t width, class F>
  __device__ __forceinline__ void write(uint32_t i, const Values<width>& values, F constants_of) const {
    Wide result[width];
#pragma unroll
    for (uint32_t k = 0; k < width; ++k) {
      const Constants of = constants_of(k);
      result[k] = of.factor * fma(of.mean - values.x[k], of.slope, values.gradient(k) - of.term);
    }
    Vector<Access, Wide, width>::store(dx, i, result);
  }
};

// Scratch: the partial sums, then factors of each channel.
template <class Wide>
struct Scratch {
  void* partial;
  Factors<Wide>* factors;
  Scratch(void* memory, const Channels& c)
      : partial(memory), factors(static_cast<Factors<Wide>*>(memory) + size_t{splits_of(c)} * c.channels) {}
};

// The sums of vectors as wide as the shape allows.
template <class Wide, class Access, class Body, class End>
void sum_arrays(cudaStream_t stream, const Channels& c, Body body, void* partial, End end) {
  with_width<Access>(c.last ? c.channels : c.pixels, [&](auto width) {
    sum_vectors<Wide, decltype(width)::value>(stream, c, body, static_cast<typename Body::Sum*>(partial), end);
  });
}

}  // namespace halfmark::kernels::cuda
