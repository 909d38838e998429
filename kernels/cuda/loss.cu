// Cross-entropy with weights, smoothing and ignored labels, and the element-wise losses. A label outside of the classes
// that is not the ignored one makes everything that depends on it NaN.
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/channel_sums.cuh"
#include "kernels/cuda/loss_packs.cuh"
#include "kernels/cuda/maps.cuh"
#include "kernels/number/error.h"
#include "kernels/ops/losses.h"

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

constexpr uint32_t kPerThread = 8;  // values of a sum, at least
constexpr uint32_t kMostParts = 4096;
// Depends on the number of elements alone.
uint32_t parts_of(uint32_t n) {
  const uint32_t parts = blocks_for(n, kMapThreads * kPerThread);
  return parts < kMostParts ? parts : kMostParts;
}

// A target outside of 0 to 1 makes the base negative, whose powers with whole exponents are numbers.
template <class T>
__device__ T power(T base, T exponent) {
  if (exponent >= 0 && exponent <= 1024 && exponent == floor(exponent)) {
    T product = 1;
    for (auto rest = static_cast<uint32_t>(exponent); rest != 0; rest /= 2, base *= base)
      if (rest % 2 == 1) product *= base;
    return product;
  }
  // In fp64 the library's power is a call of a function, which costs more than all else here.
  if constexpr (sizeof(T) == sizeof(double)) return exp(exponent * log(base));
  return pow(base, exponent);
}

// A row of losses.h on the device.
template <class Row>
struct OnDevice : Row {};
template <>
struct OnDevice<losses::SmoothL1> : losses::SmoothL1 {  // with 1 / beta as the second argument
  template <class T>
  __device__ static T value(T x, T y, T beta, T inverse) {
    const T d = fabs(x - y);
    return d < beta ? T(0.5) * d * (d * inverse) : d - T(0.5) * beta;
  }
};
template <>
struct OnDevice<losses::Focal> : losses::Focal {  // with the power above
  template <class T>
  __device__ static T value(T x, T y, T alpha, T gamma) {
    return weight(y, alpha) * power(missed(x, y), gamma) * cross_entropy(x, y);
  }
  template <class T>
  __device__ static T slope(T x, T y, T alpha, T gamma) {
    const T high = formulas::sigmoid(x), low = formulas::sigmoid(-x), q = missed(x, y);
    const T outer = power(q, gamma) * ((T(1) - y) * high - y * low);
    const T inner = q == 0 || gamma == 0
                        ? T(0)
                        : gamma * power(q, gamma - T(1)) * ((T(1) - T(2) * y) * high * low) * cross_entropy(x, y);
    return weight(y, alpha) * (outer + inner);
  }
};

// The second argument of a value. For smooth L1 it is 1 / beta, at most the largest finite number: beta = 0 gives no infinity.
template <class Wide, class Row>
Wide second_argument(double a, double b) {
  if constexpr (std::is_same_v<Row, losses::SmoothL1>) {
    const double most = std::numeric_limits<Wide>::max();
    return static_cast<Wide>(1 / a > most ? most : 1 / a);
  }
  return static_cast<Wide>(b);
}

// A value or a slope times its weight; what has none does not count, be it infinite.
template <class Wide>
__device__ __forceinline__ Wide weighted(Wide x, Wide weight) {
  return weight != 0 ? x * weight : Wide(0);
}

// The same for a pack of values, if there are weights.
template <class Wide, class T>
__device__ __forceinline__ void weigh_pack(const Typed<T>& weights, uint32_t number, Wide* x) {
  if (!weights.present()) return;
  const Pack<T> weight = load_pack(weights.data, number);
#pragma unroll
  for (uint32_t k = 0; k < kPack<T>; ++k) x[k] = weighted(x[k], Wide(plain(weight[k])));
}

// packs: how many packs of each operand are read as such; the values behind them are read one at a time.
template <class Wide, class Row, class Access>
__global__ void __launch_bounds__(kMapThreads)
    element_loss(uint32_t n, uint32_t packs, Access x, Access y, Access weights, Wide a, Wide b, Wide* parts) {
  using T = typename ElementOf<Access>::Type;
  __shared__ Wide shared[kMostWarps];
  const uint32_t first = blockIdx.x * kMapThreads + threadIdx.x, step = gridDim.x * kMapThreads;
  Wide sum = 0;
  uint32_t done = 0;
  if constexpr (!std::is_void_v<T>) {
    constexpr uint32_t N = kPack<T>;
    done = packs * N;
#pragma unroll 1
    for (uint32_t i = first; i < packs; i += step) {
      const Pack<T> left = load_pack(x.data, i), right = load_pack(y.data, i);
      Wide value[N];
#pragma unroll
      for (uint32_t k = 0; k < N; ++k)
        value[k] = OnDevice<Row>::template value<Wide>(plain(left[k]), plain(right[k]), a, b);
      weigh_pack(weights, i, value);
#pragma unroll
      for (uint32_t k = 0; k < N; ++k) sum += value[k];
    }
  }
#pragma unroll 1
  for (uint32_t i = done + first; i < n; i += step) {
    const Wide weight = weights.present() ? weights.template load<Wide>(i) : Wide(1);
    sum +=
        weighted(OnDevice<Row>::template value<Wide>(x.template load<Wide>(i), y.template load<Wide>(i), a, b), weight);
  }
  sum = over_block(sum, shared, Plus());
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

template <class Wide>
__global__ void __launch_bounds__(kMostRowThreads)
    finish_loss(uint32_t n, const Wide* parts, Wide count, AnyTyped loss) {
  __shared__ Wide shared[kMostWarps];
  Wide sum = 0;
  for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) sum += parts[i];
  sum = over_block(sum, shared, Plus());
  if (threadIdx.x == 0) loss.store<Wide>(0, sum / count);
}

