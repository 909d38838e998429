// Attention by plain loops, for tests and for what no library supports: a block for each query (for each key in the gradients
// of keys and values), which takes as many partners at a time as it has threads. Sums are in the order of the partners.
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/arrays.cuh"
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/maps.cuh"
#include "kernels/cuda/row_packs.cuh"

namespace halfmark::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 128;

template <class Wide>
struct PlusMask {
  ScoreMask mask;
  uint32_t t;
  __device__ Wide operator()(uint32_t i, Wide x) const {
    const uint32_t row = i / mask.keys, head = row / t;
    return x + added<Wide>(mask, head, row - head * t, i - row * mask.keys);
  }
};

// The same for whole packs of scores. All of a pack are of one query.
template <class Wide, class T>
__global__ void __launch_bounds__(kMapThreads)
    mask_packs(uint32_t packs, uint32_t t, ScoreMask mask, const T* scores, T* out) {
  constexpr uint32_t N = kPack<T>;
  struct alignas(N) Bytes {
    uint8_t values[N];
  };
  const uint32_t pack = blockIdx.x * kMapThreads + threadIdx.x, i = pack * N;
  if (pack >= packs) return;
  const uint32_t row = i / mask.keys, head = row / t, query = row - head * t;
  const uint32_t place =
      (head / mask.heads * mask.queries + (mask.queries == 1 ? 0 : query)) * mask.keys + (i - row * mask.keys);
  Wide value[N], plus[N];
  const Pack<T> raw = load_pack(scores, pack);
  if (mask.is_bytes) {
    const Bytes kept = static_cast<const Bytes*>(mask.data)[place / N];
#pragma unroll
    for (uint32_t k = 0; k < N; ++k) plus[k] = kept.values[k] ? Wide(0) : minus_infinity<Wide>();
  } else {
    load_values<T, N>(AnyTyped(Array{mask.data, mask.dtype}), place, plus);
  }
  widen_pack(raw, value);
#pragma unroll
  for (uint32_t k = 0; k < N; ++k) value[k] += plus[k];
  store_pack(out, pack, value);
}

// Returns whether it has started.
template <class Wide, class T>
bool start_mask_packs(cudaStream_t stream, uint32_t n, uint32_t t, const ScoreMask& mask, const Array& scores,
                      const Array& out) {
  constexpr uint32_t N = kPack<T>;
  const bool mask_fits = mask.is_bytes ? reinterpret_cast<uintptr_t>(mask.data) % N == 0
                                       : has_packs<T, Wide>(Array{mask.data, mask.dtype});
  if (mask.keys % N != 0 || !mask_fits || !starts_pack(scores.data) || !starts_pack(out.data)) return false;
  mask_packs<Wide, T><<<blocks_for(n / N, kMapThreads), kMapThreads, 0, stream>>>(
      n / N, t, mask, static_cast<const T*>(scores.data), static_cast<T*>(out.data));
  return true;
}

template <class Wide, class Access>
__device__ Wide dot(const Access& a, uint32_t at_a, const Access& b, uint32_t at_b, uint32_t count) {
  Wide sum = 0;
#pragma unroll 1
  for (uint32_t e = 0; e < count; ++e) sum = fma(a.template load<Wide>(at_a + e), b.template load<Wide>(at_b + e), sum);
  return sum;
}

