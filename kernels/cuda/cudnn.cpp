// Convolutions by cuDNN: forward, backward data, backward weights.
//
// Only algorithms that sum the products as Math says are used. Winograd and FFT are excluded, because they transform
// the operands first and lose digits there; so are algorithms that add in a random order. Data is never converted down:
// FP32 runs with FMA_MATH, TF32 with DEFAULT_MATH (which permits it), never TENSOR_OP_MATH_ALLOW_CONVERSION.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "kernels/cuda/rows.h"

namespace halfmark::kernels::cuda {
namespace {

constexpr size_t kWorkspace = size_t{256} << 20;

template <class Handle, cudnnStatus_t (*create)(Handle*), cudnnStatus_t (*destroy)(Handle), const char* kCreate>
struct Owned {
  Handle handle = nullptr;
  Owned() { check(create(&handle), kCreate); }
  ~Owned() { destroy(handle); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
};
constexpr char kTensor[] = "cudnnCreateTensorDescriptor", kFilter[] = "cudnnCreateFilterDescriptor",
               kConvolution[] = "cudnnCreateConvolutionDescriptor";
using TensorDesc = Owned<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor, kTensor>;
using FilterDesc = Owned<cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor, kFilter>;
using ConvDesc = Owned<cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor,
                       cudnnDestroyConvolutionDescriptor, kConvolution>;

enum class Direction { forward, backward_data, backward_weights };

struct Plan {
  TensorDesc x, y;
  FilterDesc w;
  ConvDesc conv;
  int algorithm = 0;
  size_t workspace = 0;
  bool wide = false;    // alpha and beta are doubles
  std::string refusal;  // empty if there is an algorithm
};

// One convolution in any direction: image, filter, result, and the layout that all three have inside cuDNN.
struct Problem {
  Direction direction;
  const Tensor& x;
  const Tensor& w;
  const Tensor& y;
  const Window& window;
  int groups;
  const Math& math;
  const Tensor& leading;  // the input whose layout is used inside cuDNN
  Layout layout() const { return leading.layout(); }
};
Problem problem(const Conv2d& op) {
  return {Direction::forward, op.x, op.w, op.out, op.window, op.groups, op.math, op.x};
}
Problem problem(const Conv2dBackwardData& op) {
  return {Direction::backward_data, op.dx, op.w, op.dy, op.window, op.groups, op.math, op.dy};
}
Problem problem(const Conv2dBackwardWeights& op) {
  return {Direction::backward_weights, op.x, op.dw, op.dy, op.window, op.groups, op.math, op.x};
}

cudnnDataType_t type_of(DType dtype) {
  if (dtype == DType::f64) return CUDNN_DATA_DOUBLE;
  if (dtype == DType::f16) return CUDNN_DATA_HALF;
  if (dtype == DType::bf16) return CUDNN_DATA_BFLOAT16;
  if (dtype == DType::f32) return CUDNN_DATA_FLOAT;
  throw Error("no cuDNN type for " + std::string(name_of(dtype)));
}

Refusal math_of(const CudaDevice& device, const Problem& p, cudnnMathType_t& math_type) {
  const DType dtype = p.x.dtype();
  if (p.w.dtype() != dtype || p.y.dtype() != dtype) return "takes image, filter and result of one dtype";
  if (p.math.split_k != 1) return "chooses split-K itself: split_k must be 1";
  if (p.math.fast_accumulate) return "does not support fast accumulation";
  if ((dtype == DType::bf16 || p.math.multiply == kTf32) && device.compute_capability() < 80)
    return "needs compute capability 8.0 for bf16 and tf32";
  if (dtype == DType::f64) {
    if (!holds(p.math.multiply, dtype) || p.math.accumulate != kFp64) return "computes f64 only in fp64";
    math_type = CUDNN_FMA_MATH;
    return {};
  }
  // Compute type HALF does not guarantee FP16 sums, so it does not count as FP16 accumulation.
  if (p.math.accumulate != kFp32) return "adds in fp32 (fp64 for f64), not " + std::string(p.math.accumulate.name);
  if (dtype != DType::f32) {
    if (!holds(p.math.multiply, dtype)) return "does not round operands to " + std::string(p.math.multiply.name);
    math_type = CUDNN_TENSOR_OP_MATH;
    return {};
  }
  if (holds(p.math.multiply, dtype)) {
    math_type = CUDNN_FMA_MATH;
    return {};
  }
  if (p.math.multiply != kTf32) return "does not round f32 operands to " + std::string(p.math.multiply.name);
  const char* off = std::getenv("NVIDIA_TF32_OVERRIDE");
  if (off && std::string_view(off) == "0") return "TF32 is switched off by NVIDIA_TF32_OVERRIDE=0";
  math_type = CUDNN_DEFAULT_MATH;
  return {};
}

// The three directions differ only in types and in the names of functions.
template <Direction>
struct Api;
template <>
struct Api<Direction::forward> {
  using Algorithm = cudnnConvolutionFwdAlgo_t;
  using Result = cudnnConvolutionFwdAlgoPerf_t;
  static constexpr std::array kExact{CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
                                     CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_GEMM,
                                     CUDNN_CONVOLUTION_FWD_ALGO_DIRECT};
  static constexpr int kCount = CUDNN_CONVOLUTION_FWD_ALGO_COUNT;
  static constexpr const char* kCandidates = "cudnnGetConvolutionForwardAlgorithm_v7";
  static constexpr const char* kWorkspaceSize = "cudnnGetConvolutionForwardWorkspaceSize";
  static cudnnStatus_t candidates(cudnnHandle_t handle, const Plan& p, int wanted, int* found, Result* results) {
    return cudnnGetConvolutionForwardAlgorithm_v7(handle, p.x.handle, p.w.handle, p.conv.handle, p.y.handle, wanted,
                                                  found, results);
  }
  static cudnnStatus_t workspace(cudnnHandle_t handle, const Plan& p, Algorithm algorithm, size_t* bytes) {
    return cudnnGetConvolutionForwardWorkspaceSize(handle, p.x.handle, p.w.handle, p.conv.handle, p.y.handle, algorithm,
                                                   bytes);
  }
};
template <>
struct Api<Direction::backward_data> {
  using Algorithm = cudnnConvolutionBwdDataAlgo_t;
  using Result = cudnnConvolutionBwdDataAlgoPerf_t;
  static constexpr std::array kExact{CUDNN_CONVOLUTION_BWD_DATA_ALGO_1};  // 0 adds in a random order
  static constexpr int kCount = CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT;
  static constexpr const char* kCandidates = "cudnnGetConvolutionBackwardDataAlgorithm_v7";
  static constexpr const char* kWorkspaceSize = "cudnnGetConvolutionBackwardDataWorkspaceSize";
  static cudnnStatus_t candidates(cudnnHandle_t handle, const Plan& p, int wanted, int* found, Result* results) {
    return cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, p.w.handle, p.y.handle, p.conv.handle, p.x.handle,
                                                       wanted, found, results);
  }
  static cudnnStatus_t workspace(cudnnHandle_t handle, const Plan& p, Algorithm algorithm, size_t* bytes) {
    return cudnnGetConvolutionBackwardDataWorkspaceSize(handle, p.w.handle, p.y.handle, p.conv.handle, p.x.handle,
                                                        algorithm, bytes);
  }
};
template <>
struct Api<Direction::backward_weights> {
  using Algorithm = cudnnConvolutionBwdFilterAlgo_t;
  using Result = cudnnConvolutionBwdFilterAlgoPerf_t;
  static constexpr std::array kExact{CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1};  // 0 and 3 add in a random order
  static constexpr int kCount = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT;
  static constexpr const char* kCandidates = "cudnnGetConvolutionBackwardFilterAlgorithm_v7";
  static constexpr const char* kWorkspaceSize = "cudnnGetConvolutionBackwardFilterWorkspaceSize";
  static cudnnStatus_t candidates(cudnnHandle_t handle, const Plan& p, int wanted, int* found, Result* results) {
    return cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, p.x.handle, p.y.handle, p.conv.handle, p.w.handle,
                                                         wanted, found, results);
  }
  static cudnnStatus_t workspace(cudnnHandle_t handle, const Plan& p, Algorithm algorithm, size_t* bytes) {
    return cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, p.x.handle, p.y.handle, p.conv.handle, p.w.handle,
                                                          algorithm, bytes);
  }
};

