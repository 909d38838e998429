// The cases that the benchmarks of kernel rows measure: those of the tests' descriptions, with sizes of their own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bench/namespaces.h"
#include "kernels/number/error.h"
#include "kernels/ops/cases/operands.h"

namespace halfmark::bench::micro {

struct MeasuredSizes {
  Shape image;       // of element-wise operations, norms, pools and optimizers too
  Shape loss{1, 1};  // scores: samples, classes
  Shape quantized{1, 1};
  int64_t matrix = 1, block_scaled = 32, dots = 1;
  Layout layout = Layout::plain;  // of images
  ops_cases::SingleShapes single = {};
};

// One case of each operation: operands of a dtype.
ops_cases::Axes measured_axes(DType dtype, const MeasuredSizes& sizes);

// Calls f(op) with the case of an operation.
template <class Op, class F>
void with_case(Device& device, const ops_cases::Axes& axes, bool filled, F f) {
  int made = 0;
  ops_cases::Cases<Op>::each({device, axes, true, filled},
                             [&](const std::string&, const Op& op, const ops_cases::Comparison&) {
                               ++made;
                               f(op);
                             });
  HM_CHECK(made == 1, std::string(Op::name) + " has " + std::to_string(made) +
                          " cases to measure instead of 1: measured_axes() must give one for each operation");
}

// 0 if the operation does not count them.
double flops_of(const auto&) { return 0; }
inline double flops_of(const Matmul& op) {
  return 2.0 * static_cast<double>(op.out.elements() * op.a.shape()[op.transpose_a ? 0 : 1]);
}
inline double flops_of(const BatchedMatmul& op) {
  return 2.0 * static_cast<double>(op.out.elements() * op.a.shape()[op.transpose_a ? 1 : 2]);
}
inline double flops_of(const FusedMatmul& op) { return flops_of(op.product(op.out)); }  // without those of the epilogue
inline double flops_of(const FusedMatmulBackward& op) { return flops_of(op.product(op.out)); }
inline double flops_of(const ScaledMatmul& op) {
  return 2.0 * static_cast<double>(op.out.elements() * op.a.codes.shape()[1]);
}
inline double flops_of(const DotProducts& op) { return 2.0 * static_cast<double>(op.a.elements()); }
inline double convolution_flops(const Tensor& y, const Tensor& w) {
  return 2.0 * static_cast<double>(y.elements() * (w.elements() / w.shape()[0]));
}
inline double flops_of(const Conv2d& op) { return convolution_flops(op.out, op.w); }
inline double flops_of(const FusedConv2d& op) { return convolution_flops(op.out, op.w); }
inline double flops_of(const Conv2dBackwardData& op) { return convolution_flops(op.dy, op.w); }
inline double flops_of(const Conv2dBackwardWeights& op) { return convolution_flops(op.dy, op.dw); }
// Two products forward, five backward: scores, and the gradients of the scores, q, k and v. All keys count.
inline double attention_flops(const Tensor& q, const Tensor& k, int products) {
  return 2.0 * products * static_cast<double>(q.elements() * k.shape()[2]);
}
inline double flops_of(const Attention& op) { return attention_flops(op.q, op.k, 2); }
inline double flops_of(const AttentionBackward& op) { return attention_flops(op.q, op.k, 5); }
inline double packed_attention_flops(const Tensor& qkv, int products) {
  return 2.0 * products * static_cast<double>(qkv.elements() / 3 * qkv.shape()[1]);
}
inline double flops_of(const PackedAttention& op) { return packed_attention_flops(op.qkv, 2); }
inline double flops_of(const PackedAttentionBackward& op) { return packed_attention_flops(op.qkv, 5); }

struct FirstShape {  // "8x32x28x28": the shape of the first operand
  std::string text;
  void input(std::string_view, const Tensor& tensor) { see(tensor); }
  void output(std::string_view, const Tensor& tensor) { see(tensor); }
  void attribute(const auto&) {}
  void see(const Tensor& tensor) {
    if (!text.empty() || tensor.empty()) return;
    for (const int64_t extent : tensor.shape().extents()) text += (text.empty() ? "" : "x") + std::to_string(extent);
  }
};

// "relu/f32->f32/8x32x28x28-nhwc/cpu/onednn"; `tag`: "nhwc", may be empty.
template <class Op>
std::string name_of_case(const Op& op, const std::string& tag, const std::string& device, std::string_view row) {
  FirstShape first;
  op.visit(first);
  if (!tag.empty()) first.text += "-" + tag;
  std::string name(Op::name);
  for (const std::string& part : {dtypes_of(op), first.text, device, std::string(row)}) name.append("/").append(part);
  return name;
}

}  // namespace halfmark::bench::micro
