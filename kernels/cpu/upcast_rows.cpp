// Matmul and convolution of narrow operands through fp32: operands are widened (and rounded to the format that Math
// multiplies in), the fast fp32 row runs, and the result is rounded once. Every narrow number is an fp32 number, so
// products and sums are those of a machine with narrow operands and fp32 accumulation; the time is not.
#include <cstdint>
#include <initializer_list>
#include <string>

#include "kernels/cpu/rows.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/number/convert.h"
#include "kernels/number/error.h"

namespace halfmark::kernels {
namespace upcast {
namespace {

constexpr int64_t kGrain = 32768;  // elements a thread converts at a time; even, for packed dtypes

// Whether every number of the dtype is an fp32 number.
bool fits_fp32(DType dtype) { return is_floating(dtype) && bits_of(dtype) <= bits_of(DType::f32); }

Refusal refuses(std::initializer_list<const Tensor*> operands, const Tensor& out, const Math& math) {
  bool narrow = false;
  for (const Tensor* operand : operands) {
    const DType dtype = operand->dtype();
    if (!fits_fp32(dtype)) return std::string(name_of(dtype)) + " cannot be widened to fp32";
    if (operand->layout() == Layout::opaque && dtype != DType::f32)
      return "an opaque layout with dtype " + std::string(name_of(dtype));
    narrow = narrow || dtype != DType::f32;
  }
  if (!fits_fp32(out.dtype())) return "the result has dtype " + std::string(name_of(out.dtype()));
  if (math.multiply == kFp64) return "multiplies at most in fp32";
  if (!narrow && math.multiply == kFp32) return "nothing to widen";
  if (!(math.accumulate == kFp32)) return "accumulates in fp32, not " + std::string(math.accumulate.name);
  if (math.split_k != 1) return "the fp32 row chooses the split of K";
  if (math.fast_accumulate) return "fast accumulation is not supported";
  return {};
}

Math wide(Math math) {
  math.multiply = kFp32;
  return math;
}

// The operand in fp32, rounded to the format of multiplication, in the same layout.
Tensor widened(const Tensor& tensor, const Math& math) {
  if (tensor.dtype() == DType::f32 && math.multiply == kFp32) return tensor;
  const PurposeScope scope(Purpose::workspace);
  Tensor copy(tensor.device(), tensor.shape(), DType::f32, Layout::any);
  if (tensor.layout() == Layout::opaque)
    copy.materialize(tensor.opaque_layout());
  else
    copy.materialize(tensor.layout());
  const auto* source = static_cast<const unsigned char*>(tensor.data());
  float* target = copy.as<float>();
  parallel_for(static_cast<int64_t>(copy.bytes() / sizeof(float)), kGrain, [&](int64_t begin, int64_t end) {
    const auto count = static_cast<size_t>(end - begin);
    convert(tensor.dtype(), source + bytes_for(tensor.dtype(), static_cast<size_t>(begin)), DType::f32, target + begin,
            count);
    round_array(math.multiply, target + begin, count);
  });
  copy.touch();
  return copy;
}

// A result in fp32, rounded into its target by finish().
class WideResult {
 public:
  WideResult(Tensor& target, const Tensor& model) : target_(target), use_(target) {
    if (target.dtype() == DType::f32) return;
    target.materialize(model.layout() == Layout::nhwc && target.shape().rank() == 4 ? Layout::nhwc : Layout::plain);
    HM_CHECK(target.layout() != Layout::opaque, "upcast: a narrow result in an opaque layout");
    const PurposeScope scope(Purpose::workspace);
    use_ = Tensor(target.device(), target.shape(), DType::f32, target.layout());
  }
  Tensor& tensor() { return use_; }
  void widen_old() {  // for results that are added to
    if (target_.dtype() != DType::f32)
      convert(target_.dtype(), target_.data(), DType::f32, use_.data(), static_cast<size_t>(use_.elements()));
  }
  void finish() {
    if (target_.dtype() == DType::f32) return;
    auto* bytes = static_cast<unsigned char*>(target_.data());
    const float* source = use_.as<float>();
    parallel_for(use_.elements(), kGrain, [&](int64_t begin, int64_t end) {
      convert(DType::f32, source + begin, target_.dtype(),
              bytes + bytes_for(target_.dtype(), static_cast<size_t>(begin)), static_cast<size_t>(end - begin));
    });
  }