// May an algorithm that reports `offered` replace the requested math type?
bool acceptable(cudnnMathType_t asked, cudnnMathType_t offered) {
  if (offered == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION) return false;
  if (asked == CUDNN_FMA_MATH) return offered != CUDNN_TENSOR_OP_MATH;
  if (asked == CUDNN_DEFAULT_MATH) return offered != CUDNN_FMA_MATH;  // TF32 must not silently be FP32
  return true;
}

// An answer about the convolution; any other status than success is a failure of the call.
bool is_refusal(cudnnStatus_t status) {
  const int category = CUDNN_STATUS_CATEGORY(static_cast<int>(status));
  return category == CUDNN_STATUS_BAD_PARAM || category == CUDNN_STATUS_NOT_SUPPORTED;
}

template <Direction kDirection>
void choose_algorithm(cudnnHandle_t handle, cudnnMathType_t math_type, Plan& plan) {
  using A = Api<kDirection>;
  // Each algorithm is listed once per math type.
  std::array<typename A::Result, 3 * A::kCount> results{};
  int found = 0;
  const cudnnStatus_t status = A::candidates(handle, plan, static_cast<int>(results.size()), &found, results.data());
  if (!is_refusal(status)) check(status, A::kCandidates);
  if (status != CUDNN_STATUS_SUCCESS) {
    plan.refusal = std::string("has no algorithm for this (") + cudnnGetErrorString(status) + ")";
    return;
  }
  for (int i = 0; i < found; ++i) {
    const auto& result = results[static_cast<size_t>(i)];
    if (result.status != CUDNN_STATUS_SUCCESS || result.determinism != CUDNN_DETERMINISTIC) continue;
    if (std::find(A::kExact.begin(), A::kExact.end(), result.algo) == A::kExact.end()) continue;
    if (!acceptable(math_type, result.mathType)) continue;
    // Algorithm and math type belong together. FMA_MATH is kept, because it guarantees that FP32 is FP32.
    HM_CUDNN(cudnnSetConvolutionMathType(plan.conv.handle, math_type == CUDNN_FMA_MATH ? math_type : result.mathType));
    size_t bytes = 0;
    const cudnnStatus_t asked = A::workspace(handle, plan, result.algo, &bytes);
    if (is_refusal(asked)) continue;
    check(asked, A::kWorkspaceSize);
    if (bytes > kWorkspace) continue;
    plan.algorithm = static_cast<int>(result.algo);
    plan.workspace = bytes;
    return;
  }
  plan.refusal = "offers only algorithms that transform the operands, add in a random order or use another precision";
}

