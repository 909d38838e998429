// Every operation as a struct, and run(op), which runs the first row of the device that supports it.
//
// Shapes: images are [n, c, h, w], filters [out, in / groups, kh, kw], matrices [rows, columns]; the tensor has its own
// layout. Outputs may be of layout `any`. Elementwise operations may write over their input. Arithmetic of a row:
// operands are read as stored, computed in Math's formats (elementwise: at least fp32), and every output is rounded
// once to its dtype.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "kernels/ops/activations.h"
#include "kernels/ops/kernel.h"
#include "kernels/ops/matrix_instruction.h"
#include "kernels/tensor/scaled.h"

namespace halfmark::kernels {

// How sums of products are computed, independent of how the operands are stored.
struct Math {
  Format multiply = kFp32;    // operands are rounded to this format first (tf32); products are exact
  Format accumulate = kFp32;  // after every addition
  Format partial = kFp32;     // of the split-K partial sums
  int split_k = 1;
  bool fast_accumulate = false;
  friend bool operator==(const Math&, const Math&) = default;
};

struct Window {  // of a convolution or pooling
  int stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1;
  friend bool operator==(const Window&, const Window&) = default;
};
// Throws Error naming the operation.
void check_same_shape(std::string_view operation, const Tensor& a, const Tensor& b);
int64_t window_extent(int64_t input, int64_t kernel, int stride, int pad, int dilation);  // output rows or columns

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
    v.input("a", a), v.input("b", b), v.output("out", out);
    v.attribute(transpose_a), v.attribute(transpose_b), v.attribute(math), v.attribute(beta);
  }
};

