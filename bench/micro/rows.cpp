// Every kernel row of every device, for every dtype it accepts: op/dtypes/size/device/row. A row of real speed shows
// FLOP/s if its operation counts them; an emulated row is labelled and shows its time only.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/micro/micro.h"
#include "kernels/number/error.h"
#include "kernels/ops/ops_cases_contraction.h"
#include "kernels/ops/ops_cases_ctc.h"
#include "kernels/ops/ops_cases_dot.h"
#include "kernels/ops/ops_cases_elementwise.h"
#include "kernels/ops/ops_cases_fused.h"
#include "kernels/ops/ops_cases_image.h"
#include "kernels/ops/ops_cases_loss.h"
#include "kernels/ops/ops_cases_norm.h"
#include "kernels/ops/ops_cases_optimizer.h"
#include "kernels/ops/ops_cases_quantize.h"
#include "kernels/ops/ops_cases_resample.h"
#include "kernels/ops/ops_cases_sequence.h"
#include "kernels/ops/ops_cases_training.h"

namespace halfmark::bench::micro {
namespace {

using ops_cases::Axes;

// One case of each operation: operands of a dtype, smaller for slow rows.
Axes measured_axes(DType dtype, bool large) {
  const int64_t n = large ? 8 : 1, c = large ? 32 : 4, side = large ? 28 : 6, matrix = large ? 256 : 24,
                block_scaled = large ? 256 : 32;
  const Shape image{n, c, side, side};
  const DType wide = ops_cases::wide_type(dtype);
  const Math math{.multiply = format_of(dtype), .accumulate = format_of(wide), .partial = format_of(wide)};
  Axes axes;
  axes.dtypes = axes.cast_from = axes.reorder_dtypes = axes.unscale_dtypes = {dtype};
  axes.forms = {{Layout::plain, Layout::plain}};
  axes.norm_means = {0}, axes.norm_forms = false;
  axes.elements = axes.norms = {image};
  axes.pools = {{image, 2, 2, {.stride_h = 2, .stride_w = 2}}};
  axes.in_place = {false};
  axes.narrow_bias = {true}, axes.narrow_parameters = {false};
  axes.pool_indices = {true};
  axes.special_values = false;
  axes.contractions = {{dtype, dtype, dtype, math, ""}};
  axes.matmuls = {{matrix, matrix, matrix}};
  axes.matmul_forms = {ops_cases::MatmulForm::plain};
  axes.convolutions = {{"", image, {c, c, 3, 3}, {.pad_h = 1, .pad_w = 1}, 1}};
  axes.conv_layouts = {{Layout::plain, Layout::plain, Layout::plain}};
  axes.dots = {{dtype, dtype, wide, wide}};
  axes.instructions = {MatrixInstruction::usual};
  axes.dot_count = n * 16, axes.dot_depth = 64;
  axes.scaled = {{"nvfp4", "nvfp4", dtype}};
  axes.scaled_sizes = {{block_scaled, block_scaled, block_scaled}};
  axes.quantized = {{"te-mxfp8-e4m3"}}, axes.quantized_dtypes = {dtype}, axes.quantized_shape = {matrix, matrix};
  axes.cast_to = {dtype == DType::f32 ? DType::f16 : DType::f32};  // as in training: to and from fp32
  axes.roundings = {Rounding::near_even};
  axes.cast_layouts = {Layout::plain};
  axes.cast_shape = axes.sgd_shape = image;
  axes.reorder_to = {Layout::nhwc};
  axes.losses = {{dtype, wide, dtype}};
  axes.loss_shapes = {{n * 16, 100}};
  axes.loss_scales = {1};
  axes.unscale_bad = axes.found_before = {0};
  axes.unscale_count = image.elements(), axes.inverse_scales = {1};
  axes.sgd_types = {{dtype, dtype, dtype, dtype}};
  axes.sgd_layouts = {{Layout::plain, Layout::plain}};
  axes.momenta = {0.9}, axes.decays = {0}, axes.sgd_rate = 1e-4;
  return axes;
}

// Calls f(op) with the case of an operation for this row.
template <class Op, class F>
void with_operation(Device& device, const Kernel<Op>& kernel, DType dtype, bool filled, F f) {
  const Axes axes = measured_axes(dtype, kernel.speed == Speed::real);
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
double flops_of(const Matmul& op) {
  return 2.0 * static_cast<double>(op.out.elements() * op.a.shape()[op.transpose_a ? 0 : 1]);
}
double flops_of(const FusedMatmul& op) { return flops_of(op.product(op.out)); }  // without those of the epilogue
double flops_of(const FusedMatmulBackward& op) { return flops_of(op.product(op.out)); }
double flops_of(const ScaledMatmul& op) { return 2.0 * static_cast<double>(op.out.elements() * op.a.codes.shape()[1]); }
double flops_of(const DotProducts& op) { return 2.0 * static_cast<double>(op.a.elements()); }
double convolution_flops(const Tensor& y, const Tensor& w) {
  return 2.0 * static_cast<double>(y.elements() * (w.elements() / w.shape()[0]));
}
double flops_of(const Conv2d& op) { return convolution_flops(op.out, op.w); }
double flops_of(const Conv2dBackwardData& op) { return convolution_flops(op.dy, op.w); }
double flops_of(const Conv2dBackwardWeights& op) { return convolution_flops(op.dy, op.dw); }

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

template <class Op>
void measure(benchmark::State& state, Device& device, const Kernel<Op>& kernel, DType dtype) {
  with_operation(device, kernel, dtype, true, [&](const Op& op) {
    run_with(kernel, op);  // creates primitives and plans
    for (auto _ : state) state.SetIterationTime(device.time([&] { run_with(kernel, op); }));
    if (kernel.speed == Speed::emulated) return state.SetLabel("emulated");
    const double flops = flops_of(op);
    if (flops > 0) state.counters["FLOP/s"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
  });
}

template <class Op>
void register_row(const std::shared_ptr<Device>& device, const Kernel<Op>& kernel) {
  for (const DType dtype : dtypes()) {
    if (!is_floating(dtype)) continue;
    with_operation(*device, kernel, dtype, false, [&](const Op& op) {
      if (kernel.refuses(*device, op)) return;
      FirstShape first;
      op.visit(first);
      std::string name(Op::name);
      for (const std::string& part : {dtypes_of(op), first.text, device->name(), std::string(kernel.name)})
        name.append("/").append(part);
      benchmark::RegisterBenchmark(name.c_str(), [device, &kernel, dtype](benchmark::State& state) {
        measure(state, *device, kernel, dtype);
      })->UseManualTime();
    });
  }
}

template <class Op>
void register_list(const std::shared_ptr<Device>& device, const KernelList<Op>& list) {
  for (const Kernel<Op>& kernel : list) register_row(device, kernel);
}

}  // namespace

void register_rows(const std::vector<std::shared_ptr<Device>>& devices) {
  for (const auto& device : devices) device->kernels().each([&](const auto& list) { register_list(device, list); });
}

}  // namespace halfmark::bench::micro
