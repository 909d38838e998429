// Cross-entropy with weights, smoothing and ignored labels. A label outside of the classes that is not the ignored one makes
// everything that depends on it NaN.
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/loss_packs.cuh"
#include "kernels/cuda/maps.cuh"
#include "kernels/ops/formulas.h"

namespace halfmark::kernels::cuda {
namespace {

// The place of the score of class c at a position (sample and pixel).
__device__ __forceinline__ uint32_t place_of(const Channels& s, uint32_t position, uint32_t c) {
  if (s.last) return position * s.channels + c;
  const uint32_t sample = position / s.pixels;
  return (sample * s.channels + c) * s.pixels + (position - sample * s.pixels);
}

// A block for each position, whose scores are neighbours but do not fit registers (loss_packs.cuh).
template <class Wide, class Access, class Out>
__global__ void __launch_bounds__(kMostRowThreads) cross_entropy_rows(LabelForm s, Access logits, const int32_t* labels,
                                                                      AnyTyped weights, Out logs, Terms<Wide>* terms) {
  __shared__ Wide shared[kMostWarps];
  const uint32_t row = blockIdx.x, classes = s.places.channels, start = row * classes;
  const int32_t label = labels[row];
  Wide top = minus_infinity<Wide>(), sum = 0, smooth = 0, at_label = 0;
  each_in_row<Wide>(logits, start, classes, classes, [&](uint32_t, Wide value) { top = Larger()(top, value); });
  top = over_block(top, shared, Larger());
  each_in_row<Wide>(logits, start, classes, classes, [&](uint32_t, Wide value) { sum += exp(value - top); });
  const Wide log_sum = log(over_block(sum, shared, Plus()));
  map_row<Wide>(logits, logs, start, classes, [&](uint32_t c, Wide value) {
    const Wide logarithm = formulas::log_softmax(value, top, log_sum);
    if (static_cast<int32_t>(c) == label) at_label = logarithm;
    if (s.smoothing != 0) smooth -= (weights.present() ? weights.load<Wide>(c) : Wide(1)) * logarithm;
    return logarithm;
  });
  at_label = over_block(at_label, shared, Plus());  // 0 in all threads but one
  if (s.smoothing != 0) smooth = over_block(smooth, shared, Plus());
  if (threadIdx.x == 0) terms[row] = terms_of(s, weights, label, at_label, smooth);
}

// A thread for each position, whose neighbours have neighbouring scores.
template <class Wide, class Access>
__global__ void __launch_bounds__(kMapThreads)
    cross_entropy_pixels(LabelForm s, uint32_t positions, Access logits, const int32_t* labels, AnyTyped weights,
                         Access logs, Terms<Wide>* terms) {
  const uint32_t position = blockIdx.x * kMapThreads + threadIdx.x, classes = s.places.channels;
  if (position >= positions) return;
  const uint32_t first = place_of(s.places, position, 0), step = s.places.last ? 1 : s.places.pixels;
  const int32_t label = labels[position];
  Wide top = minus_infinity<Wide>(), sum = 0, smooth = 0, at_label = 0;
  for (uint32_t c = 0; c < classes; ++c) top = Larger()(top, logits.template load<Wide>(first + c * step));
  for (uint32_t c = 0; c < classes; ++c) sum += exp(logits.template load<Wide>(first + c * step) - top);
  const Wide log_sum = log(sum);
  for (uint32_t c = 0; c < classes; ++c) {
    const Wide logarithm = formulas::log_softmax(logits.template load<Wide>(first + c * step), top, log_sum);
    if (static_cast<int32_t>(c) == label) at_label = logarithm;
    if (s.smoothing != 0) smooth -= (weights.present() ? weights.load<Wide>(c) : Wide(1)) * logarithm;
    logs.template store<Wide>(first + c * step, logarithm);
  }
  terms[position] = terms_of(s, weights, label, at_label, smooth);
}

constexpr uint32_t kTermsOfBlock = 4096;
// The sum of each kTermsOfBlock terms takes the place of the first of them.
template <class Wide>
__global__ void __launch_bounds__(kMapThreads) join_terms(uint32_t n, Terms<Wide>* terms) {
  __shared__ Wide shared[kMostWarps];
  const uint32_t first = blockIdx.x * kTermsOfBlock, end = n - first < kTermsOfBlock ? n : first + kTermsOfBlock;
  Wide sum = 0, weight = 0;
#pragma unroll 8
  for (uint32_t i = first + threadIdx.x; i < end; i += kMapThreads) sum += terms[i].loss, weight += terms[i].weight;
  sum = over_block(sum, shared, Plus()), weight = over_block(weight, shared, Plus());
  if (threadIdx.x == 0) terms[first] = {sum, weight};
}

// Of `n` terms, `step` apart.
template <class Wide>
__global__ void __launch_bounds__(kMostRowThreads)
    sum_terms(uint32_t n, uint32_t step, const Terms<Wide>* terms, AnyTyped loss, AnyTyped total) {
  __shared__ Wide shared[kMostWarps];
  Wide sum = 0, weight = 0;
  for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) sum += terms[i * step].loss, weight += terms[i * step].weight;
  sum = over_block(sum, shared, Plus()), weight = over_block(weight, shared, Plus());
  if (threadIdx.x != 0) return;
  loss.store<Wide>(0, sum / weight);
  if (total.present()) total.store<Wide>(0, weight);
}

template <class Wide>
void add_terms(cudaStream_t stream, uint32_t positions, Terms<Wide>* terms, const Array& loss, const Array& total) {
  uint32_t step = 1;
  if (positions > kTermsOfBlock) {
    step = kTermsOfBlock;
    join_terms<Wide><<<blocks_for(positions, step), kMapThreads, 0, stream>>>(positions, terms);
    launched("sums of cross-entropies");
  }
  const uint32_t parts = blocks_for(positions, step);
  sum_terms<Wide><<<1, row_threads(parts), 0, stream>>>(parts, step, terms, AnyTyped(loss), AnyTyped(total));
  launched("sum of cross-entropies");
}

template <class Wide>
__global__ void __launch_bounds__(kMostRowThreads) sum_of(uint32_t n, AnyTyped x, Wide* sum_of_x) {
  __shared__ Wide shared[kMostWarps];
  Wide sum = 0;
  for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) sum += x.load<Wide>(i);
  sum = over_block(sum, shared, Plus());
  if (threadIdx.x == 0) *sum_of_x = sum;
}

