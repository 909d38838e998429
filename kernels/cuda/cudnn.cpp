// Rows `cudnn`: convolutions forward, backward data and backward weights, grouped and dilated, in both layouts, by the
// graph API. What is promised, and how it is held, is in cudnn_plan.h.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/cuda/blaslt_plan.h"
#include "kernels/cuda/cudnn_plan.h"
#include "kernels/cuda/kept_plans.h"
#include "kernels/cuda/rows.h"

namespace halfmark::kernels::cuda {
namespace {

// One convolution in any direction: image, filter, result, and the input whose layout all three have inside cuDNN.
struct Problem {
  Direction direction;
  const Tensor &x, &w, &y;
  const Window& window;
  const Math& math;
  const Tensor& leading;
  Layout layout() const { return leading.layout(); }
};
Problem problem(const Conv2d& op) { return {Direction::forward, op.x, op.w, op.out, op.window, op.math, op.x}; }
Problem problem(const Conv2dBackwardData& op) {
  return {Direction::backward_data, op.dx, op.w, op.dy, op.window, op.math, op.dy};
}
Problem problem(const Conv2dBackwardWeights& op) {
  return {Direction::backward_weights, op.x, op.dw, op.dy, op.window, op.math, op.x};
}

Refusal arithmetic_of(const CudaDevice& device, const Problem& p, TensorCores& tensor_cores) {
  const DType dtype = p.x.dtype();
  if (p.w.dtype() != dtype || p.y.dtype() != dtype) return "takes image, filter and result of one dtype";
  return convolution_arithmetic(device, dtype, p.math, tensor_cores);
}

// `x`, `w`, `y`: the memory, which may be a copy in the working layout.
const ConvolutionPlan& plan_for(const CudaDevice& device, const Problem& p, TensorCores tensor_cores, const Tensor& x,
                                const Tensor& w, const Tensor& y) {
  ConvolutionProblem made;
  made.direction = p.direction, made.dtype = p.x.dtype(), made.tensor_cores = tensor_cores;
  made.x = p.x.shape(), made.w = p.w.shape(), made.y = p.y.shape();
  made.last = p.layout() == Layout::nhwc, made.window = p.window;
  made.alignment_x = alignment_of(x), made.alignment_w = alignment_of(w), made.alignment_y = alignment_of(y);
  Signature key;
  for (const int64_t one :
       {static_cast<int64_t>(made.direction), static_cast<int64_t>(made.dtype), static_cast<int64_t>(tensor_cores),
        int64_t{made.last}, int64_t{made.alignment_x}, int64_t{made.alignment_w}, int64_t{made.alignment_y}})
    key.add(one);
  for (const Shape* shape : {&made.x, &made.w, &made.y})
    for (const int64_t extent : shape->extents()) key.add(extent);
  ops_detail::SignatureVisitor visitor{key};
  visitor.attribute(p.window);
  return plans_in<ConvolutionPlan>(device.cudnn_plans).of(device, key, [&](CudaDevice& tried_on) {
    return make_convolution_plan(tried_on, made);
  });
}

Refusal refuses(const Device& device, const Problem& p, std::initializer_list<const Tensor*> inputs) {
  if (Refusal r = not_for_library({&p.x, &p.w, &p.y})) return r;
  if (Refusal r = not_indexable({&p.x, &p.w, &p.y})) return r;
  if (Refusal r = not_readable(inputs)) return r;
  TensorCores tensor_cores = TensorCores::excluded;
  if (Refusal r = arithmetic_of(of(device), p, tensor_cores)) return r;
  const ConvolutionPlan& plan = plan_for(of(device), p, tensor_cores, p.x, p.w, p.y);
  if (!plan.refusal().empty()) return plan.refusal();
  return {};
}

template <class Op>
std::string choice(const Device& device, const Op& op) {
  const Problem p = problem(op);
  TensorCores tensor_cores = TensorCores::excluded;
  (void)arithmetic_of(of(device), p, tensor_cores);
  return plan_for(of(device), p, tensor_cores, p.x, p.w, p.y).choice();
}

void run(CudaDevice& device, const Problem& p, const Tensor& x, const Tensor& w, const Tensor& y) {
  TensorCores tensor_cores = TensorCores::excluded;
  if (const Refusal r = arithmetic_of(device, p, tensor_cores)) throw Error("cudnn " + *r);
  const ConvolutionPlan& plan = plan_for(device, p, tensor_cores, x, w, y);
  HM_CHECK(plan.refusal().empty(), "cudnn " + plan.refusal());
  const Tensor scratch = workspace(device, std::max<size_t>(plan.workspace_bytes(), 1));
  plan.run(device, x.data(), w.data(), y.data(), const_cast<void*>(scratch.data()));
}

// The output inside cuDNN: itself, or a workspace in the working layout that is reordered afterwards.
Tensor working_output(Device& device, Tensor& out, Layout layout) {
  return has_layout(out, layout) ? out : workspace(device, out.shape(), out.dtype(), layout);
}
void deliver(CudaDevice& device, const Tensor& from, const Tensor& to) {
  if (from.data() != to.data()) reorder(device, from, to);
}

Refusal forward_refuses(const Device& device, const Conv2d& op) { return refuses(device, problem(op), {&op.x, &op.w}); }
void forward(Device& device, const Conv2d& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(op.x.layout());
  const Tensor w = in_layout(cuda, op.w, op.x.layout());
  const Tensor out = working_output(device, op.out, op.x.layout());
  run(cuda, problem(op), op.x, w, out);
  deliver(cuda, out, op.out);
}

Refusal backward_data_refuses(const Device& device, const Conv2dBackwardData& op) {
  return refuses(device, problem(op), {&op.dy, &op.w});
}
void backward_data(Device& device, const Conv2dBackwardData& op) {
  CudaDevice& cuda = on(device);
  op.dx.materialize(op.dy.layout());
  const Tensor w = in_layout(cuda, op.w, op.dy.layout());
  const Tensor dx = working_output(device, op.dx, op.dy.layout());
  run(cuda, problem(op), dx, w, op.dy);
  deliver(cuda, dx, op.dx);
}

Refusal backward_weights_refuses(const Device& device, const Conv2dBackwardWeights& op) {
  return refuses(device, problem(op), {&op.x, &op.dy});
}
void backward_weights(Device& device, const Conv2dBackwardWeights& op) {
  CudaDevice& cuda = on(device);
  op.dw.materialize(Layout::plain);  // in the layout of parameters, whatever the images have
  const Tensor dy = in_layout(cuda, op.dy, op.x.layout());
  const Tensor dw = working_output(device, op.dw, op.x.layout());
  run(cuda, problem(op), op.x, dw, dy);
  deliver(cuda, dw, op.dw);
}

template <class Op>
void add_row(KernelTable& table, Refusal (*refuses)(const Device&, const Op&), void (*run)(Device&, const Op&)) {
  Kernel<Op> row{"cudnn", Speed::real, refuses, run};
  row.choice = choice<Op>;
  table.of<Op>().push_back(row);
}

}  // namespace

Refusal convolution_arithmetic(const CudaDevice& device, DType dtype, const Math& math, TensorCores& tensor_cores) {
  if (math.split_k != 1) return "chooses split-K itself: split_k must be 1";
  if (math.fast_accumulate) return "does not support fast accumulation";
  if ((dtype == DType::bf16 || math.multiply == kTf32) && device.compute_capability() < 80)
    return "needs compute capability 8.0 for bf16 and tf32";
  tensor_cores = TensorCores::allowed;
  if (dtype == DType::f64) {
    if (!holds(math.multiply, dtype) || math.accumulate != kFp64) return "computes f64 only in fp64";
    return {};
  }
  // Compute type HALF does not guarantee FP16 sums, so it does not count as FP16 accumulation.
  if (math.accumulate != kFp32) return "adds in fp32 (fp64 for f64), not " + std::string(math.accumulate.name);
  if (holds(math.multiply, dtype)) {
    if (dtype == DType::f32) tensor_cores = TensorCores::excluded;
    return {};
  }
  if (dtype != DType::f32 || math.multiply != kTf32)
    return "does not round " + std::string(name_of(dtype)) + " operands to " + std::string(math.multiply.name);
  const char* off = std::getenv("NVIDIA_TF32_OVERRIDE");
  if (off && std::string_view(off) == "0") return "TF32 is switched off by NVIDIA_TF32_OVERRIDE=0";
  tensor_cores = TensorCores::needed;
  return {};
}

void add_cudnn_rows(KernelTable& table) {
  add_row<Conv2d>(table, forward_refuses, forward);
  add_row<Conv2dBackwardData>(table, backward_data_refuses, backward_data);
  add_row<Conv2dBackwardWeights>(table, backward_weights_refuses, backward_weights);
}

}  // namespace halfmark::kernels::cuda