// The largest score and the sum of the exponentials so far are rescaled when a larger score comes.
template <class Wide, class Access>
__global__ void __launch_bounds__(kThreads)
    attention(AttentionForm s, Access q, Access k, Access v, Access out, AnyTyped log_sum) {
  extern __shared__ double memory[];
  __shared__ Wide shared[kMostWarps], weights[kThreads];
  Wide* sums = reinterpret_cast<Wide*>(memory);  // of the d features
  const uint32_t row = blockIdx.x, head = row / s.t, query = row - head * s.t;
  const uint32_t seen = s.causal ? min(s.s, query + 1) : s.s;
  for (uint32_t e = threadIdx.x; e < s.d; e += kThreads) sums[e] = 0;
  Wide top = minus_infinity<Wide>(), total = 0;
  for (uint32_t first = 0; first < seen; first += kThreads) {
    const uint32_t key = first + threadIdx.x;
    Wide score = minus_infinity<Wide>();
    if (key < seen)
      score = static_cast<Wide>(s.scale) * dot<Wide>(q, row * s.d, k, (head * s.s + key) * s.d, s.d) +
              added<Wide>(s.mask, head, query, key);
    const Wide largest = Larger()(top, over_block(score, shared, Larger()));
    const bool nothing = largest == minus_infinity<Wide>();
    const Wide shrink = nothing ? Wide(1) : exp(top - largest);
    const Wide weight = nothing || key >= seen ? Wide(0) : exp(score - largest);
    total = total * shrink + over_block(weight, shared, Plus());
    top = largest;
    weights[threadIdx.x] = weight;
    __syncthreads();
    const uint32_t partners = min(seen - first, kThreads);
    for (uint32_t e = threadIdx.x; e < s.d; e += kThreads) {
      Wide sum = sums[e] * shrink;
      for (uint32_t j = 0; j < partners; ++j)
        sum = fma(weights[j], v.template load<Wide>((head * s.s + first + j) * s.d + e), sum);
      sums[e] = sum;
    }
    __syncthreads();
  }
  const bool nothing = top == minus_infinity<Wide>();
  for (uint32_t e = threadIdx.x; e < s.d; e += kThreads)
    out.template store<Wide>(row * s.d + e, nothing ? Wide(0) : sums[e] / total);
  if (threadIdx.x == 0) log_sum.store<Wide>(row, nothing ? top : top + log(total));
}

// The probability of a pair and the derivative of its score.
template <class Wide>
struct PairOf {
  Wide p, ds;
};
template <class Wide, class Access>
__device__ PairOf<Wide> pair_of(const AttentionForm& s, const AttentionBackwardViews& a, const Wide* along,
                                uint32_t head, uint32_t query, uint32_t key) {
  const uint32_t row = head * s.t + query, other = (head * s.s + key) * s.d;
  const Access q(a.q), k(a.k), v(a.v), dout(a.dout);
  const AnyTyped log_sum(a.log_sum);
  const Wide logarithm = log_sum.load<Wide>(row);
  if (logarithm == minus_infinity<Wide>()) return {0, 0};
  const Wide scale = static_cast<Wide>(s.scale);
  const Wide p =
      exp(scale * dot<Wide>(q, row * s.d, k, other, s.d) + added<Wide>(s.mask, head, query, key) - logarithm);
  return {p, scale * p * (dot<Wide>(dout, row * s.d, v, other, s.d) - along[row])};
}

template <class Wide, class Access>
__global__ void __launch_bounds__(kThreads)
    attention_backward_queries(AttentionForm s, AttentionBackwardViews a, const Wide* along) {
  extern __shared__ double memory[];
  __shared__ Wide slopes[kThreads];
  Wide* sums = reinterpret_cast<Wide*>(memory);
  const uint32_t row = blockIdx.x, head = row / s.t, query = row - head * s.t;
  const uint32_t seen = s.causal ? min(s.s, query + 1) : s.s;
  const Access k(a.k), dq(a.dq);
  for (uint32_t e = threadIdx.x; e < s.d; e += kThreads) sums[e] = 0;
  for (uint32_t first = 0; first < seen; first += kThreads) {
    const uint32_t key = first + threadIdx.x;
    slopes[threadIdx.x] = key < seen ? pair_of<Wide, Access>(s, a, along, head, query, key).ds : Wide(0);
    __syncthreads();
    const uint32_t partners = min(seen - first, kThreads);
    for (uint32_t e = threadIdx.x; e < s.d; e += kThreads) {
      Wide sum = sums[e];
      for (uint32_t j = 0; j < partners; ++j)
        sum = fma(slopes[j], k.template load<Wide>((head * s.s + first + j) * s.d + e), sum);
      sums[e] = sum;
    }
    __syncthreads();
  }
  for (uint32_t e = threadIdx.x; e < s.d; e += kThreads) dq.template store<Wide>(row * s.d + e, sums[e]);
}

