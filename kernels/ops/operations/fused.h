// A matrix product together with what follows it in a linear layer, forward and backward: bias and activation. A
// convolution with bias and ReLU.
//
// Those of products are the epilogues that cublasLt has. What separate operations store and round in between stays in at least fp32
// here: each output is rounded once. GELU is the approximation with tanh, as in cublasLt.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/ops/operations/contraction.h"

namespace halfmark::kernels {

enum class FusedActivation : uint8_t { none, relu, gelu_tanh };
std::string_view name_of(FusedActivation activation);

// Bytes of one row of the mask of ReLU: a bit for each of n columns, the first column in the lowest bit of the first
// byte, and unused bits up to a multiple of 128.
constexpr int64_t relu_mask_bytes(int64_t n) { return (n + 127) / 128 * 16; }

// z = op(a) op(b) + bias, out = f(z). What the backward operation needs is kept if it is asked for: of ReLU a mask with 1
// where z > 0, of GELU z itself.
// Of a NaN, ReLU gives NaN, except in a library that does not promise it (the row says so).
struct FusedMatmul {
  static constexpr std::string_view name = "fused_matmul";
  const Tensor& a;     // [m, k], or [k, m] when transposed
  const Tensor& b;     // [k, n], or [n, k] when transposed
  const Tensor& bias;  // [n]; empty: none
  Tensor& out;         // [m, n]
  Tensor& kept;        // empty: nothing is kept; of ReLU u8 [m, relu_mask_bytes(n)], of GELU [m, n]
  bool transpose_a = false, transpose_b = false;
  FusedActivation activation = FusedActivation::none;
  Math math{};
  Matmul product(Tensor& into) const {
    return {.a = a, .b = b, .out = into, .transpose_a = transpose_a, .transpose_b = transpose_b, .math = math};
  }
  void check() const;
  void visit(auto&& v) const {
    v.input("a", a), v.input("b", b), v.input("bias", bias), v.output("out", out);
    v.output(activation == FusedActivation::relu ? "mask" : "kept", kept);
    v.attribute(transpose_a), v.attribute(transpose_b), v.attribute(activation), v.attribute(math);
  }
};

// Which tensor is summed for the gradient of the bias: out over its rows, op(a) over k, or op(b) over k.
enum class BiasSums : uint8_t { none, out, a, b };

// out = (op(a) op(b)) f'(z), with what FusedMatmul has kept of z. dbias: sums in fp32 (fp64 for f64), rounded once; of the
// result before it is rounded. With an activation, out is the gradient of the layer's input and dbias that of the bias of the
// layer before. Without one, out is the gradient of a weight, and one of the operands is dy.
struct FusedMatmulBackward {
  static constexpr std::string_view name = "fused_matmul_backward";
  const Tensor& a;     // as in FusedMatmul
  const Tensor& b;     // likewise
  const Tensor& kept;  // empty without an activation
  Tensor& out;         // [m, n]
  Tensor& dbias;       // [n]; of the sums of a [m]; empty: none
  bool transpose_a = false, transpose_b = false;
  FusedActivation activation = FusedActivation::none;
  BiasSums sums = BiasSums::none;  // out only with an activation, a and b only without one
  Math math{};
  Matmul product(Tensor& into) const {
    return {.a = a, .b = b, .out = into, .transpose_a = transpose_a, .transpose_b = transpose_b, .math = math};
  }
  void check() const;
  void visit(auto&& v) const {
    v.input("a", a), v.input("b", b);
    v.input(activation == FusedActivation::relu ? "mask" : "kept", kept);
    v.output("out", out), v.output("dbias", dbias);
    v.attribute(transpose_a), v.attribute(transpose_b), v.attribute(activation), v.attribute(sums), v.attribute(math);
  }
};

// z = conv2d(x, w) + bias, out = z, or max(z, 0). Of a NaN, ReLU gives NaN.
struct FusedConv2d {
  static constexpr std::string_view name = "fused_conv2d";
  const Tensor& x;
  const Tensor& w;
  const Tensor& bias;  // [channels of out]; empty: none
  Tensor& out;
  bool relu = true;
  Window window{};
  int groups = 1;
  Math math{};
  Conv2d product(Tensor& into) const {
    return {.x = x, .w = w, .out = into, .window = window, .groups = groups, .math = math};
  }
  void check() const;
  void visit(auto&& v) const {
    v.input("x", x), v.input("w", w), v.input("bias", bias), v.output("out", out);
    v.attribute(relu), v.attribute(window), v.attribute(groups), v.attribute(math);
  }
};

}  // namespace halfmark::kernels