template <class Wide>
struct CrossEntropySlope {
  LabelForm s;
  const int32_t* labels;
  AnyTyped weights, total_weight;
  const Wide* all_weights;  // their sum; null: each is 1
  Wide dloss;
  __device__ Wide operator()(uint32_t i, Wide logarithm) const {
    uint32_t c, position;
    if (s.places.last) {
      position = i / s.places.channels, c = i - position * s.places.channels;
    } else {
      const uint32_t plane = i / s.places.pixels, sample = plane / s.places.channels;
      c = plane - sample * s.places.channels;
      position = sample * s.places.pixels + (i - plane * s.places.pixels);
    }
    return at(position)(c, logarithm);
  }

  // Of one position: what its classes have in common.
  struct Position {
    AnyTyped weights;
    int32_t label;
    bool is_ignored, is_class;
    Wide factor, soft, hard, all;
    __device__ Wide operator()(uint32_t c, Wide logarithm) const {
      if (is_ignored) return 0;
      if (!is_class) return not_a_number<Wide>();
      const Wide q = (static_cast<int32_t>(c) == label ? hard : Wide(0)) +
                     soft * (soft != 0 && weights.present() ? weights.load<Wide>(c) : Wide(1));
      return (exp(logarithm) * all - q) * factor;
    }
  };
  __device__ Position at(uint32_t position) const {
    Position p{weights, labels[position], false, false, 0, 0, 0, 0};
    p.is_ignored = p.label == s.ignored, p.is_class = static_cast<uint32_t>(p.label) < s.places.channels;
    p.factor = total_weight.present() ? dloss / total_weight.load<Wide>(0) : dloss;
    p.soft = static_cast<Wide>(s.smoothing / s.places.channels);
    const Wide weight = p.is_class && weights.present() ? weights.load<Wide>(p.label) : Wide(1);
    p.hard = static_cast<Wide>(1 - s.smoothing) * weight;
    p.all = p.hard + p.soft * (all_weights ? *all_weights : static_cast<Wide>(s.places.channels));
    return p;
  }
};

// A block for each position, as of cross_entropy_rows.
template <class Wide, class Access, class Out>
__global__ void __launch_bounds__(kMostRowThreads)
    cross_entropy_rows_backward(CrossEntropySlope<Wide> slope, Access logs, Out dlogits) {
  const uint32_t classes = slope.s.places.channels;
  const auto of_position = slope.at(blockIdx.x);
  map_row<Wide>(logs, dlogits, blockIdx.x * classes, classes,
                [&](uint32_t c, Wide logarithm) { return of_position(c, logarithm); });
}

bool has_f64(std::initializer_list<Array> operands) {
  return std::ranges::any_of(operands, [](const Array& one) { return one.data && one.dtype == DType::f64; });
}

}  // namespace