// out = a b^T, where blocks of k share a scale (MX, NVFP4). Sums are fp32 sums of (code * scale) * (code * scale). The
// tensor scales multiply the finished sum, in fp32, as the factor of a library's matmul does. The result is rounded
// once to the dtype of out.
struct ScaledMatmul {
  static constexpr std::string_view name = "scaled_matmul";
  const Scaled& a;  // [m, k]
  const Scaled& b;  // [n, k]
  Tensor& out;      // [m, n]
  double factor() const { return static_cast<double>(a.tensor_scale * b.tensor_scale); }
  void check() const;
  void visit(auto&& v) const {
    v.input("a", a.codes), v.input("b", b.codes), v.input("scale_a", a.scales), v.input("scale_b", b.scales);
    v.output("out", out), v.attribute(factor());
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

struct AddBias {  // out = x + bias, along axis 1
  static constexpr std::string_view name = "add_bias";
  const Tensor& x;     // [n, c] or [n, c, h, w]
  const Tensor& bias;  // [c]
  Tensor& out;
  void check() const;
  void visit(auto&& v) const { v.input("x", x), v.input("bias", bias), v.output("out", out); }
};

struct BiasGradient {  // dbias[c] = sum of dy over all other axes, summed in fp32 (fp64 for f64)
  static constexpr std::string_view name = "bias_gradient";
  const Tensor& dy;
  Tensor& dbias;
  void check() const;
  void visit(auto&& v) const { v.input("dy", dy), v.output("dbias", dbias); }
};

// Training batch norm: out = scale (x - mean) / sqrt(variance + epsilon) + shift with the biased variance of the batch;
// running <- (1 - momentum) running + momentum batch, with the unbiased variance there. Statistics are at least fp32.
struct BatchNorm {
  static constexpr std::string_view name = "batch_norm";
  const Tensor& x;      // [n, c, h, w]
  const Tensor& scale;  // [c]
  const Tensor& shift;  // [c]
  Tensor& out;
  Tensor& mean;              // [c] f32 (f64 for f64): of this batch, for backward
  Tensor& variance;          // [c] likewise, biased
  Tensor& running_mean;      // [c] read and written, any dtype
  Tensor& running_variance;  // [c] likewise
  double momentum = 0.1, epsilon = 1e-5;
  void check() const;
  void visit(auto&& v) const {
    v.input("x", x), v.input("scale", scale), v.input("shift", shift);
    v.output("out", out), v.output("mean", mean), v.output("variance", variance);
    v.output("running_mean", running_mean), v.output("running_variance", running_variance);
    v.attribute(momentum), v.attribute(epsilon);
  }
};

struct BatchNormInference {  // with the running statistics
  static constexpr std::string_view name = "batch_norm_inference";
  const Tensor& x;
  const Tensor& scale;
  const Tensor& shift;
  const Tensor& running_mean;
  const Tensor& running_variance;
  Tensor& out;
  double epsilon = 1e-5;
  void check() const;
  void visit(auto&& v) const {
    v.input("x", x), v.input("scale", scale), v.input("shift", shift);
    v.input("running_mean", running_mean), v.input("running_variance", running_variance);
    v.output("out", out), v.attribute(epsilon);
  }
};

// With xhat = (x - mean) / sqrt(variance + epsilon) and m = n h w:
// dscale = sum dy xhat, dshift = sum dy, dx = scale / sqrt(variance + epsilon) (dy - dshift / m - xhat dscale / m).
struct BatchNormBackward {
  static constexpr std::string_view name = "batch_norm_backward";
  const Tensor& x;
  const Tensor& dy;
  const Tensor& scale;
  const Tensor& mean;
  const Tensor& variance;
  Tensor& dx;
  Tensor& dscale;
  Tensor& dshift;
  double epsilon = 1e-5;
  void check() const;
  void visit(auto&& v) const {
    v.input("x", x), v.input("dy", dy), v.input("scale", scale), v.input("mean", mean), v.input("variance", variance);
    v.output("dx", dx), v.output("dscale", dscale), v.output("dshift", dshift), v.attribute(epsilon);
  }
};

// Layer norm, RMS norm and group norm: x, in logical order, is a sequence of rows of `width` values, and each row is
// normalised by itself: out = scale (x - mean) inverse + shift with inverse = 1 / sqrt(mean of (x - mean)^2 + epsilon), or
// with 0 in place of the mean if not `centred`. Value i of x uses entry (i / repeat) mod n of scale and shift.
struct NormalizeRows {
  static constexpr std::string_view name = "normalize_rows";
  const Tensor& x;
  const Tensor& scale;  // [n]; empty: 1
  const Tensor& shift;  // [n]; empty: 0
  Tensor& out;
  Tensor& mean;     // [rows] f32 (f64 for f64), for backward; empty if not centred
  Tensor& inverse;  // [rows] likewise
  int64_t width, repeat = 1;
  bool centred = true;
  double epsilon = 1e-5;
  void check() const;
  void visit(auto&& v) const {
    v.input("x", x), v.input("scale", scale), v.input("shift", shift);
    v.output("out", out), v.output("mean", mean), v.output("inverse", inverse);
    v.attribute(width), v.attribute(repeat), v.attribute(centred), v.attribute(epsilon);
  }
};

// With xhat = (x - mean) inverse and g = scale dy: dx = inverse (g - mean of g - xhat times the mean of g xhat) over each
// row, without the mean of g if not centred; dscale and dshift are the sums of dy xhat and dy over their values.
struct NormalizeRowsBackward {
  static constexpr std::string_view name = "normalize_rows_backward";
  const Tensor& x;
  const Tensor& dy;
  const Tensor& scale;
  const Tensor& mean;
  const Tensor& inverse;
  Tensor& dx;
  Tensor& dscale;  // [n]; empty: not wanted
  Tensor& dshift;  // [n]; empty: not wanted
  int64_t width, repeat = 1;
  bool centred = true;
  void check() const;
  void visit(auto&& v) const {
    v.input("x", x), v.input("dy", dy), v.input("scale", scale), v.input("mean", mean), v.input("inverse", inverse);
    v.output("dx", dx), v.output("dscale", dscale), v.output("dshift", dshift);
    v.attribute(width), v.attribute(repeat), v.attribute(centred);
  }
};

template <class Row>  // a row of activations.h
struct Activation {   // out = f(x), element by element
  static constexpr std::string_view name = Row::name;
  const Tensor& x;
  Tensor& out;
  void check() const { check_same_shape(name, x, out); }
  void visit(auto&& v) const { v.input("x", x), v.output("out", out); }
};

template <class Row>
struct ActivationBackward {  // dx = f'(x) dy
  static constexpr std::string_view name = Row::backward_name;
  const Tensor& kept;  // forward's input or output, as Row::kept specifies
  const Tensor& dy;
  Tensor& dx;
  void check() const { check_same_shape(name, kept, dy), check_same_shape(name, kept, dx); }
  void visit(auto&& v) const { v.input("kept", kept), v.input("dy", dy), v.output("dx", dx); }
};

using Relu = Activation<activations::Relu>;
using ReluBackward = ActivationBackward<activations::Relu>;

// Padding never wins; indices hold the winner's place in its window, kernel_w * i + j, the first one on a tie.
struct MaxPool2d {
  static constexpr std::string_view name = "max_pool2d";
  const Tensor& x;
  Tensor& out;
  Tensor& indices;  // u8, shape of out; empty = not wanted (inference)
  int kernel_h = 2, kernel_w = 2;
  Window window{};
  void check() const;
  void visit(auto&& v) const {
    v.input("x", x), v.output("out", out), v.output("indices", indices);
    v.attribute(kernel_h), v.attribute(kernel_w), v.attribute(window);
  }
};

struct MaxPool2dBackward {
  static constexpr std::string_view name = "max_pool2d_backward";
  const Tensor& dy;
  const Tensor& indices;
  Tensor& dx;
  int kernel_h = 2, kernel_w = 2;
  Window window{};
  void check() const;
  void visit(auto&& v) const {
    v.input("dy", dy), v.input("indices", indices), v.output("dx", dx);
    v.attribute(kernel_h), v.attribute(kernel_w), v.attribute(window);
  }
};

struct AvgPool2d {  // padding counts as zeros, as in PyTorch's default
  static constexpr std::string_view name = "avg_pool2d";
  const Tensor& x;
  Tensor& out;
  int kernel_h = 2, kernel_w = 2;
  Window window{};
  void check() const;
  void visit(auto&& v) const {
    v.input("x", x), v.output("out", out), v.attribute(kernel_h), v.attribute(kernel_w), v.attribute(window);
  }
};

struct AvgPool2dBackward {
  static constexpr std::string_view name = "avg_pool2d_backward";
  const Tensor& dy;
  Tensor& dx;
  int kernel_h = 2, kernel_w = 2;
  Window window{};
  void check() const;
  void visit(auto&& v) const {
    v.input("dy", dy), v.output("dx", dx), v.attribute(kernel_h), v.attribute(kernel_w), v.attribute(window);
  }
};

struct Add {  // out = a + b
  static constexpr std::string_view name = "add";
  const Tensor& a;
  const Tensor& b;
  Tensor& out;
  void check() const;
  void visit(auto&& v) const { v.input("a", a), v.input("b", b), v.output("out", out); }
};

// loss = mean over rows of -log softmax(logits)[label], with the row maximum subtracted first. As in PyTorch (log_softmax
// and nll_loss), backward needs the logarithms: rounded to fp16, a probability close to 1 is 1, its logarithm is not 0.
struct SoftmaxCrossEntropy {
  static constexpr std::string_view name = "softmax_cross_entropy";
  const Tensor& logits;       // [n, classes]
  const Tensor& labels;       // [n] i32
  Tensor& loss;               // [1]
  Tensor& log_probabilities;  // [n, classes], log softmax(logits), for backward
  void check() const;
  void visit(auto&& v) const {
    v.input("logits", logits), v.input("labels", labels), v.output("loss", loss),
        v.output("log_probabilities", log_probabilities);
  }
};

struct SoftmaxCrossEntropyBackward {  // dlogits = (exp(log_probabilities) - onehot(labels)) dloss / n
  static constexpr std::string_view name = "softmax_cross_entropy_backward";
  const Tensor& log_probabilities;
  const Tensor& labels;
  Tensor& dlogits;
  double dloss = 1;  // includes the loss scale; a value, not part of the choice of row
  void check() const;
  void visit(auto&& v) const {
    v.input("log_probabilities", log_probabilities), v.input("labels", labels), v.output("dlogits", dlogits);
  }
};

struct Cast {
  static constexpr std::string_view name = "cast";
  const Tensor& x;
  Tensor& out;
  Rounding rounding = Rounding::near_even;
  uint64_t noise = 0;  // seed of stochastic rounding: element i takes rounding_noise(noise, i) of number/convert.h
  void check() const;
  void visit(auto&& v) const { v.input("x", x), v.output("out", out), v.attribute(rounding); }
};

struct Reorder {  // the same values in another layout
  static constexpr std::string_view name = "reorder";
  const Tensor& x;
  Tensor& out;
  void check() const;
  void visit(auto&& v) const { v.input("x", x), v.output("out", out); }
};

// found_inf <- 1 if any gradient is not finite (otherwise unchanged); gradient <- gradient * inverse_scale, including
// non-finite ones. amp_semantics.md 2.1: the test is on the scaled gradient.
struct Unscale {
  static constexpr std::string_view name = "unscale";
  Tensor& gradient;
  Tensor& found_inf;  // [1] f32
  float inverse_scale = 1;
  void check() const;
  void visit(auto&& v) const { v.output("gradient", gradient), v.output("found_inf", found_inf); }
};

// v <- momentum v + (g + weight_decay p); p <- p - rate v, computed in fp32 (fp64 for f64), each stored once. `low`, if
// present, receives the new parameter rounded to its own dtype (the copy that the layers compute with).
struct SgdStep {
  static constexpr std::string_view name = "sgd_step";
  Tensor& parameter;
  const Tensor& gradient;
  Tensor& velocity;  // empty = no momentum
  Tensor& low;       // empty = none
  double rate = 0.01, momentum = 0, weight_decay = 0;
  void check() const;
  void visit(auto&& v) const {
    v.output("parameter", parameter), v.input("gradient", gradient), v.output("velocity", velocity),
        v.output("low", low);
  }
};

// The one list of operations; rows, tests and micro benchmarks are generated from it.
template <class... Ops>
struct OperationList {
  template <template <class> class F>
  using Tuple = std::tuple<F<Ops>...>;
  template <class... More>
  OperationList<Ops..., More...> operator+(OperationList<More...>) const;
};
template <class... Rows>
OperationList<Activation<Rows>...> forward_of(activations::List<Rows...>);
template <class... Rows>
OperationList<ActivationBackward<Rows>...> backward_of(activations::List<Rows...>);

using Operations =
    decltype(OperationList<Matmul, ScaledMatmul, DotProducts, Conv2d, Conv2dBackwardData, Conv2dBackwardWeights,
                           AddBias, BiasGradient, BatchNorm, BatchNormInference, BatchNormBackward, NormalizeRows,
                           NormalizeRowsBackward>() +
             forward_of(activations::All()) + backward_of(activations::All()) +
             OperationList<MaxPool2d, MaxPool2dBackward, AvgPool2d, AvgPool2dBackward, Add, SoftmaxCrossEntropy,
                           SoftmaxCrossEntropyBackward, Cast, Reorder, Unscale, SgdStep>());
template <template <class> class F>
using ForAllOperations = Operations::Tuple<F>;

template <class Op>
using KernelList = std::vector<Kernel<Op>>;

class KernelTable {
 public:
  template <Operation Op>
  KernelList<Op>& of() {
    return std::get<KernelList<Op>>(lists_);
  }
  template <Operation Op>
  const KernelList<Op>& of() const {
    return std::get<KernelList<Op>>(lists_);
  }
  // f(list) for every operation, in the order above.
  void each(auto&& f) const {
    std::apply([&](const auto&... list) { (f(list), ...); }, lists_);
  }

 private:
  ForAllOperations<KernelList> lists_;
};

Signature signature_of(const Operation auto& op);
std::string dtypes_of(const Operation auto& op);  // "f16,f16->f16"

// Runs the operation on the device of its tensors with the first row that supports it. Throws Error for wrong shapes or
// attributes and for operands on two devices; Unsupported, with every row's reason, if no row supports it.
template <Operation Op>
void run(const Op& op);

// The row that run(op) would use, without running it.
template <Operation Op>
const Kernel<Op>& chosen(const Op& op);

// Runs one given row, as tests and micro benchmarks do.
template <Operation Op>
void run_with(const Kernel<Op>& kernel, const Op& op);

}  // namespace halfmark::kernels

#include "kernels/ops/dispatch.h"
