#include "kernels/ops/operations/sequence.h"

#include <string>
#include <vector>

#include "kernels/ops/operations/checks.h"
#include "kernels/ops/operations/window.h"
#include "kernels/tensor/random.h"

namespace halfmark::kernels {

using namespace operation_checks;

namespace {

void check_indices(std::string_view operation, const Tensor& indices, const Tensor& rows, int64_t features) {
  need(indices.dtype() == DType::i32, operation, "the indices must be i32");
  std::vector<int64_t> extents(indices.shape().extents().begin(), indices.shape().extents().end());
  extents.push_back(features);
  need(rows.shape() == Shape(extents), operation,
       "rows of shape " + rows.shape().text() + " for indices " + indices.shape().text() + " and " +
           std::to_string(features) + " features");
}

void check_mask(std::string_view operation, const Tensor& x, const Tensor& mask, double p) {
  const bool channels = x.shape().rank() >= 2 && mask.shape() == Shape{x.shape()[0], x.shape()[1]};
  need(
      mask.dtype() == DType::u8 && (channels || mask.shape() == x.shape()), operation,
      "the mask must be u8 and of shape " + x.shape().text() + " or of its first two axes, not " + mask.shape().text());
  need(p >= 0 && p <= 1, operation, "p is " + std::to_string(p) + ", not 0 to 1");
}

// Of scores of `rows` samples (or a multiple: heads), t queries and s keys.
void check_scores_mask(std::string_view operation, const Tensor& mask, int64_t rows, int64_t t, int64_t s) {
  const Shape& shape = mask.shape();
  const bool fits =
      shape.rank() == 3 && shape[0] > 0 && rows % shape[0] == 0 && (shape[1] == 1 || shape[1] == t) && shape[2] == s;
  need(fits && (mask.dtype() == DType::u8 || is_floating(mask.dtype())), operation,
       "the mask must be [n or 1, t or 1, s] of u8 or a floating dtype, not " + shape.text() + " " +
           std::string(name_of(mask.dtype())));
}

void check_heads(std::string_view operation, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                 const Tensor& log_sum) {
  rank(operation, "q", q, 4), check_same_shape(operation, k, v);
  const Shape &a = q.shape(), &b = k.shape();
  need(b.rank() == 4 && a[0] == b[0] && a[1] == b[1] && a[3] == b[3], operation,
       "q " + a.text() + " and k " + b.text() + " differ in more than their length");
  need(b[2] > 0, operation, "no keys");
  need(log_sum.shape() == Shape{a[0], a[1], a[2]}, operation, "log_sum must be [n, heads, t]");
  if (!mask.empty()) check_scores_mask(operation, mask, a[0], a[2], b[2]);
}

void check_packed_heads(std::string_view operation, const Tensor& qkv, const Tensor& mask, const Tensor& log_sum) {
  rank(operation, "qkv", qkv, 5);
  const Shape& shape = qkv.shape();
  need(shape[2] == 3 && shape[1] > 0, operation,
       "qkv must be [n, t, 3, heads, d] with at least one position, not " + shape.text());
  need(log_sum.shape() == Shape{shape[0], shape[3], shape[1]}, operation, "log_sum must be [n, heads, t]");
  if (!mask.empty()) check_scores_mask(operation, mask, shape[0], shape[1], shape[1]);
}
void check_positions(std::string_view operation, std::string_view what, const Tensor& qkv, const Tensor& tensor) {
  const Shape& shape = qkv.shape();
  need(tensor.shape() == Shape{shape[0], shape[1], shape[3], shape[4]}, operation,
       std::string(what) + " must be [n, t, heads, d], not " + tensor.shape().text());
}

}  // namespace

void Softmax::check() const {
  check_same_shape(name, x, out);
  need(x.shape().rank() >= 1 && x.shape()[x.shape().rank() - 1] > 0, name, "rows without values");
  need(!causal || (!log && x.shape().rank() >= 2), name, "causal softmax has rows of rows and no logarithm");
  need(!masked || !log, name, "masked softmax has no logarithm");
}
void SoftmaxBackward::check() const { check_same_shape(name, y, dy), check_same_shape(name, y, dx); }

void BatchedMatmul::check() const {
  rank(name, "a", a, 3), rank(name, "b", b, 3), rank(name, "out", out, 3);
  const int64_t m = a.shape()[transpose_a ? 2 : 1], k = a.shape()[transpose_a ? 1 : 2];
  const int64_t n = b.shape()[transpose_b ? 1 : 2], k_of_b = b.shape()[transpose_b ? 2 : 1];
  need(a.shape()[0] == b.shape()[0] && k == k_of_b && out.shape() == Shape{a.shape()[0], m, n}, name,
       a.shape().text() + " times " + b.shape().text() + " to " + out.shape().text());
}

void MaskScores::check() const {
  rank(name, "scores", scores, 3), check_same_shape(name, scores, out);
  check_scores_mask(name, mask, scores.shape()[0], scores.shape()[1], scores.shape()[2]);
}
void Attention::check() const { check_same_shape(name, q, out), check_heads(name, q, k, v, mask, log_sum); }
void AttentionBackward::check() const {
  check_heads(name, q, k, v, mask, log_sum);
  for (const Tensor* one : {&out, &dout, static_cast<const Tensor*>(&dq)}) check_same_shape(name, q, *one);
  check_same_shape(name, k, dk), check_same_shape(name, k, dv);
}

void PackedAttention::check() const {
  check_packed_heads(name, qkv, mask, log_sum), check_positions(name, "out", qkv, out);
}
void PackedAttentionBackward::check() const {
  check_packed_heads(name, qkv, mask, log_sum), check_same_shape(name, qkv, dqkv);
  check_positions(name, "out", qkv, out), check_positions(name, "dout", qkv, dout);
}

AxisOrder inverse(const AxisOrder& order) {
  AxisOrder back{.rank = order.rank};
  for (int i = 0; i < order.rank; ++i) back.order[static_cast<size_t>(order.order[static_cast<size_t>(i)])] = i;
  return back;
}

Shape permuted(const Shape& shape, const AxisOrder& order) {
  std::vector<int64_t> extents;
  for (int i = 0; i < order.rank; ++i) extents.push_back(shape[order.order[static_cast<size_t>(i)]]);
  return Shape(extents);
}

void Permute::check() const {
  need(order.rank == x.shape().rank(), name,
       "an order of " + std::to_string(order.rank) + " axes for " + x.shape().text());
  unsigned seen = 0;
  for (int i = 0; i < order.rank; ++i) {
    const int axis = order.order[static_cast<size_t>(i)];
    need(axis >= 0 && axis < order.rank, name, "there is no axis " + std::to_string(axis));
    seen |= 1U << axis;
  }
  need(seen + 1 == 1U << order.rank, name, "an axis is used twice");
  need(out.shape() == permuted(x.shape(), order) && out.dtype() == x.dtype(), name,
       "the result must be of shape " + permuted(x.shape(), order).text() + " and the dtype of x");
}

void NarrowIndices::check() const {
  std::vector<int64_t> halves(narrow.shape().extents().begin(), narrow.shape().extents().end());
  halves.push_back(2);
  need(wide.shape() == Shape(halves), name, "wide must be of shape " + Shape(halves).text());
  need(wide.dtype() == DType::i32 && narrow.dtype() == DType::i32, name, "both are stored as i32");
}

int32_t narrow_index(int32_t lower, int32_t upper) {
  const bool fits = upper == (lower < 0 ? -1 : 0);
  if (!fits) {
    const auto bits = static_cast<uint64_t>(static_cast<uint32_t>(upper)) << 32 | static_cast<uint32_t>(lower);
    throw Error("narrow_indices: the index " + std::to_string(static_cast<int64_t>(bits)) + " does not fit 32 bits");
  }
  return lower;
}

void Embedding::check() const {
  rank(name, "the table", table, 2), check_indices(name, indices, out, table.shape()[1]);
  need(out.dtype() == table.dtype(), name, "the rows are copied: out and the table have two dtypes");
}
void EmbeddingBackward::check() const {
  rank(name, "the table", dtable, 2), check_indices(name, indices, dy, dtable.shape()[1]);
}

std::array<uint32_t, 4> Dropout::block(uint64_t number) const {
  const auto low = [](uint64_t word) { return static_cast<uint32_t>(word); };
  constexpr uint32_t kDropout = 0x64726f70;  // no block is one that RandomKey draws
  return philox({low(number), low(number >> 32), kDropout, 0}, {low(seed), low(seed >> 32)});
}
void Dropout::check() const { check_same_shape(name, x, out), check_mask(name, x, mask, p); }
void DropoutBackward::check() const { check_same_shape(name, dy, dx), check_mask(name, dy, mask, p); }

void LstmCell::check() const {
  rank(name, "z", z, 2), check_same_shape(name, z, gates), check_same_shape(name, c_before, c);
  check_same_shape(name, c, h);
  need(c.shape().rank() == 2 && z.shape() == Shape{c.shape()[0], 4 * c.shape()[1]}, name,
       "z must be [n, 4 hidden], not " + z.shape().text());
}
void LstmCellBackward::check() const {
  rank(name, "gates", gates, 2), check_same_shape(name, gates, dz);
  for (const Tensor* one : {&c, &dh, &dc, static_cast<const Tensor*>(&dc_before)})
    check_same_shape(name, c_before, *one);
  need(c.shape().rank() == 2 && gates.shape() == Shape{c.shape()[0], 4 * c.shape()[1]}, name,
       "gates must be [n, 4 hidden], not " + gates.shape().text());
}

}  // namespace halfmark::kernels
