// Attention in fp32 as products of tiles: a block of queries at a time, so that no matrix of all scores is stored.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cpu/host/attention.h"
#include "kernels/cpu/host/exponential.h"
#include "kernels/cpu/host/host.h"
#include "kernels/cpu/host/tile_products.h"

namespace halfmark::kernels::host {
namespace {

constexpr int64_t kQueries = 64;  // of a block: their scores of 1,024 keys fit the second-level cache

size_t size(int64_t n) { return static_cast<size_t>(n); }

// Memory for `count` numbers, and for none if it is not needed. Zeros only where somebody reads them before they are written.
using Memory = std::unique_ptr<float[]>;
Memory memory(int64_t count, bool is_needed) {
  if (!is_needed) return nullptr;
  return std::make_unique_for_overwrite<float[]>(size(count));
}

// out(column, row) = in(row, column) for 4 x 4 numbers, in registers.
void transpose_4x4(const float* in, int64_t in_stride, float* out, int64_t out_stride) {
  using Four = float __attribute__((vector_size(16)));
  Four r[4];
  for (int64_t i = 0; i < 4; ++i) std::memcpy(&r[i], in + i * in_stride, sizeof r[i]);
  const Four low01 = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5),
             low23 = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5),
             high01 = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7),
             high23 = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
  const Four columns[4] = {
      __builtin_shufflevector(low01, low23, 0, 1, 4, 5), __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
      __builtin_shufflevector(high01, high23, 0, 1, 4, 5), __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
  for (int64_t j = 0; j < 4; ++j) std::memcpy(out + j * out_stride, &columns[j], sizeof columns[j]);
}

// out(column, row) = in(row, column).
void transpose(const float* in, int64_t in_stride, int64_t rows, int64_t columns, float* out, int64_t out_stride) {
  const int64_t whole_rows = rows / 4 * 4, whole_columns = columns / 4 * 4;
  for (int64_t j = 0; j < whole_columns; j += 4)
    for (int64_t i = 0; i < whole_rows; i += 4)
      transpose_4x4(in + i * in_stride + j, in_stride, out + j * out_stride + i, out_stride);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = i < whole_rows ? whole_columns : 0; j < columns; ++j)
      out[j * out_stride + i] = in[i * in_stride + j];
}

// Rows of `width` numbers, each filled up with zeros to whole vectors.
class Rows {
 public:
  Rows(int64_t rows, int64_t width, bool is_needed = true)
      : stride(padded_columns(width)), own_(memory(rows * stride, is_needed)), data_(own_.get()) {
    if (is_needed && stride != width) std::fill_n(data_, rows * stride, 0.0F);
  }
  float* at(int64_t row) { return data_ + row * stride; }
  TileLeft left(int64_t row) { return {at(row), stride, 1}; }
  TileLeft left_transposed(int64_t row, int64_t column) { return {at(row) + column, 1, stride}; }

  int64_t stride;

 protected:
  Memory own_;
  float* data_;
};

// A head of an operand [batch, heads, rows, width] as fp32 numbers.
class Head {
 public:
  explicit Head(const Tensor& tensor)
      : tensor_(tensor),
        rows_(tensor.shape()[2]),
        width_(tensor.shape()[3]),
        widened_(memory(rows_ * width_, tensor.dtype() != DType::f32)) {}
  const float* read(int64_t head) const {
    return host::read(tensor_, head * rows_ * width_, rows_ * width_, widened_.get());
  }

 protected:
  const Tensor& tensor_;
  int64_t rows_, width_;
  Memory widened_;
};

// The same in rows of whole vectors: the tensor's own where they are.
class HeadRows : Head {
 public:
  explicit HeadRows(const Tensor& tensor)
      : Head(tensor), stride(padded_columns(width_)), padded_(rows_, width_, stride != width_) {}
  const float* read(int64_t head) {
    data_ = Head::read(head);
    if (stride == width_) return data_;
    for (int64_t i = 0; i < rows_; ++i) std::copy_n(data_ + i * width_, width_, padded_.at(i));
    return data_ = padded_.at(0);
  }
  const float* at(int64_t row) const { return data_ + row * stride; }
  TileLeft left(int64_t row) const { return {at(row), stride, 1}; }

  int64_t stride;

 private:
  Rows padded_;
  const float* data_ = nullptr;
};

// A head of a result, computed in rows of whole vectors: in the tensor itself where it has such rows of fp32.
class ResultRows : Rows {
 public:
  explicit ResultRows(Tensor& tensor)
      : Rows(tensor.shape()[2], tensor.shape()[3], !is_place(tensor)),
        tensor_(tensor),
        rows_(tensor.shape()[2]),
        width_(tensor.shape()[3]),
        dense_(memory(rows_ * width_, stride != width_ && tensor.dtype() != DType::f32)) {}
  using Rows::at, Rows::stride;
  void begin(int64_t head) {
    if (is_place(tensor_)) data_ = host::writable<float>(tensor_, head * rows_ * width_, nullptr);
  }
  void end(int64_t head) {
    if (is_place(tensor_)) return;
    const int64_t first = head * rows_ * width_;
    const float* values = data_;
    if (stride != width_) {
      float* dense = host::writable(tensor_, first, dense_.get());
      for (int64_t i = 0; i < rows_; ++i) std::copy_n(at(i), width_, dense + i * width_);
      values = dense;
    }
    host::written(tensor_, first, rows_ * width_, values);
  }