void describe(cudnnTensorDescriptor_t desc, const Shape& s, DType dtype, cudnnTensorFormat_t format) {
  HM_CUDNN(cudnnSetTensor4dDescriptor(desc, format, type_of(dtype), static_cast<int>(s[0]), static_cast<int>(s[1]),
                                      static_cast<int>(s[2]), static_cast<int>(s[3])));
}

std::unique_ptr<Plan> make_plan(const CudaDevice& device, const Problem& p) {
  auto plan = std::make_unique<Plan>();
  cudnnMathType_t math_type = CUDNN_FMA_MATH;
  if (Refusal r = math_of(device, p, math_type)) {
    plan->refusal = *r;
    return plan;
  }
  const DType dtype = p.x.dtype();
  const cudnnTensorFormat_t format = p.layout() == Layout::nhwc ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
  describe(plan->x.handle, p.x.shape(), dtype, format);
  describe(plan->y.handle, p.y.shape(), dtype, format);
  const Shape& w = p.w.shape();
  HM_CUDNN(cudnnSetFilter4dDescriptor(plan->w.handle, type_of(dtype), format, static_cast<int>(w[0]),
                                      static_cast<int>(w[1]), static_cast<int>(w[2]), static_cast<int>(w[3])));
  plan->wide = dtype == DType::f64;
  HM_CUDNN(cudnnSetConvolution2dDescriptor(plan->conv.handle, p.window.pad_h, p.window.pad_w, p.window.stride_h,
                                           p.window.stride_w, p.window.dilation_h, p.window.dilation_w,
                                           CUDNN_CROSS_CORRELATION, plan->wide ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT));
  HM_CUDNN(cudnnSetConvolutionGroupCount(plan->conv.handle, p.groups));
  HM_CUDNN(cudnnSetConvolutionMathType(plan->conv.handle, math_type));
  switch (p.direction) {
    case Direction::forward:
      choose_algorithm<Direction::forward>(device.cudnn(), math_type, *plan);
      break;
    case Direction::backward_data:
      choose_algorithm<Direction::backward_data>(device.cudnn(), math_type, *plan);
      break;
    case Direction::backward_weights:
      choose_algorithm<Direction::backward_weights>(device.cudnn(), math_type, *plan);
      break;
  }
  return plan;
}

