// Attention as host loops: in fp64 a query at a time, so that no matrix of all scores is stored. fp32 is in
// attention_tiles.cpp.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cpu/host/attention.h"
#include "kernels/cpu/host/exponential.h"
#include "kernels/cpu/host/host.h"

namespace halfmark::kernels::host {
namespace {

// [rows, columns] to [columns, rows]: the inner loops below then run over consecutive positions.
template <class T>
void transpose_into(const T* from, int64_t rows, int64_t columns, T* to) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
}

// sums[0 .. count) += sum over e of a[e] columns[e * stride ...], four values of e at a time.
template <class T>
void add_products(const T* a, int64_t depth, const T* columns, int64_t stride, T* sums, int64_t count) {
  int64_t e = 0;
  for (; e + 4 <= depth; e += 4) {
    const T a0 = a[e], a1 = a[e + 1], a2 = a[e + 2], a3 = a[e + 3];
    const T *c0 = columns + e * stride, *c1 = c0 + stride, *c2 = c1 + stride, *c3 = c2 + stride;
    HM_EACH_FOR_ITSELF
    for (int64_t j = 0; j < count; ++j) sums[j] += (a0 * c0[j] + a1 * c1[j]) + (a2 * c2[j] + a3 * c3[j]);
  }
  for (; e < depth; ++e) {
    const T a0 = a[e];
    const T* c0 = columns + e * stride;
    HM_EACH_FOR_ITSELF
    for (int64_t j = 0; j < count; ++j) sums[j] += a0 * c0[j];
  }
}

template <class T>
void attend(const Attention& op) {
  const HeadSizes m(op.q, op.k, op.causal);
  const T scale = static_cast<T>(op.scale);
  const AddedMask<T> mask(op.mask, m.count);
  op.out.materialize(Layout::plain), op.log_sum.materialize(Layout::plain);
  std::vector<T> log_sum(static_cast<size_t>(m.count * m.t));
  parallel_for(m.count, 1, [&](int64_t begin, int64_t end) {
    const auto size = [](int64_t n) { return static_cast<size_t>(n); };
    std::vector<T> bq(size(m.t * m.d)), bk(size(m.s * m.d)), bv(size(m.s * m.d)), kt(size(m.s * m.d)), row(size(m.s)),
        result(size(m.t * m.d));
    for (int64_t head = begin; head < end; ++head) {
      const T* q = read(op.q, head * m.t * m.d, m.t * m.d, bq.data());
      const T* k = read(op.k, head * m.s * m.d, m.s * m.d, bk.data());
      const T* v = read(op.v, head * m.s * m.d, m.s * m.d, bv.data());
      transpose_into(k, m.s, m.d, kt.data());
      T* out = writable(op.out, head * m.t * m.d, result.data());
      std::fill_n(out, m.t * m.d, T(0));
      for (int64_t i = 0; i < m.t; ++i) {
        const int64_t seen = m.seen(i);
        std::fill_n(row.data(), seen, T(0));
        add_products(q + i * m.d, m.d, kt.data(), m.s, row.data(), seen);
        T largest = -HUGE_VALF;
        T* p = row.data();
        for (int64_t j = 0; j < seen; ++j) p[j] *= scale;
        add_mask(p, mask.of(head, i), seen);
        for (int64_t j = 0; j < seen; ++j) largest = p[j] > largest ? p[j] : largest;
        // Nothing to attend to; a NaN among the scores is no reason for a 0.
        if (largest == -HUGE_VALF && std::none_of(p, p + seen, [](T one) { return std::isnan(one); })) {
          log_sum[size(head * m.t + i)] = largest;
          continue;
        }
        HM_EACH_FOR_ITSELF
        for (int64_t j = 0; j < seen; ++j) p[j] = exp_of_nonpositive(p[j] - largest);
        T sum = 0;
        for (int64_t j = 0; j < seen; ++j) sum += p[j];
        add_products(p, seen, v, m.d, out + i * m.d, m.d);
        const T inverse = T(1) / sum;
        for (int64_t e = 0; e < m.d; ++e) out[i * m.d + e] *= inverse;
        log_sum[size(head * m.t + i)] = largest + std::log(sum);
      }
      written(op.out, head * m.t * m.d, m.t * m.d, out);
    }
  });
  convert(kStored<T>, log_sum.data(), op.log_sum.dtype(), op.log_sum.data(), log_sum.size());
}

// Of one head, for which every gradient is written by one thread.
template <class T>
void attend_backward(const AttentionBackward& op) {
  const HeadSizes m(op.q, op.k, op.causal);
  const T scale = static_cast<T>(op.scale);
  const AddedMask<T> mask(op.mask, m.count);
  for (Tensor* one : {&op.dq, &op.dk, &op.dv}) one->materialize(Layout::plain);
  const std::vector<T> log_sums = widened<T>(op.log_sum);
  parallel_for(m.count, 1, [&](int64_t begin, int64_t end) {
    const auto size = [](int64_t n) { return static_cast<size_t>(n); };
    const int64_t rows = m.t * m.d, others = m.s * m.d;
    std::vector<T> bq(size(rows)), bk(size(others)), bv(size(others)), bo(size(rows)), bd(size(rows)), kt(size(others)),
        vt(size(others)), p(size(m.s)), ds(size(m.s)), rq(size(rows)), rk(size(others)), rv(size(others));
    for (int64_t head = begin; head < end; ++head) {
      const T* q = read(op.q, head * rows, rows, bq.data());
      const T* k = read(op.k, head * others, others, bk.data());
      const T* v = read(op.v, head * others, others, bv.data());
      const T* out = read(op.out, head * rows, rows, bo.data());
      const T* dout = read(op.dout, head * rows, rows, bd.data());
      transpose_into(k, m.s, m.d, kt.data()), transpose_into(v, m.s, m.d, vt.data());
      T *dq = writable(op.dq, head * rows, rq.data()), *dk = writable(op.dk, head * others, rk.data()),
        *dv = writable(op.dv, head * others, rv.data());
      std::fill_n(dq, rows, T(0)), std::fill_n(dk, others, T(0)), std::fill_n(dv, others, T(0));
      for (int64_t i = 0; i < m.t; ++i) {
        const int64_t seen = m.seen(i), row = i * m.d;
        const T log_sum = log_sums[size(head * m.t + i)];
        if (log_sum == -HUGE_VALF) continue;  // it attends to nothing
        T along = 0;
        for (int64_t e = 0; e < m.d; ++e) along += dout[row + e] * out[row + e];
        std::fill_n(p.data(), seen, T(0)), std::fill_n(ds.data(), seen, T(0));
        add_products(q + row, m.d, kt.data(), m.s, p.data(), seen);
        add_products(dout + row, m.d, vt.data(), m.s, ds.data(), seen);
        T *weight = p.data(), *slope = ds.data();
        for (int64_t j = 0; j < seen; ++j) weight[j] *= scale;
        add_mask(weight, mask.of(head, i), seen);
        HM_EACH_FOR_ITSELF
        for (int64_t j = 0; j < seen; ++j) {
          // The score is at most the logarithm of the sum, but for the rounding of both.
          const T below = weight[j] - log_sum;
          weight[j] = exp_of_nonpositive(below > 0 ? T(0) : below);
          slope[j] = scale * weight[j] * (slope[j] - along);
        }
        add_products(slope, seen, k, m.d, dq + row, m.d);
        for (int64_t j = 0; j < seen; ++j) {
          const T w = weight[j], g = slope[j];
          T *to_k = dk + j * m.d, *to_v = dv + j * m.d;
          const T *from_q = q + row, *from_out = dout + row;
          HM_EACH_FOR_ITSELF
          for (int64_t e = 0; e < m.d; ++e) to_v[e] += w * from_out[e], to_k[e] += g * from_q[e];
        }
      }
      written(op.dq, head * rows, rows, dq);
      written(op.dk, head * others, others, dk), written(op.dv, head * others, others, dv);
    }
  });
}

Refusal refuses_layout_of(std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* tensor : tensors)
    if (tensor->layout() != Layout::plain && tensor->layout() != Layout::any) return "its heads are not contiguous";
  return refuses_dtypes(tensors);
}
Refusal refuses_mask(const Tensor& mask) {
  if (mask.empty() || mask.dtype() == DType::u8) return {};
  return refuses_dtypes({&mask});
}
Refusal refuses_attention(const Device&, const Attention& op) {
  if (Refusal refusal = refuses_mask(op.mask)) return refusal;
  return refuses_layout_of({&op.q, &op.k, &op.v, &op.out, &op.log_sum});
}
Refusal refuses_attention_backward(const Device&, const AttentionBackward& op) {
  if (Refusal refusal = refuses_mask(op.mask)) return refusal;
  return refuses_layout_of({&op.q, &op.k, &op.v, &op.out, &op.log_sum, &op.dout, &op.dq, &op.dk, &op.dv});
}
template <class T>
void mask_scores(const MaskScores& op) {
  const int64_t rows = op.scores.shape()[0], t = op.scores.shape()[1], s = op.scores.shape()[2];
  const AddedMask<T> mask(op.mask, rows);
  op.out.materialize(Layout::plain);
  parallel_for(rows * t, std::max<int64_t>(1, kGrain / s), [&](int64_t begin, int64_t end) {
    std::vector<T> x(static_cast<size_t>(s)), result(static_cast<size_t>(s));
    for (int64_t row = begin; row < end; ++row) {
      const T* scores = read(op.scores, row * s, s, x.data());
      T* out = writable(op.out, row * s, result.data());
      const T* added = mask.of(row / t, row % t);
      HM_EACH_FOR_ITSELF
      for (int64_t j = 0; j < s; ++j) out[j] = scores[j] + added[j];
      written(op.out, row * s, s, out);
    }
  });
}
Refusal refuses_mask_scores(const Device&, const MaskScores& op) {
  if (Refusal refusal = refuses_mask(op.mask)) return refusal;
  return refuses_layout_of({&op.scores, &op.out});
}
void run_mask_scores(Device&, const MaskScores& op) {
  computes_in_double({&op.scores, &op.out}) ? mask_scores<double>(op) : mask_scores<float>(op);
}
void run_attention(Device&, const Attention& op) {
  computes_in_double({&op.q, &op.out}) ? attend<double>(op) : attend_in_tiles(op);
}
void run_attention_backward(Device&, const AttentionBackward& op) {
  computes_in_double({&op.q, &op.dq}) ? attend_backward<double>(op) : attend_backward_in_tiles(op);
}

}  // namespace

void add_attention(KernelTable& table) {
  add_row<MaskScores, refuses_mask_scores, run_mask_scores>(table);
  add_row<Attention, refuses_attention, run_attention>(table);
  add_row<AttentionBackward, refuses_attention_backward, run_attention_backward>(table);
}

}  // namespace halfmark::kernels::host