 private:
  static bool is_place(const Tensor& tensor) {
    return tensor.dtype() == DType::f32 && tensor.shape()[3] % kTileLanes == 0;
  }

  Tensor& tensor_;
  int64_t rows_, width_;
  Memory dense_;
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

bool all_finite(const float* x, int64_t count) {
  float bad = 0;  // x - x is NaN for infinity and NaN
  HM_EACH_FOR_ITSELF
  for (int64_t j = 0; j < count; ++j) bad = x[j] - x[j] == 0 ? bad : 1.0F;
  return bad == 0;
}

// A tile multiplies what one of its rows sees with the weights of all, 0 for those that do not see it, and 0 times infinity or
// NaN is NaN: rows one at a time then.
int64_t rows_of_tiles(bool is_finite) { return is_finite ? kTileRows : 1; }

}  // namespace

void attend_in_tiles(const Attention& op) {
  const HeadSizes m(op.q, op.k, op.causal);
  const auto scale = static_cast<float>(op.scale);
  const AddedMask<float> mask(op.mask, m.count);
  op.out.materialize(Layout::plain), op.log_sum.materialize(Layout::plain);
  std::vector<float> log_sums(size(m.count * m.t));
  parallel_for(m.count, 1, [&](int64_t begin, int64_t end) {
    const Head queries_of(op.q), keys_of(op.k);
    HeadRows v(op.v);
    ResultRows out(op.out);
    Rows kt(m.d, m.s), p(kQueries, m.s);
    for (int64_t head = begin; head < end; ++head) {
      const float* q = queries_of.read(head);
      transpose(keys_of.read(head), m.d, m.s, m.d, kt.at(0), kt.stride);
      v.read(head), out.begin(head);
      const int64_t step = rows_of_tiles(all_finite(v.at(0), m.s * v.stride));
      for (int64_t first = 0; first < m.t; first += kQueries) {
        const int64_t queries = std::min(kQueries, m.t - first);
        for (int64_t i = 0; i < queries; i += step) {
          const int64_t count = std::min(step, queries - i), seen = m.seen(first + i + count - 1);
          tile_products({q + (first + i) * m.d, m.d, 1}, count, m.d, kt.at(0), kt.stride, p.at(i), p.stride, seen,
                        false);
          float inverse[kTileRows];
          for (int64_t r = 0; r < count; ++r) {
            const int64_t query = first + i + r;
            const RowOfWeights row =
                weigh(p.at(i + r), m.seen(query), padded_columns(seen), scale, mask.of(head, query));
            inverse[r] = 1 / row.sum, log_sums[size(head * m.t + query)] = row.log_sum;
          }
          tile_products(p.left(i), count, seen, v.at(0), v.stride, out.at(first + i), out.stride, m.d, false);
          for (int64_t r = 0; r < count; ++r) {
            float* row = out.at(first + i + r);
            if (log_sums[size(head * m.t + first + i + r)] == -HUGE_VALF) {  // it attends to nothing, whatever v is
              std::fill_n(row, m.d, 0.0F);
              continue;
            }
            HM_EACH_FOR_ITSELF
            for (int64_t e = 0; e < m.d; ++e) row[e] *= inverse[r];
          }
        }
      }
      out.end(head);
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
    const Head results_of(op.out), values_of(op.v);
    HeadRows q(op.q), k(op.k), dout(op.dout);
    ResultRows dq(op.dq), dk(op.dk), dv(op.dv);
    Rows kt(m.d, m.s), vt(m.d, m.s), weights(kQueries, m.s), slopes(kQueries, m.s);
    for (int64_t head = begin; head < end; ++head) {
      const float* out = results_of.read(head);
      q.read(head), dout.read(head), k.read(head);
      transpose(k.at(0), k.stride, m.s, m.d, kt.at(0), kt.stride),
          transpose(values_of.read(head), m.d, m.s, m.d, vt.at(0), vt.stride);
      dq.begin(head), dk.begin(head), dv.begin(head);
      const int64_t step = rows_of_tiles(all_finite(q.at(0), m.t * q.stride) && all_finite(k.at(0), m.s * k.stride) &&
                                         all_finite(dout.at(0), m.t * dout.stride));
      for (int64_t first = 0; first < m.t; first += kQueries) {
        const int64_t queries = std::min(kQueries, m.t - first), all_seen = m.seen(first + queries - 1);
        const int64_t width = padded_columns(all_seen);
        for (int64_t i = 0; i < queries; i += step) {
          const int64_t count = std::min(step, queries - i), seen = m.seen(first + i + count - 1);
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
        for (int64_t j = 0; j < all_seen; j += step) {  // no query before j sees it
          const int64_t skipped = op.causal ? std::max<int64_t>(0, j - first) : 0, count = std::min(step, all_seen - j);
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
      dq.end(head), dk.end(head), dv.end(head);
    }
  });
}

}  // namespace halfmark::kernels::host