template <class Wide, class Access>
__global__ void __launch_bounds__(kThreads)
    attention_backward_keys(AttentionForm s, AttentionBackwardViews a, const Wide* along) {
  extern __shared__ double memory[];
  __shared__ Wide slopes[kThreads], weights[kThreads];
  Wide *key_sums = reinterpret_cast<Wide*>(memory), *value_sums = key_sums + s.d;
  const uint32_t row = blockIdx.x, head = row / s.s, key = row - head * s.s;
  const uint32_t begin = s.causal ? min(key, s.t) : 0;  // the first query that attends to the key
  const Access q(a.q), dout(a.dout), dk(a.dk), dv(a.dv);
  for (uint32_t e = threadIdx.x; e < s.d; e += kThreads) key_sums[e] = 0, value_sums[e] = 0;
  for (uint32_t first = begin; first < s.t; first += kThreads) {
    const uint32_t query = first + threadIdx.x;
    PairOf<Wide> pair{0, 0};
    if (query < s.t) pair = pair_of<Wide, Access>(s, a, along, head, query, key);
    slopes[threadIdx.x] = pair.ds, weights[threadIdx.x] = pair.p;
    __syncthreads();
    const uint32_t partners = min(s.t - first, kThreads);
    for (uint32_t e = threadIdx.x; e < s.d; e += kThreads) {
      Wide of_key = key_sums[e], of_value = value_sums[e];
      for (uint32_t j = 0; j < partners; ++j) {
        const uint32_t place = (head * s.t + first + j) * s.d + e;
        of_key = fma(slopes[j], q.template load<Wide>(place), of_key);
        of_value = fma(weights[j], dout.template load<Wide>(place), of_value);
      }
      key_sums[e] = of_key, value_sums[e] = of_value;
    }
    __syncthreads();
  }
  for (uint32_t e = threadIdx.x; e < s.d; e += kThreads) {
    dk.template store<Wide>(row * s.d + e, key_sums[e]);
    dv.template store<Wide>(row * s.d + e, value_sums[e]);
  }
}

template <class Wide, class Access>
void start_backward(cudaStream_t stream, uint32_t heads, const AttentionForm& s, void* scratch,
                    const AttentionBackwardViews& a) {
  auto* along = static_cast<Wide*>(scratch);
  start_along_rows(stream, heads * s.t, s.d, Access(a.out), Access(a.dout), along);
  launched("attention_backward: rows");
  const size_t memory = s.d * sizeof(double);
  attention_backward_queries<Wide, Access><<<heads * s.t, kThreads, memory, stream>>>(s, a, along);
  launched("attention_backward: queries");
  attention_backward_keys<Wide, Access><<<heads * s.s, kThreads, 2 * memory, stream>>>(s, a, along);
  launched("attention_backward: keys");
}

}  // namespace

void launch_mask_scores(cudaStream_t stream, uint32_t n, uint32_t t, const ScoreMask& mask, Array scores, Array out) {
  with_access({scores.dtype, out.dtype}, {mask.is_bytes ? scores.dtype : mask.dtype}, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    using T = typename ElementOf<Access>::Type;
    if constexpr (!std::is_void_v<T>)
      if (start_mask_packs<Wide, T>(stream, n, t, mask, scores, out)) return;
    start_one<Wide>(stream, n, Access(scores), Access(out), PlusMask<Wide>{mask, t});
  });
  launched("mask_scores");
}

void launch_attention(cudaStream_t stream, uint32_t heads, const AttentionForm& s, bool wide, Array q, Array k, Array v,
                      Array out, Array log_sum) {
  with_access({q.dtype, k.dtype, v.dtype, out.dtype}, {wide ? DType::f64 : q.dtype}, [&](auto choice) {
    using Access = typename decltype(choice)::Access;
    using Wide = typename decltype(choice)::Wide;
    attention<Wide><<<heads * s.t, kThreads, s.d * sizeof(double), stream>>>(s, Access(q), Access(k), Access(v),
                                                                             Access(out), AnyTyped(log_sum));
  });
  launched("attention");
}

void launch_attention_backward(cudaStream_t stream, uint32_t heads, const AttentionForm& s, bool wide, void* scratch,
                               const AttentionBackwardViews& a) {
  with_access({a.q.dtype, a.k.dtype, a.v.dtype, a.out.dtype, a.dout.dtype, a.dq.dtype, a.dk.dtype, a.dv.dtype},
              {wide ? DType::f64 : a.q.dtype}, [&](auto choice) {
                using Access = typename decltype(choice)::Access;
                using Wide = typename decltype(choice)::Wide;
                start_backward<Wide, Access>(stream, heads, s, scratch, a);
              });
}

}  // namespace halfmark::kernels::cuda
