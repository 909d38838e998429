// Batch norm and the bias gradient: sums over a channel, always in the same order.
#include <cstdint>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/channel_maps.cuh"
#include "kernels/cuda/channel_sums.cuh"
#include "kernels/ops/formulas.h"

namespace halfmark::kernels::cuda {
namespace {

// Mixtures of dtypes are slow anyway, and their code is long.
template <class Access>
constexpr uint32_t kLoadsOf = 4;
template <>
constexpr uint32_t kLoadsOf<AnyTyped> = 1;

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

template <class Wide>
struct StoreSum {
  AnyTyped out;
  __device__ void operator()(uint32_t channel, const Pair<Wide>& sum) const { out.store<Wide>(channel, sum.first); }
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

// dx = factor (dy - term - (x - mean) slope)
template <class Wide, class Access>
struct NormaliseBackward {
  Access x, dy, dx;
  const Factors<Wide>* factors;
  using Constants = Factors<Wide>;
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
  __device__ Constants constants(uint32_t channel) const { return factors[channel]; }
  template <uint32_t width, class F>
  __device__ __forceinline__ void write(uint32_t i, const Values<width>& values, F constants_of) const {
    Wide result[width];
#pragma unroll
    for (uint32_t k = 0; k < width; ++k) {
      const Constants of = constants_of(k);
      result[k] = of.factor * fma(of.mean - values.x[k], of.slope, values.dy[k] - of.term);
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

}  // namespace

size_t channel_scratch_elements(const Channels& c) {
  static_assert(sizeof(Moments<float>) == 4 * sizeof(float) && sizeof(Factors<double>) == 4 * sizeof(double));
  return size_t{4} * (splits_of(c) + 1) * c.channels;
}

void launch_bias_gradient(cudaStream_t stream, const Channels& c, bool wide, void* scratch, Array dy, Array dbias) {
  with_wide_access({dy.dtype}, {dbias.dtype}, wide, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    sum_arrays<Wide, Access>(stream, c, SumOf<Wide, Access>{Access(dy)}, scratch, StoreSum<Wide>{AnyTyped(dbias)});
  });
}

void launch_batch_norm(cudaStream_t stream, const Channels& c, bool wide, void* memory, const BatchNormArrays& a,
                       double momentum, double epsilon) {
  with_wide_access(
      {a.x.dtype, a.out.dtype},
      {a.scale.dtype, a.shift.dtype, a.mean.dtype, a.variance.dtype, a.running_mean.dtype, a.running_variance.dtype},
      wide, [&](auto choice) {
        using Access = typename decltype(choice)::Access;
        using Wide = typename decltype(choice)::Wide;
        const Scratch<Wide> scratch(memory, c);
        const StoreStatistics<Wide> store{AnyTyped(a.scale),
                                          AnyTyped(a.shift),
                                          AnyTyped(a.mean),
                                          AnyTyped(a.variance),
                                          AnyTyped(a.running_mean),
                                          AnyTyped(a.running_variance),
                                          scratch.factors,
                                          static_cast<Wide>(c.count()),
                                          static_cast<Wide>(momentum),
                                          static_cast<Wide>(epsilon)};
        sum_arrays<Wide, Access>(stream, c, Statistics<Wide, Access>{{Access(a.x)}}, scratch.partial, store);
        map_channels<Access>(
            stream, c, Normalise<Wide, Access, Known<Wide>>{Access(a.x), Access(a.out), Known<Wide>{scratch.factors}});
        launched("batch_norm");
      });
}

void launch_batch_norm_inference(cudaStream_t stream, const Channels& c, const BatchNormArrays& a, double epsilon) {
  with_access({a.x.dtype, a.out.dtype}, {a.scale.dtype, a.shift.dtype, a.running_mean.dtype, a.running_variance.dtype},
              [&](auto choice) {
                using Access = typename decltype(choice)::Access;
                using Wide = typename decltype(choice)::Wide;
                const OfStatistics<Wide> source{AnyTyped(a.scale), AnyTyped(a.shift), AnyTyped(a.running_mean),
                                                AnyTyped(a.running_variance), static_cast<Wide>(epsilon)};
                map_channels<Access>(stream, c,
                                     Normalise<Wide, Access, OfStatistics<Wide>>{Access(a.x), Access(a.out), source});
              });
  launched("batch_norm_inference");
}

namespace {

template <bool constant>
void start_backward(cudaStream_t stream, const Channels& c, bool wide, void* memory, const BatchNormBackwardArrays& a,
                    double epsilon) {
  with_wide_access(
      {a.x.dtype, a.dy.dtype, a.dx.dtype},
      {a.scale.dtype, a.mean.dtype, a.variance.dtype, a.dscale.dtype, a.dshift.dtype}, wide, [&](auto choice) {
        using Access = typename decltype(choice)::Access;
        using Wide = typename decltype(choice)::Wide;
        const Scratch<Wide> scratch(memory, c);
        const Access x(a.x), dy(a.dy), dx(a.dx);
        const AnyTyped scale(a.scale), mean(a.mean), variance(a.variance);
        const Wide narrow_epsilon = static_cast<Wide>(epsilon);
        sum_arrays<Wide, Access>(
            stream, c, GradientSums<Wide, Access, constant>{x, dy, dx, scale, mean, variance, narrow_epsilon},
            scratch.partial,
            StoreGradients<Wide>{scale, mean, variance, AnyTyped(a.dscale), AnyTyped(a.dshift),
                                 constant ? nullptr : scratch.factors, static_cast<Wide>(c.count()), narrow_epsilon});
        if constexpr (!constant) {
          map_channels<Access>(stream, c, NormaliseBackward<Wide, Access>{x, dy, dx, scratch.factors});
          launched("batch_norm_backward");
        }
      });
}

}  // namespace

void launch_batch_norm_backward(cudaStream_t stream, const Channels& c, bool wide, void* memory,
                                const BatchNormBackwardArrays& a, double epsilon) {
  start_backward<false>(stream, c, wide, memory, a, epsilon);
}

void launch_batch_norm_inference_backward(cudaStream_t stream, const Channels& c, bool wide, void* memory,
                                          const BatchNormBackwardArrays& a, double epsilon) {
  start_backward<true>(stream, c, wide, memory, a, epsilon);
}

}  // namespace halfmark::kernels::cuda
