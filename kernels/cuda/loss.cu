// The element-wise losses.
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/channel_sums.cuh"
#include "kernels/cuda/maps.cuh"
#include "kernels/cuda/row_packs.cuh"
#include "kernels/number/error.h"
#include "kernels/ops/losses.h"

namespace halfmark::kernels::cuda {
namespace {

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
