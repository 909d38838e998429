// Batch norm, the bias gradient and the softmax loss: sums over a channel or a row, always in the same order.
#include <cstdint>
#include <initializer_list>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/channel_sums.cuh"
#include "kernels/ops/formulas.h"

namespace halfmark::kernels::cuda {
namespace {

constexpr uint32_t kThreads = kSumThreads;

template <class Wide, class Access>
struct SumOf {
  Access x;
  __device__ void prepare(uint32_t) {}
  __device__ void add(uint32_t i, Pair<Wide>& sum) const { sum.first += x.template load<Wide>(i); }
};

template <class Wide>
struct StoreSum {
  AnyTyped out;
  __device__ void operator()(uint32_t channel, const Pair<Wide>& sum) const { out.store<Wide>(channel, sum.first); }
};

template <class Wide>
struct StoreMean {
  AnyTyped mean;
  Wide* exact;
  Wide count;
  __device__ void operator()(uint32_t channel, const Pair<Wide>& sum) const {
    exact[channel] = sum.first / count;
    mean.store<Wide>(channel, exact[channel]);
  }
};

// Deviations from the mean and their squares: never E[x^2] - E[x]^2, which cancels.
template <class Wide, class Access>
struct Deviations {
  Access x;
  const Wide* means;
  Wide mean = 0;
  __device__ void prepare(uint32_t channel) { mean = means[channel]; }
  __device__ void add(uint32_t i, Pair<Wide>& sum) const {
    const Wide deviation = x.template load<Wide>(i) - mean;
    sum.first += deviation, sum.second += deviation * deviation;
  }
};

template <class Wide>
struct StoreVariance {
  AnyTyped variance, running_mean, running_variance;
  const Wide* means;
  Wide* inverses;
  Wide count, momentum, epsilon;
  __device__ void operator()(uint32_t channel, const Pair<Wide>& sum) const {
    // The sum of the deviations is the rounding error of the mean (Chan, Golub and LeVeque 1983, corrected two-pass).
    // Of a channel of equal values the difference can be negative by rounding; a NaN stays one.
    const Wide difference = sum.second - sum.first * sum.first / count, squares = difference < 0 ? Wide(0) : difference;
    const Wide biased = squares / count, unbiased = squares / (count - 1);
    variance.store<Wide>(channel, biased);
    inverses[channel] = formulas::batch_norm_inverse(biased, epsilon);
    running_mean.store<Wide>(channel,
                             formulas::moving_average(running_mean.load<Wide>(channel), means[channel], momentum));
    running_variance.store<Wide>(channel,
                                 formulas::moving_average(running_variance.load<Wide>(channel), unbiased, momentum));
  }
};

template <class Wide, class Access>
__global__ void __launch_bounds__(kThreads) normalise(Channels c, uint32_t n, Access x, AnyTyped scale, AnyTyped shift,
                                                      Access out, const Wide* means, const Wide* inverses) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  const uint32_t channel = channel_of(c, i);
  out.template store<Wide>(i, formulas::batch_norm(x.template load<Wide>(i), means[channel], inverses[channel],
                                                   scale.load<Wide>(channel), shift.load<Wide>(channel)));
}

template <class Wide, class Access>
__global__ void __launch_bounds__(kThreads)
    normalise_with(Channels c, uint32_t n, Access x, AnyTyped scale, AnyTyped shift, AnyTyped mean, AnyTyped variance,
                   Access out, Wide epsilon) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  const uint32_t channel = channel_of(c, i);
  const Wide inverse = formulas::batch_norm_inverse(variance.load<Wide>(channel), epsilon);
  out.template store<Wide>(i, formulas::batch_norm(x.template load<Wide>(i), mean.load<Wide>(channel), inverse,
                                                   scale.load<Wide>(channel), shift.load<Wide>(channel)));
}

// sum dy and sum dy xhat
template <class Wide, class Access>
struct GradientSums {
  Access x, dy;
  AnyTyped means, variances;
  Wide epsilon, mean = 0, inverse = 0;
  __device__ void prepare(uint32_t channel) {
    mean = means.load<Wide>(channel);
    inverse = formulas::batch_norm_inverse(variances.load<Wide>(channel), epsilon);
  }
  __device__ void add(uint32_t i, Pair<Wide>& sum) const {
    const Wide gradient = dy.template load<Wide>(i);
    sum.first += gradient, sum.second += gradient * ((x.template load<Wide>(i) - mean) * inverse);
  }
};

template <class Wide>
struct StoreGradients {
  AnyTyped dscale, dshift;
  Pair<Wide>* exact;  // null: not wanted
  __device__ void operator()(uint32_t channel, const Pair<Wide>& sum) const {
    if (exact) exact[channel] = sum;
    dshift.store<Wide>(channel, sum.first);
    dscale.store<Wide>(channel, sum.second);
  }
};

