// How many FLOP an operation multiplies and adds in products, and in which type: what a roofline compares with the rate that
// products of this type attain.
#pragma once

#include <string>

#include "kernels/ops/operations/contraction.h"
#include "kernels/ops/operations/fused.h"
#include "kernels/ops/operations/sequence.h"

namespace halfmark::kernels {

// A multiply-add is two FLOP. Type: "f32", "tf32", "f16", "f16-fp16-sums", "fp8" (also e4m3 times e5m2), "mxfp8", "nvfp4"; of
// operands that differ both, "f16*f32". Empty: the operation is no product.
struct ProductWork {
  std::string type;
  double flops = 0;
};

// Attention: q k^T and the product with v, over all pairs also if causal; backward the four products of the gradients. What
// a row computes again is not counted.
template <class Op>
ProductWork product_work(const Op&) {
  return {};
}
ProductWork product_work(const Matmul& op);
ProductWork product_work(const BatchedMatmul& op);
ProductWork product_work(const FusedMatmul& op);
ProductWork product_work(const FusedMatmulBackward& op);
ProductWork product_work(const ScaledMatmul& op);
ProductWork product_work(const Conv2d& op);
ProductWork product_work(const Conv2dBackwardData& op);
ProductWork product_work(const Conv2dBackwardWeights& op);
ProductWork product_work(const FusedConv2d& op);
ProductWork product_work(const Attention& op);
ProductWork product_work(const AttentionBackward& op);
ProductWork product_work(const PackedAttention& op);
ProductWork product_work(const PackedAttentionBackward& op);

}  // namespace halfmark::kernels
