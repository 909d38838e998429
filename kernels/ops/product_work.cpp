#include "kernels/ops/product_work.h"

#include <cstdint>
#include <string>

namespace halfmark::kernels {

namespace {

bool is_fp8(DType dtype) { return dtype == DType::e4m3 || dtype == DType::e5m2; }

std::string pair_of(DType a, DType b) {
  if (is_fp8(a) && is_fp8(b)) return "fp8";
  return a == b ? std::string(name_of(a)) : std::string(name_of(a)) + "*" + std::string(name_of(b));
}

std::string type_of(const Tensor& a, const Tensor& b, const Math& math) {
  const std::string pair = pair_of(a.dtype(), b.dtype());
  if (math.multiply == kTf32) return pair == "f32" ? "tf32" : pair + " in tf32";
  if (pair == "f16" && math.accumulate == kFp16) return "f16-fp16-sums";
  return pair;
}

// MX formats have scales of powers of two, NVFP4 such with a fraction. Scales in f32, of tiles or of tensors, are not part
// of the instruction.
std::string type_of(const Scaled& a, const Scaled& b) {
  const std::string pair = pair_of(a.codes.dtype(), b.codes.dtype());
  if (a.scales.empty() || a.scales.dtype() == DType::f32) return pair;
  if (a.scales.dtype() == DType::e8m0) return "mx" + pair;
  return pair == "e2m1" ? "nvfp4" : pair + " with scales " + std::string(name_of(a.scales.dtype()));
}

double flops_of(double multiply_adds) { return 2 * multiply_adds; }

// m n k of a matrix product; `out` has a batch before them or none.
double terms(const Tensor& a, bool transpose_a, const Tensor& out) {
  const int rank = a.shape().rank();
  const int64_t depth = a.shape()[transpose_a ? rank - 2 : rank - 1];
  return static_cast<double>(out.elements()) * static_cast<double>(depth);
}

// An element of the result of a convolution, or of its gradient, has a term for each element of a filter.
double terms_of_convolution(const Shape& result, const Shape& filter) {
  return static_cast<double>(result.elements()) * static_cast<double>(filter[1] * filter[2] * filter[3]);
}

double terms_of_attention(const Tensor& q, const Tensor& k) {
  return static_cast<double>(q.elements()) * static_cast<double>(k.shape()[2]);
}

// [n, t, 3, heads, d]: of each of t positions with t.
double terms_of_packed_attention(const Tensor& qkv) {
  return static_cast<double>(qkv.elements() / 3) * static_cast<double>(qkv.shape()[1]);
}

}  // namespace

ProductWork product_work(const Matmul& op) {
  return {type_of(op.a, op.b, op.math), flops_of(terms(op.a, op.transpose_a, op.out))};
}
ProductWork product_work(const BatchedMatmul& op) {
  return {type_of(op.a, op.b, op.math), flops_of(terms(op.a, op.transpose_a, op.out))};
}
ProductWork product_work(const FusedMatmul& op) {
  return {type_of(op.a, op.b, op.math), flops_of(terms(op.a, op.transpose_a, op.out))};
}
ProductWork product_work(const FusedMatmulBackward& op) {
  return {type_of(op.a, op.b, op.math), flops_of(terms(op.a, op.transpose_a, op.out))};
}
ProductWork product_work(const ScaledMatmul& op) {
  return {type_of(op.a, op.b), flops_of(static_cast<double>(op.out.elements()) * static_cast<double>(op.a.depth()))};
}
ProductWork product_work(const Conv2d& op) {
  return {type_of(op.x, op.w, op.math), flops_of(terms_of_convolution(op.out.shape(), op.w.shape()))};
}
ProductWork product_work(const Conv2dBackwardData& op) {
  return {type_of(op.dy, op.w, op.math), flops_of(terms_of_convolution(op.dy.shape(), op.w.shape()))};
}
ProductWork product_work(const Conv2dBackwardWeights& op) {
  return {type_of(op.x, op.dy, op.math), flops_of(terms_of_convolution(op.dy.shape(), op.dw.shape()))};
}
ProductWork product_work(const FusedConv2d& op) {
  return {type_of(op.x, op.w, op.math), flops_of(terms_of_convolution(op.out.shape(), op.w.shape()))};
}
ProductWork product_work(const Attention& op) {
  return {pair_of(op.q.dtype(), op.v.dtype()), 2 * flops_of(terms_of_attention(op.q, op.k))};
}
ProductWork product_work(const AttentionBackward& op) {
  return {pair_of(op.q.dtype(), op.v.dtype()), 4 * flops_of(terms_of_attention(op.q, op.k))};
}
ProductWork product_work(const PackedAttention& op) {
  return {std::string(name_of(op.qkv.dtype())), 2 * flops_of(terms_of_packed_attention(op.qkv))};
}
ProductWork product_work(const PackedAttentionBackward& op) {
  return {std::string(name_of(op.qkv.dtype())), 4 * flops_of(terms_of_packed_attention(op.qkv))};
}

}  // namespace halfmark::kernels