template <class Wide, class Access>
__global__ void __launch_bounds__(kThreads)
    normalise_backward(Channels c, uint32_t n, Access x, Access dy, AnyTyped scale, AnyTyped mean, AnyTyped variance,
                       Access dx, const Pair<Wide>* sums, Wide epsilon) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  const uint32_t channel = channel_of(c, i);
  const Wide inverse = formulas::batch_norm_inverse(variance.load<Wide>(channel), epsilon);
  const Pair<Wide> sum = sums[channel];
  dx.template store<Wide>(
      i, formulas::batch_norm_backward(x.template load<Wide>(i), dy.template load<Wide>(i), mean.load<Wide>(channel),
                                       inverse, scale.load<Wide>(channel), sum.second, sum.first,
                                       static_cast<Wide>(c.outer * c.pixels)));
}

// Where the statistics are constants: dx = scale / sqrt(variance + epsilon) dy.
template <class Wide, class Access>
__global__ void __launch_bounds__(kThreads)
    scale_backward(Channels c, uint32_t n, Access dy, AnyTyped scale, AnyTyped variance, Access dx, Wide epsilon) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  const uint32_t channel = channel_of(c, i);
  const Wide inverse = formulas::batch_norm_inverse(variance.load<Wide>(channel), epsilon);
  dx.template store<Wide>(i, scale.load<Wide>(channel) * inverse * dy.template load<Wide>(i));
}

constexpr uint32_t kRowThreads = 128;

// Over a row of logits z: m = max z, s = sum exp(z - m), log probability = (z - m) - log s, loss = the label's negated.
template <class Wide, class Access>
__global__ void __launch_bounds__(kRowThreads)
    softmax_rows(uint32_t classes, Access logits, const int32_t* labels, Access log_probabilities, Wide* losses) {
  __shared__ Wide largest[kRowThreads];
  __shared__ Pair<Wide> sums[kRowThreads];
  const uint32_t row = blockIdx.x, start = row * classes, thread = threadIdx.x;
  const Wide infinity = static_cast<Wide>(__int_as_float(0x7f800000));
  Wide top = -infinity;
  for (uint32_t i = thread; i < classes; i += kRowThreads) top = fmax(top, logits.template load<Wide>(start + i));
  largest[thread] = top;
  for (uint32_t half = kRowThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) largest[thread] = fmax(largest[thread], largest[thread + half]);
  }
  __syncthreads();
  top = largest[0];
  Pair<Wide> sum;
  for (uint32_t i = thread; i < classes; i += kRowThreads)
    sum.first += exp(logits.template load<Wide>(start + i) - top);
  sums[thread] = sum;
  sum_tree(sums, thread, 1, kRowThreads);
  __syncthreads();
  const Wide log_sum = log(sums[0].first);
  // Before the log probabilities, which may overwrite the logits.
  if (thread == 0) {
    const int32_t label = labels[row];
    const bool known = label >= 0 && label < static_cast<int32_t>(classes);
    losses[row] =
        known ? -formulas::log_softmax(logits.template load<Wide>(start + label), top, log_sum) : infinity - infinity;
  }
  __syncthreads();
  for (uint32_t i = thread; i < classes; i += kRowThreads)
    log_probabilities.template store<Wide>(start + i,
                                           formulas::log_softmax(logits.template load<Wide>(start + i), top, log_sum));
}

template <class Wide>
__global__ void __launch_bounds__(kThreads) mean_of(uint32_t n, const Wide* values, AnyTyped out) {
  __shared__ Pair<Wide> shared[kThreads];
  Pair<Wide> sum;
  for (uint32_t i = threadIdx.x; i < n; i += kThreads) sum.first += values[i];
  shared[threadIdx.x] = sum;
  sum_tree(shared, threadIdx.x, 1, kThreads);
  if (threadIdx.x == 0) out.store<Wide>(0, shared[0].first / static_cast<Wide>(n));
}

}  // namespace

size_t channel_scratch_elements(const Channels& c) { return size_t{2} * (splits_of(c) + 1) * c.channels; }

void launch_bias_gradient(cudaStream_t stream, const Channels& c, bool wide, void* scratch, Array dy, Array dbias) {
  with_wide_access({dy.dtype}, {dbias.dtype}, wide, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    sum_channels(stream, c, SumOf<Wide, Access>{Access(dy)}, Scratch<Wide>(scratch, c).partial,
                 StoreSum<Wide>{AnyTyped(dbias)});
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
        const Wide count = static_cast<Wide>(c.count());
        sum_channels(stream, c, SumOf<Wide, Access>{Access(a.x)}, scratch.partial,
                     StoreMean<Wide>{AnyTyped(a.mean), scratch.first, count});
        sum_channels(stream, c, Deviations<Wide, Access>{Access(a.x), scratch.first}, scratch.partial,
                     StoreVariance<Wide>{AnyTyped(a.variance), AnyTyped(a.running_mean), AnyTyped(a.running_variance),
                                         scratch.first, scratch.second, count, static_cast<Wide>(momentum),
                                         static_cast<Wide>(epsilon)});
        normalise<Wide><<<blocks_for(c.elements(), kThreads), kThreads, 0, stream>>>(
            c, c.elements(), Access(a.x), AnyTyped(a.scale), AnyTyped(a.shift), Access(a.out), scratch.first,
            scratch.second);
        launched("batch_norm");
      });
}