template <class Wide, class Row, class Access>
__global__ void __launch_bounds__(kMapThreads) element_slope(uint32_t n, uint32_t packs, Access x, Access y,
                                                             Access weights, Access out, Wide a, Wide b, Wide factor) {
  using T = typename ElementOf<Access>::Type;
  uint32_t i = blockIdx.x * kMapThreads + threadIdx.x;
  if constexpr (!std::is_void_v<T>) {
    constexpr uint32_t N = kPack<T>;
    if (i < packs) {
      const Pack<T> left = load_pack(x.data, i), right = load_pack(y.data, i);
      Wide slope[N];
#pragma unroll
      for (uint32_t k = 0; k < N; ++k)
        slope[k] = OnDevice<Row>::template slope<Wide>(plain(left[k]), plain(right[k]), a, b);
      weigh_pack(weights, i, slope);
#pragma unroll
      for (uint32_t k = 0; k < N; ++k) slope[k] *= factor;
      store_pack(out.data, i, slope);
      return;
    }
    i += packs * (N - 1);
  }
  if (i >= n) return;
  const Wide weight = weights.present() ? weights.template load<Wide>(i) : Wide(1);
  out.template store<Wide>(
      i,
      weighted(OnDevice<Row>::template slope<Wide>(x.template load<Wide>(i), y.template load<Wide>(i), a, b), weight) *
          factor);
}

// How many whole packs the operands have; 0 if they do not all start at one.
template <class Access>
uint32_t packs_of(uint32_t n, std::initializer_list<Array> operands) {
  using T = typename ElementOf<Access>::Type;
  if constexpr (std::is_void_v<T>) {
    return 0;
  } else {
    for (const Array& one : operands)
      if (!starts_pack(one.data)) return 0;
    return n / kPack<T>;
  }
}

// f(row) with the row of that number in the list of losses.
template <class... Rows, class F>
void with_loss(activations::List<Rows...>, size_t loss, F&& f) {
  size_t number = 0;
  const bool found = ((number++ == loss && (f(Rows{}), true)) || ...);
  HM_CHECK(found, "no loss has number " + std::to_string(loss));
}

}  // namespace

void launch_cross_entropy(cudaStream_t stream, const LabelForm& s, void* scratch, const CrossEntropyArrays& a) {
  const uint32_t positions = s.places.count();
  const bool is_double = a.weights.data && a.weights.dtype == DType::f64;
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
  const bool is_double = a.weights.data && a.weights.dtype == DType::f64;
  if (s.places.last && !is_double && start_mixed(a.log_probabilities.dtype, a.dlogits.dtype, [&](auto half) {
        using Half = decltype(half);
        float* const all_weights = sum_of_weights(0.0f);
        if (!start_cross_entropy_packs_backward<float, float, Half>(stream, s, all_weights, a, dloss))
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

size_t element_loss_scratch(uint32_t n) { return parts_of(n); }

void launch_element_loss(cudaStream_t stream, size_t loss, uint32_t n, bool wide, void* scratch,
                         const ElementLossArrays& a, double first, double second) {
  const DType weights = a.weights.data ? a.weights.dtype : a.output.dtype;
  with_loss(losses::All{}, loss, [&](auto row) {
    with_wide_access({a.output.dtype, a.target.dtype, weights}, {a.result.dtype}, wide, [&](auto choice) {
      using Access = typename decltype(choice)::Access;
      using Wide = typename decltype(choice)::Wide;
      auto* parts = static_cast<Wide*>(scratch);
      element_loss<Wide, decltype(row)><<<parts_of(n), kMapThreads, 0, stream>>>(
          n, packs_of<Access>(n, {a.output, a.target, a.weights}), Access(a.output), Access(a.target),
          Access(a.weights), static_cast<Wide>(first), second_argument<Wide, decltype(row)>(first, second), parts);
      launched("element-wise loss");
      finish_loss<Wide><<<1, row_threads(parts_of(n)), 0, stream>>>(
          parts_of(n), parts, a.weights.data ? Wide(1) : static_cast<Wide>(n), AnyTyped(a.result));
      launched("sum of an element-wise loss");
    });
  });
}

void launch_element_loss_backward(cudaStream_t stream, size_t loss, uint32_t n, bool wide, const ElementLossArrays& a,
                                  double first, double second, double factor) {
  const DType weights = a.weights.data ? a.weights.dtype : a.output.dtype;
  with_loss(losses::All{}, loss, [&](auto row) {
    with_wide_access({a.output.dtype, a.target.dtype, weights, a.result.dtype}, {}, wide, [&](auto choice) {
      using Access = typename decltype(choice)::Access;
      using Wide = typename decltype(choice)::Wide;
      using T = typename ElementOf<Access>::Type;
      const uint32_t packs = packs_of<Access>(n, {a.output, a.target, a.weights, a.result});
      uint32_t threads = n;
      if constexpr (!std::is_void_v<T>) threads = n - packs * (kPack<T> - 1);
      element_slope<Wide, decltype(row)><<<blocks_for(threads, kMapThreads), kMapThreads, 0, stream>>>(
          n, packs, Access(a.output), Access(a.target), Access(a.weights), Access(a.result), static_cast<Wide>(first),
          static_cast<Wide>(second), static_cast<Wide>(factor));
      launched("backward of an element-wise loss");
    });
  });
}

}  // namespace halfmark::kernels::cuda
