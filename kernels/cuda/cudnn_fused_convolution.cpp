// Row `cudnn` of convolutions with bias and ReLU: one graph. Its sums are promised as those of any convolution
// (cudnn_plan.h). NVIDIA does not document how widely an engine computes what is between the operations, nor what its ReLU
// makes of a NaN, so an engine is used only if it passes a trial (cudnn_graph_plan.h) on numbers whose sums are exact: the
// bits of its result are those of another row.
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/blaslt_plan.h"
#include "kernels/cuda/cudnn_graph_plan.h"
#include "kernels/cuda/cudnn_plan.h"
#include "kernels/cuda/rows.h"
#include "kernels/tensor/random.h"

namespace halfmark::kernels::cuda {
namespace {

constexpr uint32_t kOperandAlignment = 16;  // bytes

ConvolutionProblem fused_convolution_problem(const FusedConv2d& op, TensorCores tensor_cores) {
  ConvolutionProblem p;
  p.dtype = op.x.dtype(), p.tensor_cores = tensor_cores;
  p.x = op.x.shape(), p.w = op.w.shape(), p.y = op.out.shape();
  p.last = op.x.layout() == Layout::nhwc, p.window = op.window;
  p.alignment_x = p.alignment_w = p.alignment_y = kOperandAlignment;
  p.bias = !op.bias.empty(), p.relu = op.relu;
  return p;
}

CudnnOperands fused_convolution_operands(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& y) {
  CudnnOperands o;
  o.add(convolution_ids::kX, x.data()), o.add(convolution_ids::kW, w.data()), o.add(convolution_ids::kY, y.data());
  if (!bias.empty()) o.add(convolution_ids::kBias, bias.data());
  return o;
}

// Integers between -most and most; drawing takes long.
std::vector<double> tried_integers(const Shape& shape, uint64_t most, uint64_t seed) {
  constexpr size_t kDrawn = 1'000'003;  // a prime, so that no two lines are alike
  const RandomKey key(seed);
  std::vector<double> values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] =
        i < kDrawn ? static_cast<double>(key.below(i, 2 * most + 1)) - static_cast<double>(most) : values[i - kDrawn];
  return values;
}

// Products of integers of 8 and of 5 bits are exact in TF32 and in half types, and so are their sums in fp32 in any order.
// Most sums have more bits than a half type: a second rounding before the bias is added shows. One value of the image is
// NaN, and the bias of one channel is infinite.
GraphTrial fused_convolution_trial(CudaDevice& device, const ConvolutionProblem& p) {
  const Layout layout = p.last ? Layout::nhwc : Layout::plain;
  const bool is_f64 = p.dtype == DType::f64;
  const DType wide = is_f64 ? DType::f64 : DType::f32;
  const Shape channels{p.y[1]};
  std::vector<double> xv = tried_integers(p.x, 127, 1), bv = tried_integers(channels, 127, 3);
  const std::vector<double> wv = tried_integers(p.w, 15, 2);
  if (p.y[0] * p.y[2] * p.y[3] > 1) xv[0] = NAN;
  if (bv.size() > 3) bv.back() = HUGE_VAL;
  const auto image = [&](const Shape& shape, DType dtype, const std::vector<double>& values) {
    return Tensor::from(device, shape, dtype, values, layout);
  };
  const Tensor x = image(p.x, p.dtype, xv), w = image(p.w, p.dtype, wv),
               bias = p.bias ? Tensor::from(device, channels, p.dtype, bv) : Tensor();
  Tensor out(device, p.y, p.dtype, layout), own(device, p.y, p.dtype, layout);
  const Tensor wide_x = image(p.x, wide, xv), wide_w = image(p.w, wide, wv);
  run_own_row(device,
              FusedConv2d{.x = wide_x,
                          .w = wide_w,
                          .bias = bias,
                          .out = own,
                          .relu = p.relu,
                          .window = p.window,
                          .groups = static_cast<int>(p.x[1] / p.w[1]),
                          .math = is_f64 ? Math{.multiply = kFp64, .accumulate = kFp64, .partial = kFp64} : Math{}});
  return {.operands = fused_convolution_operands(x, w, bias, out),
          .memory = {x, w, bias},
          .results = {{"out", out, own, 0, true}}};
}

const GraphPlan& fused_convolution_plan(const CudaDevice& device, const ConvolutionProblem& p) {
  Signature key;
  constexpr int64_t kFusedConvolution = 3;
  for (const int64_t one : {kFusedConvolution, static_cast<int64_t>(p.dtype), static_cast<int64_t>(p.tensor_cores),
                            int64_t{p.last}, int64_t{p.bias}, int64_t{p.relu}})
    key.add(one);
  for (const Shape* shape : {&p.x, &p.w, &p.y})
    for (const int64_t extent : shape->extents()) key.add(extent);
  ops_detail::SignatureVisitor visitor{key};
  visitor.attribute(p.window);
  return graph_plan(device, key, [&](CudaDevice& tried_on) {
    return std::make_unique<GraphPlan>(
        tried_on, p.x.text() + " by " + p.w.text() + (p.last ? " nhwc" : ""), p.tensor_cores,
        [&](const CudnnTarget& target) { return convolution_graph(target, p); },
        [&](CudaDevice& one) { return fused_convolution_trial(one, p); });
  });
}

Refusal fused_convolution_arithmetic(const CudaDevice& device, const FusedConv2d& op, TensorCores& tensor_cores) {
  const DType dtype = op.x.dtype();
  for (const Tensor* one : {&op.w, &op.bias, static_cast<const Tensor*>(&op.out)})
    if (!one->empty() && one->dtype() != dtype) return "takes image, filter, bias and result of one dtype";
  return convolution_arithmetic(device, dtype, op.math, tensor_cores);
}

const GraphPlan& fused_convolution_plan(const CudaDevice& device, const FusedConv2d& op) {
  TensorCores tensor_cores = TensorCores::excluded;
  if (const Refusal r = fused_convolution_arithmetic(device, op, tensor_cores)) throw Error("cudnn " + *r);
  return fused_convolution_plan(device, fused_convolution_problem(op, tensor_cores));
}

Refusal fused_convolution_refuses(const Device& device, const FusedConv2d& op) {
  if (Refusal r = not_for_library({&op.x, &op.w, &op.bias, &op.out})) return r;
  if (Refusal r = not_indexable({&op.x, &op.w, &op.bias, &op.out})) return r;
  if (Refusal r = not_readable({&op.x, &op.w})) return r;
  if (Refusal r = not_plain({&op.bias})) return r;
  TensorCores tensor_cores = TensorCores::excluded;
  if (Refusal r = fused_convolution_arithmetic(of(device), op, tensor_cores)) return r;
  const GraphPlan& plan = fused_convolution_plan(of(device), op);
  if (!plan.refusal().empty()) return plan.refusal();
  return {};
}

std::string fused_convolution_choice(const Device& device, const FusedConv2d& op) {
  return fused_convolution_plan(of(device), op).choice();
}

// The graph promises where operands begin; a parameter may begin anywhere in a larger one.
bool begins_aligned(const Tensor& tensor) { return tensor.empty() || alignment_of(tensor) >= kOperandAlignment; }
Tensor aligned_operand(CudaDevice& device, const Tensor& tensor) {
  if (begins_aligned(tensor)) return tensor;
  const Tensor copy = workspace(device, tensor.shape(), tensor.dtype(), tensor.layout());
  reorder(device, tensor, copy);
  return copy;
}

void run_fused_convolution(Device& device, const FusedConv2d& op) {
  CudaDevice& cuda = on(device);
  const Layout layout = op.x.layout();
  op.out.materialize(layout);
  const Tensor x = aligned_operand(cuda, op.x), w = aligned_operand(cuda, in_layout(cuda, op.w, layout)),
               bias = aligned_operand(cuda, op.bias);
  const bool is_direct = has_layout(op.out, layout) && begins_aligned(op.out);
  const Tensor out = is_direct ? op.out : workspace(device, op.out.shape(), op.out.dtype(), layout);
  const GraphPlan& plan = fused_convolution_plan(cuda, op);
  HM_CHECK(plan.refusal().empty(), "cudnn " + plan.refusal());
  plan.run(cuda, fused_convolution_operands(x, w, bias, out));
  if (!is_direct) reorder(cuda, out, op.out);
}

}  // namespace

void add_cudnn_fused_convolution_row(KernelTable& table) {
  add_compared_row<FusedConv2d>(table, fused_convolution_refuses, run_fused_convolution, fused_convolution_choice);
}

}  // namespace halfmark::kernels::cuda
