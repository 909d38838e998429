// What attention does between its products, which are those of another row (attention.cpp): the softmax of rows of scores,
// and the derivatives of scores.
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/maps.cuh"
#include "kernels/cuda/row_packs.cuh"
#include "kernels/cuda/softmax_packs.cuh"

namespace halfmark::kernels::cuda {
namespace {

struct Query {
  uint32_t head, query, seen;
  __device__ Query(const HeadRows& h, uint32_t row)
      : head(h.first + row / h.form.t),
        query(row % h.form.t),
        seen(h.form.causal ? min(h.form.s, query + 1) : h.form.s) {}
  // The score of a key, of which the product is given.
  template <class Wide>
  __device__ __forceinline__ Wide score(const AttentionForm& form, uint32_t key, Wide product) const {
    if (key >= seen) return minus_infinity<Wide>();
    return static_cast<Wide>(form.scale) * product + added<Wide>(form.mask, head, query, key);
  }
};

template <uint32_t kCount, class T, class Wide>
__device__ __forceinline__ void store_neighbours(T* to, const Wide* x) {
  Neighbours<T, kCount> made;
#pragma unroll
  for (uint32_t k = 0; k < kCount; ++k) narrow(x[k], made.values[k]);
  made.write(to);
}

// A thread reads the scores whose places it writes.
template <class Wide, class T, uint32_t kPacks, bool kOfWarp>
__global__ void __launch_bounds__(kOfWarp ? kWarpRowThreads : kMostPackThreads)
    weights_packs(HeadRows h, uint32_t lanes, const Wide* scores, T* weights, Wide* log_sum) {
  constexpr uint32_t N = kPack<Wide>;
  __shared__ Wide shared[kMostWarps];
  const RowThreads<kOfWarp> me(lanes);
  const Query query(h, me.row);
  const bool present = me.row < h.rows;
  const uint32_t all = h.form.s / N, packs = present ? all : 0, seen = min(packs, (query.seen + N - 1) / N);
  Wide value[kPacks * N], sum = 0;
  Largest<Wide> largest;
  load_row<kPacks>(me, scores, me.row * all, seen, value);
  each_pack<kPacks, N>(me, seen, [&](uint32_t v, uint32_t number) {
#pragma unroll
    for (uint32_t k = 0; k < N; ++k) value[v + k] = query.score(h.form, number * N + k, value[v + k]);
#pragma unroll
    for (uint32_t k = 0; k < N; k += 2) largest.add(value[v + k], value[v + k + 1]);
  });
  const Wide top = me.over(largest.value(), shared, Larger());
  each_pack<kPacks, N>(me, seen, [&](uint32_t v, uint32_t) {
#pragma unroll
    for (uint32_t k = 0; k < N; ++k) sum += value[v + k] = exp(value[v + k] - top);
  });
  sum = me.over(sum, shared, Plus());
  const bool nothing = top == minus_infinity<Wide>();
  const Wide inverse = Wide(1) / sum;
  each_pack<kPacks, N>(me, packs, [&](uint32_t v, uint32_t number) {
    const bool zero = nothing || number >= seen;
#pragma unroll
    for (uint32_t k = 0; k < N; ++k) value[v + k] = zero ? Wide(0) : quotient(value[v + k], sum, inverse);
    store_neighbours<N>(weights + (me.row * all + number) * N, value + v);
  });
  if (present && me.lane == 0) log_sum[h.first * h.form.t + me.row] = nothing ? top : top + log(sum);
}

// Rows of other lengths, read three times.
template <class Wide, class T>
__global__ void __launch_bounds__(kMostRowThreads)
    weights_loop(HeadRows h, const Wide* scores, T* weights, Wide* log_sum) {
  __shared__ Wide shared[kMostWarps];
  const uint32_t start = blockIdx.x * h.form.s;
  const Query query(h, blockIdx.x);
  const auto score = [&](uint32_t key) { return query.score(h.form, key, scores[start + key]); };
  Wide top = minus_infinity<Wide>(), sum = 0;
  for (uint32_t key = threadIdx.x; key < query.seen; key += blockDim.x) top = Larger()(top, score(key));
  top = over_block(top, shared, Larger());
  for (uint32_t key = threadIdx.x; key < query.seen; key += blockDim.x) sum += exp(score(key) - top);
  sum = over_block(sum, shared, Plus());
  const bool nothing = top == minus_infinity<Wide>();
  for (uint32_t key = threadIdx.x; key < h.form.s; key += blockDim.x)
    narrow(nothing || key >= query.seen ? Wide(0) : exp(score(key) - top) / sum, weights[start + key]);
  if (threadIdx.x == 0) log_sum[h.first * h.form.t + blockIdx.x] = nothing ? top : top + log(sum);
}

template <class Wide, class T>
void start_weights(cudaStream_t stream, const HeadRows& h, const Wide* scores, T* weights, Wide* log_sum) {
  const RowShape shape = row_shape(h.rows, h.form.s, kPack<Wide>);
  if (!shape.fits) {
    weights_loop<<<h.rows, row_threads(h.form.s), 0, stream>>>(h, scores, weights, log_sum);
    return;
  }
  with_row_shape(shape, [&](auto packs, auto of_warp) {
    weights_packs<Wide, T, packs(), of_warp()>
        <<<shape.blocks, shape.threads, 0, stream>>>(h, shape.lanes, scores, weights, log_sum);
  });
}

// kCount pairs of one query and neighbouring keys by each thread.
template <uint32_t kCount, class Wide, class T>
__global__ void __launch_bounds__(kMapThreads)
    slopes_map(HeadRows h, uint32_t n, const Wide* scores, const Wide* slopes, const Wide* log_sum, const Wide* along,
               T* weights, T* derivatives) {
  const uint32_t i = (blockIdx.x * kMapThreads + threadIdx.x) * kCount;
  if (i >= n) return;
  const uint32_t row = i / h.form.s, key = i - row * h.form.s;
  const Query query(h, row);
  const Wide logarithm = log_sum[h.first * h.form.t + row], along_row = along[h.first * h.form.t + row];
  const Wide scale = static_cast<Wide>(h.form.scale);
  Wide product[kCount], slope[kCount];
  if constexpr (kCount == kPack<Wide>) {
    widen_pack(load_pack(scores, i / kCount), product), widen_pack(load_pack(slopes, i / kCount), slope);
  } else {
    product[0] = scores[i], slope[0] = slopes[i];
  }
#pragma unroll
  for (uint32_t k = 0; k < kCount; ++k) {
    const bool none = key + k >= query.seen || logarithm == minus_infinity<Wide>();
    const Wide p = none ? Wide(0) : exp(query.score(h.form, key + k, product[k]) - logarithm);
    product[k] = p, slope[k] = none ? Wide(0) : scale * p * (slope[k] - along_row);
  }
  if constexpr (kCount == kPack<Wide>) {
    store_neighbours<kCount>(weights + i, product), store_neighbours<kCount>(derivatives + i, slope);
  } else {
    narrow(product[0], weights[i]), narrow(slope[0], derivatives[i]);
  }
}

// f(Wide(), T()) for weights of type T.
template <class F>
void with_types(bool wide, DType weights, F f) {
  with_access({weights}, {wide ? DType::f64 : weights}, [&](auto choice) {
    using Wide = typename decltype(choice)::Wide;
    using T = typename ElementOf<typename decltype(choice)::Access>::Type;
    if constexpr (!std::is_void_v<T>)
      if constexpr ((sizeof(T) == 8) == (sizeof(Wide) == 8)) f(Wide(), T());
  });
}

}  // namespace

void launch_attention_weights(cudaStream_t stream, const HeadRows& h, bool wide, const void* scores, Array weights,
                              void* log_sum) {
  with_types(wide, weights.dtype, [&](auto one, auto of_weights) {
    start_weights(stream, h, static_cast<const decltype(one)*>(scores),
                  static_cast<decltype(of_weights)*>(weights.data), static_cast<decltype(one)*>(log_sum));
  });
  launched("attention: weights");
}

void launch_attention_along(cudaStream_t stream, uint32_t rows, uint32_t d, bool wide, Array out, Array dout,
                            void* along) {
  with_access({out.dtype, dout.dtype}, {wide ? DType::f64 : out.dtype}, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    start_along_rows(stream, rows, d, Access(out), Access(dout), static_cast<Wide*>(along));
  });
  launched("attention_backward: rows");
}

void launch_attention_slopes(cudaStream_t stream, const HeadRows& h, bool wide, const void* scores, const void* slopes,
                             const void* log_sum, const void* along, Array weights, Array derivatives) {
  const uint32_t n = h.rows * h.form.s;
  with_types(wide, weights.dtype, [&](auto one, auto of_weights) {
    using Wide = decltype(one);
    using T = decltype(of_weights);
    const auto start = [&](auto count) {
      slopes_map<count()><<<blocks_for(n, kMapThreads * count()), kMapThreads, 0, stream>>>(
          h, n, static_cast<const Wide*>(scores), static_cast<const Wide*>(slopes), static_cast<const Wide*>(log_sum),
          static_cast<const Wide*>(along), static_cast<T*>(weights.data), static_cast<T*>(derivatives.data));
    };
    if (h.form.s % kPack<Wide> == 0)
      start(std::integral_constant<uint32_t, kPack<Wide>>{});
    else
      start(std::integral_constant<uint32_t, 1>{});
  });
  launched("attention_backward: slopes");
}

}  // namespace halfmark::kernels::cuda