void launch_cross_entropy(cudaStream_t stream, const LabelForm& s, void* scratch, const CrossEntropyArrays& a) {
  const uint32_t positions = s.places.count();
  const bool is_double = has_f64({a.weights, a.loss, a.total_weight});
  if (s.places.last && !is_double && start_mixed(a.log_probabilities.dtype, a.logits.dtype, [&](auto half) {
        using Half = decltype(half);
        auto* terms = static_cast<Terms<float>*>(scratch);
        if (!start_cross_entropy_packs<float, Half, float>(stream, s, terms, a))
          cross_entropy_rows<float><<<positions, row_threads(s.places.channels), 0, stream>>>(
              s, Typed<Half>(a.logits), a.labels, AnyTyped(a.weights), Typed<float>(a.log_probabilities), terms);
        launched("cross_entropy");
        add_terms(stream, positions, terms, a.loss, a.total_weight);
        return true;
      }))
    return;
  with_access({a.logits.dtype, a.log_probabilities.dtype}, {a.weights.dtype, a.loss.dtype, a.total_weight.dtype},
              [&](auto choice) {
                using Access = typename decltype(choice)::Access;
                using Wide = typename decltype(choice)::Wide;
                auto* terms = static_cast<Terms<Wide>*>(scratch);
                using T = typename ElementOf<Access>::Type;
                bool fits = false;
                if constexpr (!std::is_void_v<T>) fits = start_cross_entropy_packs<Wide, T, T>(stream, s, terms, a);
                if (!fits && s.places.last)
                  cross_entropy_rows<Wide><<<positions, row_threads(s.places.channels), 0, stream>>>(
                      s, Access(a.logits), a.labels, AnyTyped(a.weights), Access(a.log_probabilities), terms);
                else if (!fits)
                  cross_entropy_pixels<Wide><<<blocks_for(positions, kMapThreads), kMapThreads, 0, stream>>>(
                      s, positions, Access(a.logits), a.labels, AnyTyped(a.weights), Access(a.log_probabilities),
                      terms);
                launched("cross_entropy");
                add_terms(stream, positions, terms, a.loss, a.total_weight);
              });
}

void launch_cross_entropy_backward(cudaStream_t stream, const LabelForm& s, void* scratch,
                                   const CrossEntropyBackwardArrays& a, double dloss) {
  const auto sum_of_weights = [&](auto wide) {
    using Wide = decltype(wide);
    if (!a.weights.data || s.smoothing == 0) return static_cast<Wide*>(nullptr);
    auto* sum = static_cast<Wide*>(scratch);
    sum_of<Wide><<<1, row_threads(s.places.channels), 0, stream>>>(s.places.channels, AnyTyped(a.weights), sum);
    launched("sum of weights");
    return sum;
  };
  const auto slope = [&](auto* all_weights) {
    using Wide = std::remove_pointer_t<decltype(all_weights)>;
    return CrossEntropySlope<Wide>{
        s, a.labels, AnyTyped(a.weights), AnyTyped(a.total_weight), all_weights, static_cast<Wide>(dloss)};
  };
  const auto start_rows = [&](auto* all_weights, auto logs, auto dlogits) {
    using Wide = std::remove_pointer_t<decltype(all_weights)>;
    cross_entropy_rows_backward<Wide>
        <<<s.places.count(), row_threads(s.places.channels), 0, stream>>>(slope(all_weights), logs, dlogits);
  };
  const bool is_double = has_f64({a.weights, a.total_weight});
  if (s.places.last && !is_double && start_mixed(a.log_probabilities.dtype, a.dlogits.dtype, [&](auto half) {
        using Half = decltype(half);
        float* const all_weights = sum_of_weights(0.0f);
        if (start_cross_entropy_packs_backward<float, float, Half>(stream, s, all_weights, a, dloss)) return true;
        if (s.places.channels < kMapThreads) return false;
        start_rows(all_weights, Typed<float>(a.log_probabilities), Typed<Half>(a.dlogits));
        return true;
      }))
    return launched("cross_entropy_backward");
  with_access({a.log_probabilities.dtype, a.dlogits.dtype}, {a.weights.dtype, a.total_weight.dtype}, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    Wide* const all_weights = sum_of_weights(Wide());
    using T = typename ElementOf<Access>::Type;
    if constexpr (!std::is_void_v<T>) {
      if (start_cross_entropy_packs_backward<Wide, T, T>(stream, s, all_weights, a, dloss)) return;
      if (s.places.last && s.places.channels >= kMapThreads)
        return start_rows(all_weights, Access(a.log_probabilities), Access(a.dlogits));
    }
    start_one<Wide>(stream, s.places.elements(), Access(a.log_probabilities), Access(a.dlogits), slope(all_weights));
  });
  launched("cross_entropy_backward");
}

}  // namespace halfmark::kernels::cuda
