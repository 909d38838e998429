#include "bench/micro/measured.h"

namespace halfmark::bench::micro {

using ops_cases::Axes;

Axes measured_axes(DType dtype, const MeasuredSizes& sizes) {
  const Shape& image = sizes.image;
  const int64_t c = image[1], matrix = sizes.matrix, block_scaled = sizes.block_scaled;
  const Layout layout = sizes.layout;
  const DType wide = ops_cases::wide_type(dtype);
  const Math math{.multiply = format_of(dtype), .accumulate = format_of(wide), .partial = format_of(wide)};
  Axes axes;
  axes.dtypes = axes.cast_from = axes.reorder_dtypes = axes.unscale_dtypes = {dtype};
  axes.forms = {{layout, layout}};
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
  axes.conv_layouts = {{layout, layout, layout}};
  axes.dots = {{dtype, dtype, wide, wide}};
  axes.instructions = {MatrixInstruction::usual};
  axes.dot_count = sizes.dots, axes.dot_depth = 64;
  axes.scaled = {{"nvfp4", "nvfp4", dtype}};
  axes.scaled_sizes = {{block_scaled, block_scaled, block_scaled}};
  axes.delayed_steps = {{}};
  axes.quantized = {{"te-mxfp8-e4m3"}}, axes.quantized_dtypes = {dtype}, axes.quantized_shape = sizes.quantized;
  axes.cast_to = {dtype == DType::f32 ? DType::f16 : DType::f32};  // as in training: to and from fp32
  axes.roundings = {Rounding::near_even};
  axes.cast_layouts = {Layout::plain};
  axes.cast_shape = axes.sgd_shape = image;
  axes.reorder_to = {layout == Layout::nhwc ? Layout::plain : Layout::nhwc};
  axes.losses = {{dtype, wide, dtype}};
  axes.loss_shapes = {sizes.loss};
  axes.loss_scales = {1};
  axes.unscale_bad = axes.found_before = {0};
  axes.unscale_count = image.elements(), axes.inverse_scales = {1};
  axes.sgd_types = {{dtype, dtype, dtype, dtype}};
  axes.sgd_layouts = {{Layout::plain, Layout::plain}};
  axes.momenta = {0.9}, axes.decays = {0}, axes.sgd_rate = 1e-4;
  axes.single = sizes.single;
  return axes;
}

}  // namespace halfmark::bench::micro