 private:
  Tensor& target_;
  Tensor use_;
};

// The fp32 work is not logged: the log shows the upcast row that the caller sees.
template <Operation Op>
void run_wide(const Op& op) {
  run_with(chosen(op), op);
}

Refusal refuses_opaque(const Tensor& out) {
  if (out.layout() == Layout::opaque && out.dtype() != DType::f32) return "a narrow result in an opaque layout";
  return {};
}

Refusal refuses_matmul(const Device&, const Matmul& op) {
  if (Refusal refusal = refuses_opaque(op.out)) return refusal;
  return refuses({&op.a, &op.b}, op.out, op.math);
}

void run_matmul(Device&, const Matmul& op) {
  const Tensor a = widened(op.a, op.math), b = widened(op.b, op.math);
  WideResult out(op.out, a);
  if (op.beta != 0) out.widen_old();
  run_wide(Matmul{a, b, out.tensor(), op.transpose_a, op.transpose_b, wide(op.math), op.beta});
  out.finish();
}

Refusal refuses_conv(const Device&, const Conv2d& op) {
  if (Refusal refusal = refuses_opaque(op.out)) return refusal;
  return refuses({&op.x, &op.w}, op.out, op.math);
}

void run_conv(Device&, const Conv2d& op) {
  const Tensor x = widened(op.x, op.math), w = widened(op.w, op.math);
  WideResult out(op.out, x);
  run_wide(Conv2d{x, w, out.tensor(), op.window, op.groups, wide(op.math)});
  out.finish();
}

Refusal refuses_conv_backward_data(const Device&, const Conv2dBackwardData& op) {
  if (Refusal refusal = refuses_opaque(op.dx)) return refusal;
  return refuses({&op.dy, &op.w}, op.dx, op.math);
}

void run_conv_backward_data(Device&, const Conv2dBackwardData& op) {
  const Tensor dy = widened(op.dy, op.math), w = widened(op.w, op.math);
  WideResult dx(op.dx, dy);
  run_wide(Conv2dBackwardData{dy, w, dx.tensor(), op.window, op.groups, wide(op.math)});
  dx.finish();
}

Refusal refuses_conv_backward_weights(const Device&, const Conv2dBackwardWeights& op) {
  if (Refusal refusal = refuses_opaque(op.dw)) return refusal;
  return refuses({&op.x, &op.dy}, op.dw, op.math);
}

void run_conv_backward_weights(Device&, const Conv2dBackwardWeights& op) {
  const Tensor x = widened(op.x, op.math), dy = widened(op.dy, op.math);
  op.dw.materialize(Layout::plain);
  WideResult dw(op.dw, x);
  run_wide(Conv2dBackwardWeights{x, dy, dw.tensor(), op.window, op.groups, wide(op.math)});
  dw.finish();
}

void add(KernelTable& table) {
  table.of<Matmul>().push_back({"upcast", Speed::emulated, refuses_matmul, run_matmul});
  table.of<Conv2d>().push_back({"upcast", Speed::emulated, refuses_conv, run_conv});
  table.of<Conv2dBackwardData>().push_back(
      {"upcast", Speed::emulated, refuses_conv_backward_data, run_conv_backward_data});
  table.of<Conv2dBackwardWeights>().push_back(
      {"upcast", Speed::emulated, refuses_conv_backward_weights, run_conv_backward_weights});
}

}  // namespace
}  // namespace upcast

void add_upcast_rows(KernelTable& table) { upcast::add(table); }

}  // namespace halfmark::kernels