using Plans = std::unordered_map<Signature, std::unique_ptr<Plan>, SignatureHash>;

const Plan& plan_for(const CudaDevice& device, const Problem& p) {
  if (!device.cudnn_plans) device.cudnn_plans = std::make_shared<Plans>();
  auto& plans = *static_cast<Plans*>(device.cudnn_plans.get());
  Signature key;
  key.add(static_cast<int64_t>(p.direction)), key.add(static_cast<int64_t>(p.layout())), key.add(int64_t{p.groups});
  for (const Tensor* tensor : {&p.x, &p.w, &p.y}) {
    key.add(static_cast<int64_t>(tensor->dtype()));
    for (const int64_t extent : tensor->shape().extents()) key.add(extent);
  }
  ops_detail::SignatureVisitor visitor{key};
  visitor.attribute(p.window), visitor.attribute(p.math);
  if (const auto found = plans.find(key); found != plans.end()) return *found->second;
  device.activate();
  auto plan = make_plan(device, p);
  return *plans.emplace(std::move(key), std::move(plan)).first->second;
}

Refusal refuses(const Device& device, const Problem& p, std::initializer_list<const Tensor*> inputs) {
  if (Refusal r = not_for_library({&p.x, &p.w, &p.y})) return r;
  if (Refusal r = not_indexable({&p.x, &p.w, &p.y})) return r;
  if (Refusal r = not_readable(inputs)) return r;
  const Plan& plan = plan_for(of(device), p);
  if (!plan.refusal.empty()) return plan.refusal;
  return {};
}

struct Scalars {
  float narrow[2] = {1, 0};
  double wide[2] = {1, 0};
  const void* one(const Plan& plan) const { return plan.wide ? static_cast<const void*>(&wide[0]) : &narrow[0]; }
  const void* zero(const Plan& plan) const { return plan.wide ? static_cast<const void*>(&wide[1]) : &narrow[1]; }
};

// The output inside cuDNN: itself, or a workspace in the working layout that is reordered afterwards.
Tensor working_output(Device& device, Tensor& out, Layout layout) {
  return out.layout() == layout ? out : workspace(device, out.shape(), out.dtype(), layout);
}
void deliver(CudaDevice& device, const Tensor& from, const Tensor& to) {
  if (from.data() != to.data()) reorder(device, from, to);
}

