// Batch norm, alone and with ReLU, and the bias gradient: sums over a channel, always in the same order.
#include <cstdint>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/batch_norm.cuh"
#include "kernels/cuda/channel_maps.cuh"
#include "kernels/cuda/channel_sums.cuh"

namespace halfmark::kernels::cuda {
namespace {

template <class Wide>
struct StoreSum {
  AnyTyped out;
  __device__ void operator()(uint32_t channel, const Pair<Wide>& sum) const { out.store<Wide>(channel, sum.first); }
};

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

namespace {

// The statistics of x, then one pass over it by map(choice, factors of the channels). `image`: beside x and out, if another
// image is read.
template <class Map>
void start_batch_norm(cudaStream_t stream, const Channels& c, bool wide, void* memory, const BatchNormArrays& a,
                      DType image, double momentum, double epsilon, Map map) {
  with_wide_access(
      {a.x.dtype, a.out.dtype, image},
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
        map(choice, scratch.factors);
      });
}

}  // namespace

void launch_batch_norm(cudaStream_t stream, const Channels& c, bool wide, void* memory, const BatchNormArrays& a,
                       double momentum, double epsilon) {
  start_batch_norm(stream, c, wide, memory, a, a.x.dtype, momentum, epsilon, [&](auto choice, auto* factors) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    map_channels<Access>(stream, c,
                         Normalise<Wide, Access, Known<Wide>>{Access(a.x), Access(a.out), Known<Wide>{factors}});
  });
  launched("batch_norm");
}

void launch_fused_batch_norm(cudaStream_t stream, const Channels& c, bool wide, void* memory, const BatchNormArrays& a,
                             const Array& addend, double momentum, double epsilon) {
  const DType image = addend.data ? addend.dtype : a.x.dtype;
  start_batch_norm(stream, c, wide, memory, a, image, momentum, epsilon, [&](auto choice, auto* factors) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    const Access x(a.x), other(addend.data ? addend : a.x), out(a.out);
    if (addend.data)
      map_channels<Access>(stream, c, NormaliseBeforeRelu<Wide, Access, true>{x, other, out, factors});
    else
      map_channels<Access>(stream, c, NormaliseBeforeRelu<Wide, Access, false>{x, other, out, factors});
  });
  launched("fused_batch_norm");
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
          map_channels<Access>(stream, c, NormaliseBackward<Wide, Access, false>{x, dy, dy, dx, scratch.factors});
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

void launch_fused_batch_norm_backward(cudaStream_t stream, const Channels& c, bool wide, void* memory,
                                      const BatchNormBackwardArrays& a, const Array& kept_image,
                                      const Array& daddend_image, double epsilon) {
  const bool adds = daddend_image.data != nullptr;
  with_wide_access(
      {a.x.dtype, a.dy.dtype, a.dx.dtype, kept_image.dtype, adds ? daddend_image.dtype : a.x.dtype},
      {a.scale.dtype, a.mean.dtype, a.variance.dtype, a.dscale.dtype, a.dshift.dtype}, wide, [&](auto choice) {
        using Access = typename decltype(choice)::Access;
        using Wide = typename decltype(choice)::Wide;
        const Scratch<Wide> scratch(memory, c);
        const Access x(a.x), kept(kept_image), dy(a.dy), dx(a.dx), daddend(adds ? daddend_image : a.dx);
        const AnyTyped scale(a.scale), mean(a.mean), variance(a.variance);
        const StoreGradients<Wide> store{scale,
                                         mean,
                                         variance,
                                         AnyTyped(a.dscale),
                                         AnyTyped(a.dshift),
                                         scratch.factors,
                                         static_cast<Wide>(c.count()),
                                         static_cast<Wide>(epsilon)};
        const auto sum = [&](auto body) { sum_arrays<Wide, Access>(stream, c, body, scratch.partial, store); };
        if (adds)
          sum(GradientSumsBeforeRelu<Wide, Access, true>{x, kept, dy, daddend, mean});
        else
          sum(GradientSumsBeforeRelu<Wide, Access, false>{x, kept, dy, daddend, mean});
        // What is stored as daddend need not be computed again, unless it was rounded.
        if (adds && daddend_image.dtype == a.dy.dtype)
          map_channels<Access>(stream, c,
                               NormaliseBackward<Wide, Access, false>{x, kept, daddend, dx, scratch.factors});
        else
          map_channels<Access>(stream, c, NormaliseBackward<Wide, Access, true>{x, kept, dy, dx, scratch.factors});
        launched("fused_batch_norm_backward");
      });
}

}  // namespace halfmark::kernels::cuda
