// Attention in fp32 as products of tiles: a block of queries at a time, so that no matrix of all scores is stored.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cpu/host/attention.h"
#include "kernels/cpu/host/exponential.h"
#include "kernels/cpu/host/host.h"
#include "kernels/cpu/host/tile_products.h"

namespace halfmark::kernels::host {
namespace {

constexpr int64_t kQueries = 64;  // of a block: their scores of 1,024 keys fit the second-level cache

size_t size(int64_t n) { return static_cast<size_t>(n); }

// Rows of `width` numbers, with room for whole vectors and zeros behind them.
struct Rows {
  int64_t stride = 0;
  std::vector<float> values;

  Rows(int64_t rows, int64_t width) : stride(padded_columns(width)), values(size(rows * stride)) {}
  float* at(int64_t row) { return values.data() + row * stride; }
  TileLeft left(int64_t row) { return {at(row), stride, 1}; }
  TileLeft left_transposed(int64_t row, int64_t column) { return {at(row) + column, 1, stride}; }

  void fill_from(const float* source, int64_t rows, int64_t width) {
    for (int64_t i = 0; i < rows; ++i) std::copy_n(source + i * width, width, at(i));
  }
  void fill_transposed(const float* source, int64_t rows, int64_t width) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < width; ++j) at(j)[i] = source[i * width + j];
  }
  void copy_to(float* target, int64_t rows, int64_t width) {
    for (int64_t i = 0; i < rows; ++i) std::copy_n(at(i), width, target + i * width);
  }
};

void scale_and_mask(float* scores, int64_t count, float scale, const float* mask) {
  HM_EACH_FOR_ITSELF
  for (int64_t j = 0; j < count; ++j) scores[j] *= scale;
  add_mask(scores, mask, count);
}

// The weights exp(y - largest) of y = scale x + mask, for the `seen` scores x of a row, zeros in the rest of its `width`;
// their sum, and log of the sum of exp(y). Zeros, a sum of 1 and -infinity if the row attends to nothing. `width` is of whole
// vectors, and so are the loops: the weight of -infinity is 0.
struct RowOfWeights {
  float sum, log_sum;
};
RowOfWeights weigh(float* p, int64_t seen, int64_t width, float scale, const float* mask) {
  scale_and_mask(p, seen, scale, mask);
  const int64_t whole = padded_columns(seen);
  std::fill(p + seen, p + whole, -HUGE_VALF);
  const float largest = largest_of(p, whole);
  // A NaN among the scores is no reason for zeros.
  if (largest == -HUGE_VALF && std::none_of(p, p + seen, [](float one) { return std::isnan(one); })) {
    std::fill(p, p + width, 0.0F);
    return {1, largest};
  }
  HM_EACH_FOR_ITSELF
  for (int64_t j = 0; j < whole; ++j) p[j] = exp_of_nonpositive(p[j] - largest);
  std::fill(p + seen, p + width, 0.0F);
  const float sum = lanes_sum<float, kLanes<float>>(whole, [p](int64_t j) { return p[j]; });
  return {sum, largest + std::log(sum)};
}

}  // namespace

void attend_in_tiles(const Attention& op) {
  const HeadSizes m(op.q, op.k, op.causal);
  const auto scale = static_cast<float>(op.scale);
  const AddedMask<float> mask(op.mask, m.count);
  op.out.materialize(Layout::plain), op.log_sum.materialize(Layout::plain);
  std::vector<float> log_sums(size(m.count * m.t));
  parallel_for(m.count, 1, [&](int64_t begin, int64_t end) {
    const int64_t rows = m.t * m.d, others = m.s * m.d;
    std::vector<float> bq(size(rows)), bk(size(others)), bv(size(others)), result(size(rows));
    Rows kt(m.d, m.s), v(m.s, m.d), p(kQueries, m.s), sums(kQueries, m.d);
    for (int64_t head = begin; head < end; ++head) {
      const float* q = read(op.q, head * rows, rows, bq.data());
      kt.fill_transposed(read(op.k, head * others, others, bk.data()), m.s, m.d);
      v.fill_from(read(op.v, head * others, others, bv.data()), m.s, m.d);
      float* out = writable(op.out, head * rows, result.data());
      for (int64_t first = 0; first < m.t; first += kQueries) {
        const int64_t queries = std::min(kQueries, m.t - first);
        for (int64_t i = 0; i < queries; i += kTileRows) {
          const int64_t count = std::min(kTileRows, queries - i), seen = m.seen(first + i + count - 1);
          tile_products({q + (first + i) * m.d, m.d, 1}, count, m.d, kt.at(0), kt.stride, p.at(i), p.stride, seen,
                        false);
          float inverse[kTileRows];
          for (int64_t r = 0; r < count; ++r) {
            const int64_t query = first + i + r;
            const RowOfWeights row =
                weigh(p.at(i + r), m.seen(query), padded_columns(seen), scale, mask.of(head, query));
            inverse[r] = 1 / row.sum, log_sums[size(head * m.t + query)] = row.log_sum;
          }
          tile_products(p.left(i), count, seen, v.at(0), v.stride, sums.at(i), sums.stride, m.d, false);
          for (int64_t r = 0; r < count; ++r) {
            const float* from = sums.at(i + r);
            float* to = out + (first + i + r) * m.d;
            HM_EACH_FOR_ITSELF
            for (int64_t e = 0; e < m.d; ++e) to[e] = from[e] * inverse[r];
          }
        }
      }
      written(op.out, head * rows, rows, out);
    }
  });
  convert(DType::f32, log_sums.data(), op.log_sum.dtype(), op.log_sum.data(), log_sums.size());
}