Refusal forward_refuses(const Device& device, const Conv2d& op) { return refuses(device, problem(op), {&op.x, &op.w}); }
void forward(Device& device, const Conv2d& op) {
  CudaDevice& cuda = on(device);
  const Plan& plan = plan_for(cuda, problem(op));
  HM_CHECK(plan.refusal.empty(), "cudnn " + plan.refusal);
  op.out.materialize(op.x.layout());
  const Tensor w = in_layout(cuda, op.w, op.x.layout());
  Tensor out = working_output(device, op.out, op.x.layout());
  Tensor scratch = workspace(device, std::max<size_t>(plan.workspace, 1));
  const Scalars s;
  HM_CUDNN(cudnnConvolutionForward(cuda.cudnn(), s.one(plan), plan.x.handle, op.x.data(), plan.w.handle, w.data(),
                                   plan.conv.handle, static_cast<cudnnConvolutionFwdAlgo_t>(plan.algorithm),
                                   scratch.data(), plan.workspace, s.zero(plan), plan.y.handle, out.data()));
  deliver(cuda, out, op.out);
}

Refusal backward_data_refuses(const Device& device, const Conv2dBackwardData& op) {
  return refuses(device, problem(op), {&op.dy, &op.w});
}
void backward_data(Device& device, const Conv2dBackwardData& op) {
  CudaDevice& cuda = on(device);
  const Plan& plan = plan_for(cuda, problem(op));
  HM_CHECK(plan.refusal.empty(), "cudnn " + plan.refusal);
  op.dx.materialize(op.dy.layout());
  const Tensor w = in_layout(cuda, op.w, op.dy.layout());
  Tensor dx = working_output(device, op.dx, op.dy.layout());
  Tensor scratch = workspace(device, std::max<size_t>(plan.workspace, 1));
  const Scalars s;
  HM_CUDNN(cudnnConvolutionBackwardData(cuda.cudnn(), s.one(plan), plan.w.handle, w.data(), plan.y.handle, op.dy.data(),
                                        plan.conv.handle, static_cast<cudnnConvolutionBwdDataAlgo_t>(plan.algorithm),
                                        scratch.data(), plan.workspace, s.zero(plan), plan.x.handle, dx.data()));
  deliver(cuda, dx, op.dx);
}

Refusal backward_weights_refuses(const Device& device, const Conv2dBackwardWeights& op) {
  return refuses(device, problem(op), {&op.x, &op.dy});
}
void backward_weights(Device& device, const Conv2dBackwardWeights& op) {
  CudaDevice& cuda = on(device);
  const Plan& plan = plan_for(cuda, problem(op));
  HM_CHECK(plan.refusal.empty(), "cudnn " + plan.refusal);
  op.dw.materialize(Layout::plain);  // in the layout of parameters, whatever the images have
  const Tensor dy = in_layout(cuda, op.dy, op.x.layout());
  Tensor dw = working_output(device, op.dw, op.x.layout());
  Tensor scratch = workspace(device, std::max<size_t>(plan.workspace, 1));
  const Scalars s;
  HM_CUDNN(cudnnConvolutionBackwardFilter(cuda.cudnn(), s.one(plan), plan.x.handle, op.x.data(), plan.y.handle,
                                          dy.data(), plan.conv.handle,
                                          static_cast<cudnnConvolutionBwdFilterAlgo_t>(plan.algorithm), scratch.data(),
                                          plan.workspace, s.zero(plan), plan.w.handle, dw.data()));
  deliver(cuda, dw, op.dw);
}

}  // namespace

void add_cudnn_rows(KernelTable& table) {
  table.of<Conv2d>().push_back({"cudnn", Speed::real, forward_refuses, forward});
  table.of<Conv2dBackwardData>().push_back({"cudnn", Speed::real, backward_data_refuses, backward_data});
  table.of<Conv2dBackwardWeights>().push_back({"cudnn", Speed::real, backward_weights_refuses, backward_weights});
}

}  // namespace halfmark::kernels::cuda