void launch_batch_norm_inference(cudaStream_t stream, const Channels& c, const BatchNormArrays& a, double epsilon) {
  with_access({a.x.dtype, a.out.dtype}, {a.scale.dtype, a.shift.dtype, a.running_mean.dtype, a.running_variance.dtype},
              [&](auto choice) {
                using Access = typename decltype(choice)::Access;
                using Wide = typename decltype(choice)::Wide;
                normalise_with<Wide><<<blocks_for(c.elements(), kThreads), kThreads, 0, stream>>>(
                    c, c.elements(), Access(a.x), AnyTyped(a.scale), AnyTyped(a.shift), AnyTyped(a.running_mean),
                    AnyTyped(a.running_variance), Access(a.out), static_cast<Wide>(epsilon));
              });
  launched("batch_norm_inference");
}

void launch_batch_norm_backward(cudaStream_t stream, const Channels& c, bool wide, void* memory,
                                const BatchNormBackwardArrays& a, double epsilon) {
  with_wide_access({a.x.dtype, a.dy.dtype, a.dx.dtype},
                   {a.scale.dtype, a.mean.dtype, a.variance.dtype, a.dscale.dtype, a.dshift.dtype}, wide,
                   [&](auto choice) {
                     using Access = typename decltype(choice)::Access;
                     using Wide = typename decltype(choice)::Wide;
                     const Scratch<Wide> scratch(memory, c);
                     auto* sums = reinterpret_cast<Pair<Wide>*>(scratch.first);
                     sum_channels(stream, c,
                                  GradientSums<Wide, Access>{Access(a.x), Access(a.dy), AnyTyped(a.mean),
                                                             AnyTyped(a.variance), static_cast<Wide>(epsilon)},
                                  scratch.partial, StoreGradients<Wide>{AnyTyped(a.dscale), AnyTyped(a.dshift), sums});
                     normalise_backward<Wide><<<blocks_for(c.elements(), kThreads), kThreads, 0, stream>>>(
                         c, c.elements(), Access(a.x), Access(a.dy), AnyTyped(a.scale), AnyTyped(a.mean),
                         AnyTyped(a.variance), Access(a.dx), sums, static_cast<Wide>(epsilon));
                     launched("batch_norm_backward");
                   });
}

void launch_batch_norm_inference_backward(cudaStream_t stream, const Channels& c, bool wide, void* memory,
                                          const BatchNormBackwardArrays& a, double epsilon) {
  with_wide_access({a.x.dtype, a.dy.dtype, a.dx.dtype},
                   {a.scale.dtype, a.mean.dtype, a.variance.dtype, a.dscale.dtype, a.dshift.dtype}, wide,
                   [&](auto choice) {
                     using Access = typename decltype(choice)::Access;
                     using Wide = typename decltype(choice)::Wide;
                     sum_channels(stream, c,
                                  GradientSums<Wide, Access>{Access(a.x), Access(a.dy), AnyTyped(a.mean),
                                                             AnyTyped(a.variance), static_cast<Wide>(epsilon)},
                                  Scratch<Wide>(memory, c).partial,
                                  StoreGradients<Wide>{AnyTyped(a.dscale), AnyTyped(a.dshift), nullptr});
                     scale_backward<Wide><<<blocks_for(c.elements(), kThreads), kThreads, 0, stream>>>(
                         c, c.elements(), Access(a.dy), AnyTyped(a.scale), AnyTyped(a.variance), Access(a.dx),
                         static_cast<Wide>(epsilon));
                     launched("batch_norm_inference_backward");
                   });
}

void launch_softmax_cross_entropy(cudaStream_t stream, uint32_t rows, uint32_t classes, bool wide, void* scratch,
                                  Array logits, const int32_t* labels, Array loss, Array log_probabilities) {
  with_wide_access({logits.dtype, log_probabilities.dtype}, {}, wide, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    auto* losses = static_cast<Wide*>(scratch);
    softmax_rows<Wide>
        <<<rows, kRowThreads, 0, stream>>>(classes, Access(logits), labels, Access(log_probabilities), losses);
    launched("softmax_cross_entropy");
    mean_of<Wide><<<1, kThreads, 0, stream>>>(rows, losses, AnyTyped(loss));
    launched("mean of losses");
  });
}

}  // namespace halfmark::kernels::cuda
