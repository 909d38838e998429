// Cross-entropy of positions whose scores are neighbours and stay in registers.
#pragma once

#include <cstdint>

#include "kernels/cuda/row_packs.cuh"
#include "kernels/ops/formulas.h"

namespace halfmark::kernels::cuda {

// What a position adds to the loss and to the weight.
template <class Wide>
struct Terms {
  Wide loss, weight;
};

__device__ __forceinline__ bool is_class(const LabelForm& s, int32_t label) {
  return static_cast<uint32_t>(label) < s.places.channels;
}

template <class Wide>
__device__ Terms<Wide> terms_of(const LabelForm& s, const AnyTyped& weights, int32_t label, Wide at_label,
                                Wide smooth) {
  if (label == s.ignored) return {0, 0};
  if (!is_class(s, label)) return {not_a_number<Wide>(), not_a_number<Wide>()};
  const Wide weight = weights.present() ? weights.load<Wide>(label) : Wide(1);
  Wide loss = 0;
  if (s.smoothing != 1) loss -= static_cast<Wide>(1 - s.smoothing) * weight * at_label;
  if (s.smoothing != 0) loss += static_cast<Wide>(s.smoothing / s.places.channels) * smooth;
  return {loss, weight};
}

// The logarithms have the type of the logits, or a wider one.
template <class Wide, class T, class Out, uint32_t kPacks, bool kOfWarp>
__global__ void __launch_bounds__(kOfWarp ? kWarpRowThreads : kMostPackThreads)
    cross_entropy_packs(LabelForm s, uint32_t rows, uint32_t lanes, const T* logits, const int32_t* labels,
                        AnyTyped weights, Out* logs, Terms<Wide>* terms) {
  constexpr uint32_t N = kPack<T>;
  __shared__ Wide shared[kMostWarps];
  const RowThreads<kOfWarp> me(lanes);
  const uint32_t all = s.places.channels / N, packs = me.row < rows ? all : 0;
  const int32_t label = me.row < rows ? labels[me.row] : 0;
  Wide sum = 0, smooth = 0, at_label = 0;
  Largest<Wide> largest;
  Pack<T> raw[kPacks];
  each_pack<kPacks, 1>(me, packs,
                       [&](uint32_t p, uint32_t number) { raw[p] = load_pack(logits, me.row * all + number); });
  each_pack<kPacks, 1>(me, packs, [&](uint32_t p, uint32_t) {
#pragma unroll
    for (uint32_t k = 0; k < N; k += 2) largest.add(plain(raw[p][k]), plain(raw[p][k + 1]));
  });
  const Wide top = me.over(largest.value(), shared, Larger());
  each_pack<kPacks, 1>(me, packs, [&](uint32_t p, uint32_t) {
#pragma unroll
    for (uint32_t k = 0; k < N; ++k) sum += exp(plain(raw[p][k]) - top);
  });
  const Wide log_sum = log(me.over(sum, shared, Plus()));
  // One thread has the score of the label, and reports; of a label that is no class the first one does.
  bool reports = me.row < rows && me.lane == 0 && !is_class(s, label);
  each_pack<kPacks, 1>(me, packs, [&](uint32_t p, uint32_t number) {
    Wide result[N];
#pragma unroll
    for (uint32_t k = 0; k < N; ++k) result[k] = formulas::log_softmax(Wide(plain(raw[p][k])), top, log_sum);
    if (s.smoothing != 0) {
      Wide weight[N];
#pragma unroll
      for (uint32_t k = 0; k < N; ++k) weight[k] = 1;
      if (weights.present()) load_values<T, N>(weights, number * N, weight);
#pragma unroll
      for (uint32_t k = 0; k < N; ++k) smooth -= weight[k] * result[k];
    }
    if (static_cast<uint32_t>(label) / N == number) {
      reports = true;
      // Read again, before it may be overwritten: an index that varies would put the values into local memory.
      at_label = formulas::log_softmax(Wide(plain(logits[me.row * s.places.channels + label])), top, log_sum);
    }
    store_pack_of<N>(logs, me.row * all + number, result);
  });
  if (s.smoothing != 0) smooth = me.over(smooth, shared, Plus());
  if (reports) terms[me.row] = terms_of(s, weights, label, at_label, smooth);
}

// `all_weights`: their sum; null: each is 1. Without a total weight, dloss is divided by it already.
// The slopes have the type of the logarithms, or a narrower one.
template <class Wide, class T, class Out, uint32_t kPacks, bool kOfWarp>
__global__ void __launch_bounds__(kOfWarp ? kWarpRowThreads : kMostPackThreads)
    cross_entropy_packs_backward(LabelForm s, uint32_t rows, uint32_t lanes, const T* logs, const int32_t* labels,
                                 AnyTyped weights, AnyTyped total_weight, const Wide* all_weights, Wide dloss,
                                 Out* dlogits) {
  constexpr uint32_t N = kPack<T>;
  const RowThreads<kOfWarp> me(lanes);
  const uint32_t all = s.places.channels / N, packs = me.row < rows ? all : 0;
  if (packs == 0) return;
  Pack<T> raw[kPacks];
  each_pack<kPacks, 1>(me, packs,
                       [&](uint32_t p, uint32_t number) { raw[p] = load_pack(logs, me.row * all + number); });
  const int32_t label = labels[me.row];
  const bool ignored = label == s.ignored, wrong = !ignored && !is_class(s, label);
  const Wide factor = total_weight.present() ? dloss / total_weight.load<Wide>(0) : dloss;
  const Wide soft = static_cast<Wide>(s.smoothing / s.places.channels),
             sum_weights = all_weights ? *all_weights : static_cast<Wide>(s.places.channels);
  const Wide weight_of_label = weights.present() && is_class(s, label) ? weights.load<Wide>(label) : Wide(1);
  const Wide hard = static_cast<Wide>(1 - s.smoothing) * weight_of_label, sum_q = hard + soft * sum_weights;
  each_pack<kPacks, 1>(me, packs, [&](uint32_t p, uint32_t number) {
    Wide q[N], slope[N];
#pragma unroll
    for (uint32_t k = 0; k < N; ++k) q[k] = 1;
    if (s.smoothing != 0 && weights.present()) load_values<T, N>(weights, number * N, q);
#pragma unroll
    for (uint32_t k = 0; k < N; ++k) q[k] *= soft;
    if (static_cast<uint32_t>(label) / N == number) {
#pragma unroll
      for (uint32_t k = 0; k < N; ++k) q[k] += label % N == k ? hard : Wide(0);
    }
#pragma unroll
    for (uint32_t k = 0; k < N; ++k) slope[k] = (exp(Wide(plain(raw[p][k]))) * sum_q - q[k]) * factor;
    if (ignored || wrong) {
#pragma unroll
      for (uint32_t k = 0; k < N; ++k) slope[k] = wrong ? not_a_number<Wide>() : Wide(0);
    }
    store_pack_of<N>(dlogits, me.row * all + number, slope);
  });
}

// These return whether the rows fit. Weights are read as packs for the smoothing only.
template <class Wide, class T, class Out>
bool start_cross_entropy_packs(cudaStream_t stream, const LabelForm& s, Terms<Wide>* terms,
                               const CrossEntropyArrays& a) {
  const uint32_t rows = s.places.count();
  const RowShape shape = row_shape(rows, s.places.channels, kPack<T>);
  if (!s.places.last || !shape.fits || !starts_pack(a.logits.data) || !starts_pack(a.log_probabilities.data))
    return false;
  if (s.smoothing != 0 && !has_packs<T, Wide>(a.weights)) return false;
  with_row_shape(shape, [&](auto packs, auto of_warp) {
    cross_entropy_packs<Wide, T, Out, packs(), of_warp()><<<shape.blocks, shape.threads, 0, stream>>>(
        s, rows, shape.lanes, static_cast<const T*>(a.logits.data), a.labels, AnyTyped(a.weights),
        static_cast<Out*>(a.log_probabilities.data), terms);
  });
  return true;
}

template <class Wide, class T, class Out>
bool start_cross_entropy_packs_backward(cudaStream_t stream, const LabelForm& s, const Wide* all_weights,
                                        const CrossEntropyBackwardArrays& a, double dloss) {
  const uint32_t rows = s.places.count();
  const RowShape shape = row_shape(rows, s.places.channels, kPack<T>);
  if (!s.places.last || !shape.fits || !starts_pack(a.log_probabilities.data) || !starts_pack(a.dlogits.data))
    return false;
  if (s.smoothing != 0 && !has_packs<T, Wide>(a.weights)) return false;
  with_row_shape(shape, [&](auto packs, auto of_warp) {
    cross_entropy_packs_backward<Wide, T, Out, packs(), of_warp()><<<shape.blocks, shape.threads, 0, stream>>>(
        s, rows, shape.lanes, static_cast<const T*>(a.log_probabilities.data), a.labels, AnyTyped(a.weights),
        AnyTyped(a.total_weight), all_weights, static_cast<Wide>(dloss), static_cast<Out*>(a.dlogits.data));
  });
  return true;
}

}  // namespace halfmark::kernels::cuda