// Of one head, for which every gradient is written by one thread.
void attend_backward_in_tiles(const AttentionBackward& op) {
  const HeadSizes m(op.q, op.k, op.causal);
  const auto scale = static_cast<float>(op.scale);
  for (Tensor* one : {&op.dq, &op.dk, &op.dv}) one->materialize(Layout::plain);
  const AddedMask<float> mask(op.mask, m.count);
  const std::vector<float> log_sums = widened<float>(op.log_sum);
  parallel_for(m.count, 1, [&](int64_t begin, int64_t end) {
    const int64_t rows = m.t * m.d, others = m.s * m.d;
    std::vector<float> bq(size(rows)), bk(size(others)), bv(size(others)), bo(size(rows)), bd(size(rows)),
        rq(size(rows)), rk(size(others)), rv(size(others));
    Rows kt(m.d, m.s), vt(m.d, m.s), k(m.s, m.d), q(m.t, m.d), dout(m.t, m.d), dq(m.t, m.d), dk(m.s, m.d), dv(m.s, m.d),
        weights(kQueries, m.s), slopes(kQueries, m.s);
    for (int64_t head = begin; head < end; ++head) {
      q.fill_from(read(op.q, head * rows, rows, bq.data()), m.t, m.d);
      dout.fill_from(read(op.dout, head * rows, rows, bd.data()), m.t, m.d);
      const float* out = read(op.out, head * rows, rows, bo.data());
      const float* keys = read(op.k, head * others, others, bk.data());
      k.fill_from(keys, m.s, m.d), kt.fill_transposed(keys, m.s, m.d);
      vt.fill_transposed(read(op.v, head * others, others, bv.data()), m.s, m.d);
      for (int64_t first = 0; first < m.t; first += kQueries) {
        const int64_t queries = std::min(kQueries, m.t - first), all_seen = m.seen(first + queries - 1);
        const int64_t width = padded_columns(all_seen);
        for (int64_t i = 0; i < queries; i += kTileRows) {
          const int64_t count = std::min(kTileRows, queries - i), seen = m.seen(first + i + count - 1);
          tile_products(q.left(first + i), count, m.d, kt.at(0), kt.stride, weights.at(i), weights.stride, seen, false);
          tile_products(dout.left(first + i), count, m.d, vt.at(0), vt.stride, slopes.at(i), slopes.stride, seen,
                        false);
          for (int64_t r = 0; r < count; ++r) {
            const int64_t query = first + i + r, own = m.seen(query);
            const float *o = out + query * m.d, *d = dout.at(query);
            const float along = lanes_sum<float, kLanes<float>>(m.d, [&](int64_t e) { return d[e] * o[e]; }),
                        log_sum = log_sums[size(head * m.t + query)];
            float *weight = weights.at(i + r), *slope = slopes.at(i + r);
            if (log_sum == -HUGE_VALF) {  // it attends to nothing
              std::fill(weight, weight + width, 0.0F), std::fill(slope, slope + width, 0.0F);
              continue;
            }
            scale_and_mask(weight, own, scale, mask.of(head, query));
            HM_EACH_FOR_ITSELF
            for (int64_t j = 0; j < padded_columns(own); ++j) {  // those from `own` on are replaced
              // The score is at most the logarithm of the sum, but for the rounding of both.
              const float below = weight[j] - log_sum;
              weight[j] = exp_of_nonpositive(below > 0 ? 0.0F : below);
              slope[j] = scale * weight[j] * (slope[j] - along);
            }
            std::fill(weight + own, weight + width, 0.0F), std::fill(slope + own, slope + width, 0.0F);
          }
          tile_products(slopes.left(i), count, seen, k.at(0), k.stride, dq.at(first + i), dq.stride, m.d, false);
        }
        for (int64_t j = 0; j < all_seen; j += kTileRows) {  // no query before j sees it
          const int64_t skipped = op.causal ? std::max<int64_t>(0, j - first) : 0,
                        count = std::min(kTileRows, all_seen - j);
          tile_products(slopes.left_transposed(skipped, j), count, queries - skipped, q.at(first + skipped), q.stride,
                        dk.at(j), dk.stride, m.d, first > 0);
          tile_products(weights.left_transposed(skipped, j), count, queries - skipped, dout.at(first + skipped),
                        dout.stride, dv.at(j), dv.stride, m.d, first > 0);
        }
        // Keys that only later blocks see have no sums yet, those that no block sees get none.
        const int64_t next = first + kQueries < m.t ? m.seen(std::min(first + 2 * kQueries, m.t) - 1) : m.s;
        for (int64_t j = all_seen; j < next; ++j)
          std::fill_n(dk.at(j), dk.stride, 0.0F), std::fill_n(dv.at(j), dv.stride, 0.0F);
      }
      float *to_q = writable(op.dq, head * rows, rq.data()), *to_k = writable(op.dk, head * others, rk.data()),
            *to_v = writable(op.dv, head * others, rv.data());
      dq.copy_to(to_q, m.t, m.d), dk.copy_to(to_k, m.s, m.d), dv.copy_to(to_v, m.s, m.d);
      written(op.dq, head * rows, rows, to_q), written(op.dk, head * others, others, to_k);
      written(op.dv, head * others, others, to_v);
    }
  });
}

}  // namespace halfmark::kernels::host
