// Rows for what the libraries refuse (mixtures of dtypes, odd layouts), at a fraction of the libraries' speed. Their
// kernels are in direct.cu.
#include <cstdint>
#include <string>

#include "kernels/cuda/rows.h"

namespace halfmark::kernels::cuda {
namespace {

Refusal refuses(const Math& math, const Tensor& left, const Tensor& right, const Tensor& out) {
  if (Refusal r = not_readable_dtype({&left, &right, &out})) return r;
  if (Refusal r = not_indexable({&left, &right, &out})) return r;
  if (Refusal r = not_readable({&left, &right})) return r;
  if (math.split_k != 1) return "does not split sums: split_k must be 1";
  if (!holds(math.multiply, left.dtype()) || !holds(math.multiply, right.dtype()))
    return "multiplies operands as stored, not rounded to " + std::string(math.multiply.name);
  if (math.accumulate == kFp64) return {};
  if (math.accumulate != kFp32) return "adds in fp32 or fp64, not " + std::string(math.accumulate.name);
  if (any_f64({&left, &right})) return "adds products of f64 only in fp64";
  return {};
}

bool wide(const Math& math) { return math.accumulate == kFp64; }

Refusal matmul_refuses(const Device&, const Matmul& op) {
  if (Refusal r = not_plain({&op.a, &op.b, &op.out})) return r;
  return refuses(op.math, op.a, op.b, op.out);
}
void matmul(Device& device, const Matmul& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(Layout::plain);
  const Shape &a = op.a.shape(), &out = op.out.shape();
  const MatmulArgs args{static_cast<uint32_t>(out[0]),
                        static_cast<uint32_t>(out[1]),
                        static_cast<uint32_t>(a[op.transpose_a ? 0 : 1]),
                        op.transpose_a,
                        op.transpose_b,
                        op.beta};
  launch_direct_matmul(cuda.stream(), args, wide(op.math), array(op.a), array(op.b), array(op.out));
}

Refusal batched_refuses(const Device&, const BatchedMatmul& op) {
  if (Refusal r = not_plain({&op.a, &op.b, &op.out})) return r;
  return refuses(op.math, op.a, op.b, op.out);
}
void batched(Device& device, const BatchedMatmul& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(Layout::plain);
  const Shape &a = op.a.shape(), &out = op.out.shape();
  const MatmulArgs args{static_cast<uint32_t>(out[1]),
                        static_cast<uint32_t>(out[2]),
                        static_cast<uint32_t>(a[op.transpose_a ? 1 : 2]),
                        op.transpose_a,
                        op.transpose_b,
                        0,
                        static_cast<uint32_t>(out[0])};
  launch_direct_matmul(cuda.stream(), args, wide(op.math), array(op.a), array(op.b), array(op.out));
}

Refusal conv_refuses(const Device&, const Conv2d& op) { return refuses(op.math, op.x, op.w, op.out); }
void conv(Device& device, const Conv2d& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(op.x.layout());
  launch_direct_conv(cuda.stream(), image(op.x), image(op.w), image(op.out),
                     window_args(op.window, op.w.shape()[2], op.w.shape()[3]), static_cast<uint32_t>(op.groups),
                     wide(op.math), array(op.x), array(op.w), array(op.out));
}

Refusal conv_backward_data_refuses(const Device&, const Conv2dBackwardData& op) {
  return refuses(op.math, op.dy, op.w, op.dx);
}
void conv_backward_data(Device& device, const Conv2dBackwardData& op) {
  CudaDevice& cuda = on(device);
  op.dx.materialize(op.dy.layout());
  launch_direct_conv_backward_data(
      cuda.stream(), image(op.dx), image(op.w), image(op.dy), window_args(op.window, op.w.shape()[2], op.w.shape()[3]),
      static_cast<uint32_t>(op.groups), wide(op.math), array(op.dy), array(op.w), array(op.dx));
}

Refusal conv_backward_weights_refuses(const Device&, const Conv2dBackwardWeights& op) {
  return refuses(op.math, op.x, op.dy, op.dw);
}
void conv_backward_weights(Device& device, const Conv2dBackwardWeights& op) {
  CudaDevice& cuda = on(device);
  op.dw.materialize(Layout::plain);  // in the layout of parameters, whatever the images have
  launch_direct_conv_backward_weights(cuda.stream(), image(op.x), image(op.dw), image(op.dy),
                                      window_args(op.window, op.dw.shape()[2], op.dw.shape()[3]),
                                      static_cast<uint32_t>(op.groups), wide(op.math), array(op.x), array(op.dy),
                                      array(op.dw));
}

}  // namespace

void add_direct_rows(KernelTable& table) {
  add_attention_rows(table), add_fused_rows(table);
  add_scaled_rows(table);
  table.of<Matmul>().push_back({"cuda-direct", Speed::emulated, matmul_refuses, matmul});
  table.of<BatchedMatmul>().push_back({"cuda-direct", Speed::emulated, batched_refuses, batched});
  table.of<Conv2d>().push_back({"cuda-direct", Speed::emulated, conv_refuses, conv});
  table.of<Conv2dBackwardData>().push_back(
      {"cuda-direct", Speed::emulated, conv_backward_data_refuses, conv_backward_data});
  table.of<Conv2dBackwardWeights>().push_back(
      {"cuda-direct", Speed::emulated, conv_backward_weights_refuses, conv_backward_weights});
}

}  // namespace halfmark::kernels::cuda
