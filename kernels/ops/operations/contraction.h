// Matrix products and convolutions, and the arithmetic of their sums.
#pragma once

#include <string_view>

#include "kernels/ops/matrix_instruction.h"
#include "kernels/ops/operations/list.h"
#include "kernels/ops/operations/window.h"
#include "kernels/tensor/scaled.h"

namespace halfmark::kernels {

// How sums of products are computed, independent of how the operands are stored.
struct Math {
  Format multiply = kFp32;    // operands are rounded to this format first (tf32); products are exact
  Format accumulate = kFp32;  // after every addition
  // Of the split-K partial sums. With split_k 1 a library may split a sum or not; partial sums are then in the format of the
  // sums, or also in that of the result if `partial` is it.
  Format partial = kFp32;
  int split_k = 1;
  // fp8 only: whether the sums of an instruction may have fewer bits than `accumulate` over all of k. If not, a device with
  // such an instruction (Ada, Hopper: 13 fraction bits) adds partial sums of at most 128 products in `accumulate`.
  bool fast_accumulate = false;
  friend bool operator==(const Math&, const Math&) = default;
};

struct Matmul {  // out = op(a) op(b) + beta out
  static constexpr std::string_view name = "matmul";
  const Tensor& a;  // [m, k], or [k, m] when transposed
  const Tensor& b;  // [k, n], or [n, k] when transposed
  Tensor& out;      // [m, n]
  bool transpose_a = false, transpose_b = false;
  Math math{};
  double beta = 0;
  void check() const;
  void visit(auto&& v) const {
    v.input("a", a), v.input("b", b);
    if (beta == 0)
      v.output("out", out);
    else
      visit_updated(v, "out", out);
    v.attribute(transpose_a), v.attribute(transpose_b), v.attribute(math), v.attribute(beta);
  }
};

// out = a b^T of codes with scales. Sums are fp32 sums in increasing k.
// - Scales e8m0 or e4m3 (MX, NVFP4) belong to the products: (code * scale) * (code * scale).
// - Scales f32 (blocks of 128): each block of k is a sum of its own from 0, of products of codes. It is multiplied by both
//   scales, which are multiplied first, and added to the sum of the blocks before it, each in fp32.
// - The tensors' scales multiply the finished sum in fp32, as the factor of a library's matmul does.
// The result is then rounded once to the dtype of out.
struct ScaledMatmul {
  static constexpr std::string_view name = "scaled_matmul";
  const Scaled& a;  // [m, k]
  const Scaled& b;  // [n, k]
  Tensor& out;      // [m, n]
  // Whether the sums of an instruction may have fewer bits than fp32 over all of k. If not, a device with such an instruction
  // adds partial sums of 128 products in fp32.
  bool fast_accumulate = false;
  bool has_factor() const { return !a.tensor_scale.empty() || !b.tensor_scale.empty(); }
  // As Transformer Engine's common/recipe/nvfp4.cu: the product of the tensors' scales, times 1 / (36 * 448 * 448).
  float factor() const { return a.tensor_factor() * b.tensor_factor() * (1 / (a.divisor * b.divisor)); }
  bool has_outer_scales() const { return !a.scales.empty() && a.scales.dtype() == DType::f32; }
  void check() const;
  void visit(auto&& v) const {
    v.input("a", a.codes), v.input("b", b.codes), v.input("scale_a", a.scales), v.input("scale_b", b.scales);
    v.input("tensor_scale_a", a.tensor_scale), v.input("tensor_scale_b", b.tensor_scale), v.output("out", out);
    for (const Scaled* one : {&a, &b})
      v.attribute(one->tile_rows), v.attribute(one->tile_depth), v.attribute(one->transposed);
    v.attribute(fast_accumulate);
  }
};

// out[i] = c[i] + sum over k of a[i, k] b[i, k], each a chain of one matrix instruction in increasing k: the result of
// one is the c of the next. Codes are passed unchanged; k must be a multiple of the instruction's K. Only devices with
// matrix instructions, real or simulated, have rows.
struct DotProducts {
  static constexpr std::string_view name = "dot_products";
  const Tensor& a;        // [n, k]; f32 stands for the 32-bit registers of tf32
  const Tensor& b;        // [n, k]
  const Tensor& scale_a;  // [n, k / scale block], e8m0 or e4m3 (its sign is ignored: ue4m3); empty: none
  const Tensor& scale_b;  // likewise
  const Tensor& c;        // [n], f32, f16 or f64
  Tensor& out;            // [n]
  MatrixInstruction instruction = MatrixInstruction::usual;
  // [n] i32, or null: which multiprocessor computed each. Devices that do not know leave it as it is.
  Tensor* multiprocessor = nullptr;
  void check() const;
  void visit(auto&& v) const {
    v.input("a", a), v.input("b", b), v.input("scale_a", scale_a), v.input("scale_b", scale_b), v.input("c", c);
    v.output("out", out), v.attribute(instruction);
  }
};

struct Conv2d {  // out[n, o, y, x] = sum over c, i, j of x[n, c, y s - p + i d, x s - p + j d] w[o, c, i, j]
  static constexpr std::string_view name = "conv2d";
  const Tensor& x;
  const Tensor& w;
  Tensor& out;
  Window window{};
  int groups = 1;
  Math math{};
  void check() const;
  void visit(auto&& v) const {
    v.input("x", x), v.input("w", w), v.output("out", out);
    v.attribute(window), v.attribute(groups), v.attribute(math);
  }
};

struct Conv2dBackwardData {
  static constexpr std::string_view name = "conv2d_backward_data";
  const Tensor& dy;
  const Tensor& w;
  Tensor& dx;
  Window window{};
  int groups = 1;
  Math math{};
  void check() const;
  void visit(auto&& v) const {
    v.input("dy", dy), v.input("w", w), v.output("dx", dx);
    v.attribute(window), v.attribute(groups), v.attribute(math);
  }
};

struct Conv2dBackwardWeights {
  static constexpr std::string_view name = "conv2d_backward_weights";
  const Tensor& x;
  const Tensor& dy;
  Tensor& dw;
  Window window{};
  int groups = 1;
  Math math{};
  void check() const;
  void visit(auto&& v) const {
    v.input("x", x), v.input("dy", dy), v.output("dw", dw);
    v.attribute(window), v.attribute(groups), v.attribute(math);
  }
};

}  // namespace halfmark::kernels
