#include "kernels/ops/cases/axes.h"

#include <cmath>
#include <vector>

namespace halfmark::kernels::ops_cases {

std::vector<DotTypes> tested_dots() {
  using enum DType;
  std::vector<DotTypes> all{{f16, f16, f32, f32},
                            {f16, f16, f16, f16},
                            {f16, f16, f16, f32},
                            {bf16, bf16, f32, f32},
                            {f32, f32, f32, f32},
                            {f64, f64, f64, f64},
                            {e2m1, e2m1, f32, f32, e8m0, 32},
                            {e2m1, e2m1, f32, f32, e8m0, 16},
                            {e2m1, e2m1, f32, f32, e4m3, 16}};
  for (const DType a : {e4m3, e5m2})
    for (const DType b : {e4m3, e5m2}) {
      for (const DType sum : {f32, f16}) all.push_back({a, b, sum, sum});
      all.push_back({a, b, f32, f32, e8m0, 32});
    }
  return all;
}

std::vector<ContractionTypes> tested_contractions() {
  using enum DType;
  const Math fp32{}, fp64{.multiply = kFp64, .accumulate = kFp64, .partial = kFp64};
  return {
      {f32, f32, f32, fp32, "fp32"},
      {f64, f64, f64, fp64, "fp64"},
      {f16, f16, f16, fp32, "fp32"},
      {f16, f16, f32, fp32, "fp32"},
      {bf16, bf16, bf16, fp32, "fp32"},
      {bf16, bf16, f32, fp32, "fp32"},
      {f16, f16, f16, {.multiply = kFp16, .accumulate = kFp16, .partial = kFp16}, "fp16-sum"},
      {bf16, bf16, bf16, {.multiply = kBf16, .accumulate = kBf16, .partial = kBf16}, "bf16-sum"},
      {f32, f32, f32, {.multiply = kTf32}, "tf32"},
      {f32, f32, f32, {.multiply = kBf16}, "bf16-multiply"},
      {e4m3, e4m3, f32, fp32, "fp32"},
      {e4m3, e5m2, bf16, fp32, "fp32"},
      {e4m3, e4m3, f16, {.fast_accumulate = true}, "fp32-fast"},
      {f16, f32, f32, fp32, "mixed"},
      {f32, f32, f16, fp32, "narrow-out"},
      {f16, f16, f16, {.partial = kFp16, .split_k = 3}, "split3-fp16"},
      {f32, f32, f32, {.split_k = 2}, "split2"},
      {bf16, bf16, f32, {.partial = kBf16, .split_k = 4}, "split4-bf16"},
  };
}

std::vector<ConvSize> tested_convolutions() {
  return {
      {"3x3 pad", {2, 3, 7, 6}, {5, 3, 3, 3}, {.pad_h = 1, .pad_w = 1}, 1},
      {"3x2 strided dilated groups", {1, 4, 9, 8}, {6, 2, 3, 2}, {.stride_h = 2, .pad_h = 1, .dilation_h = 2}, 2},
      {"depthwise", {2, 6, 5, 5}, {6, 1, 3, 3}, {.pad_h = 1, .pad_w = 1}, 6},
      {"1x1 strided", {2, 8, 6, 5}, {16, 8, 1, 1}, {.stride_h = 2, .stride_w = 2}, 1},
      {"1x1 strided, 4 channels", {2, 4, 8, 8}, {8, 4, 1, 1}, {.stride_h = 2, .stride_w = 2}, 1},
      {"channels of 16", {2, 16, 8, 8}, {32, 16, 3, 3}, {.pad_h = 1, .pad_w = 1}, 1},
      {"1x3, channels of 16", {2, 16, 8, 8}, {32, 16, 1, 3}, {.pad_w = 1}, 1},
      {"5x5 strided pad", {1, 3, 11, 9}, {8, 3, 5, 5}, {.stride_h = 2, .stride_w = 2, .pad_h = 2, .pad_w = 2}, 1},
      {"2x2 wide window groups", {2, 4, 6, 11}, {6, 2, 2, 2}, {.stride_w = 2, .pad_w = 2, .dilation_w = 3}, 2},
      {"2x2 high window groups", {2, 4, 11, 6}, {6, 2, 2, 2}, {.stride_h = 2, .pad_h = 2, .dilation_h = 3}, 2},
  };
}

Axes tested_axes() {
  using enum DType;
  Axes axes;
  axes.dtypes = {f32, f64, f16, bf16, e4m3};
  axes.forms = {{Layout::plain, Layout::plain},
                {Layout::plain, Layout::any},
                {Layout::nhwc, Layout::nhwc},
                {Layout::nhwc, Layout::any},
                {Layout::nhwc, Layout::plain},
                {Layout::plain, Layout::any, true},
                {Layout::plain, Layout::any, false, true},
                {Layout::nhwc, Layout::nhwc, false, true}};
  axes.elements = {{2, 16, 5, 3}, {1, 5, 7, 4}};
  axes.matrices = {{9, 37}};
  axes.norms = {{2, 16, 6, 5}, {3, 5, 4, 7}, {4, 32, 1, 2}};
  axes.norm_means = {0, 256};
  axes.pools = {{{2, 16, 6, 8}, 2, 2, {.stride_h = 2, .stride_w = 2}},
                {{1, 16, 7, 5}, 3, 3, {.stride_h = 2, .stride_w = 2, .pad_h = 1, .pad_w = 1}},
                {{2, 5, 6, 5}, 3, 2, {.pad_h = 1}},
                {{3, 16, 4, 4}, 4, 4, {.stride_h = 4, .stride_w = 4}},
                {{2, 5, 5, 9}, 2, 4, {.stride_w = 3, .pad_w = 2}},
                {{2, 5, 9, 5}, 4, 2, {.stride_h = 3, .pad_h = 2}},
                {{2, 53, 4, 9}, 2, 4, {.stride_h = 2}},
                {{2, 16, 6, 9}, 2, 4, {.stride_h = 2}},
                // A place in the window above 127.
                {{2, 5, 16, 15}, 14, 14, {}}};
  axes.in_place = {false, true};
  axes.narrow_bias = axes.narrow_parameters = {false, true};
  axes.narrow_results = {f16, bf16};
  axes.addends = {AddendForm::none, AddendForm::alike, AddendForm::wide};
  axes.pool_indices = {true, false};
  axes.special_values = true;

  axes.contractions = tested_contractions();
  axes.matmuls = {{5, 7, 13}, {32, 48, 64}, {1, 33, 40}, {8, 16, 768}};  // the last: parts of split-K of whole tiles
  axes.matmul_forms = {MatmulForm::plain,          MatmulForm::transpose_a,     MatmulForm::transpose_b,
                       MatmulForm::transpose_both, MatmulForm::add_to_integers, MatmulForm::integers};
  using enum FusedActivation;
  axes.fused = {{none, true, false, false, true},       {relu, true, true, false, true},
                {relu, true, false, true, false, true}, {gelu_tanh, true, true, false, true},
                {gelu_tanh, true, false, false, false}, {relu, false, true, false, false, true},
                {gelu_tanh, false, true, true, true},   {none, true, false, true, false, true}};
  axes.fused_backward = {{none, BiasSums::a, true, false},         {none, BiasSums::a, false, true, true},
                         {none, BiasSums::b, true, false},         {none, BiasSums::b, false, true},
                         {relu, BiasSums::out, false, false},      {relu, BiasSums::none, false, true, true},
                         {gelu_tanh, BiasSums::out, false, false}, {gelu_tanh, BiasSums::none, true, true}};
  axes.fused_convolutions = {{}, {true, false}, {false, true}, {false, false}};
  axes.convolutions = tested_convolutions();
  axes.conv_layouts = {{Layout::plain, Layout::plain, Layout::plain},
                       {Layout::nhwc, Layout::nhwc, Layout::nhwc, true},
                       {Layout::nhwc, Layout::plain, Layout::any, true},
                       {Layout::plain, Layout::plain, Layout::any, true}};

  axes.dots = tested_dots();
  for (const MatrixInstructionRow& row : matrix_instructions()) axes.instructions.push_back(row.instruction);
  axes.dot_count = 9, axes.dot_depth = 0;
  axes.scaled = {{"mxfp8-e4m3", "mxfp8-e4m3", f32},
                 {"mxfp8-e4m3", "mxfp8-e5m2", f32},
                 {"mxfp8-e5m2", "mxfp8-e5m2", bf16},
                 {"mxfp4", "mxfp4", f32},
                 {"nvfp4", "nvfp4", f32},
                 {"nvfp4", "nvfp4", f16},
                 {"te-current-e4m3", "te-current-e4m3", f32, false, false, true},
                 {"te-current-e5m2", "te-current-e4m3", bf16, true, true},
                 {"te-block-1x128", "te-block-128x128", f32},
                 {"te-block-1x128", "te-block-128x128", bf16, false, true},
                 {"te-mxfp8-e4m3", "te-mxfp8-32x32", bf16, false, true},
                 {"te-nvfp4", "te-nvfp4-16x16", bf16},
                 {"te-nvfp4", "te-nvfp4-16x16", f32, false, true},
                 {"te-current-e4m3", "te-current-e5m2", f16},
                 {"torchao-rowwise", "torchao-rowwise", bf16},
                 {"te-block-128x128", "te-block-1x128", f32}};
  axes.scaled_sizes = {{5, 7, 32}, {3, 9, 160}, {17, 2, 320}, {4, 21, 150}, {4, 16, 160}, {160, 136, 256}};
  axes.quantized = {{"te-current-e4m3"},
                    {"te-current-e5m2", true},
                    {"te-current-e4m3", false, false, false, 40},
                    {"te-block-1x128", true},
                    {"te-block-128x128"},
                    {"te-mxfp8-e4m3"},
                    {"te-nvfp4"},
                    {"te-nvfp4-16x16", true},
                    {"te-nvfp4", true, true, true},
                    {"torchao-rowwise"}};
  axes.quantized_dtypes = {f32, bf16, f16};
  axes.delayed_steps = {{true, true}, {true, false}, {false, false}};
  axes.quantized_shape = {19, 150};

  for (const DType dtype : halfmark::kernels::dtypes())
    if (is_floating(dtype)) axes.cast_from.push_back(dtype);
  axes.cast_to = axes.cast_from;
  axes.roundings = {Rounding::near_even, Rounding::toward_zero, Rounding::near_away, Rounding::stochastic};
  axes.cast_layouts = {Layout::plain, Layout::nhwc};
  axes.cast_shape = {3, 5, 3, 7};  // odd: a packed dtype ends in half a byte
  axes.reorder_dtypes = {f32, f64, f16, bf16, e4m3, e5m2};
  axes.reorder_to = {Layout::plain, Layout::nhwc, Layout::any};

  axes.losses = {{f32, f32, f32}, {f64, f64, f64},  {f16, f32, f32},
                 {f16, f16, f16}, {bf16, f32, f32}, {bf16, bf16, bf16}};
  axes.loss_shapes = {{7, 10}, {1, 3}, {16, 129}};
  axes.loss_scales = {1, 1024};
  axes.unscale_dtypes = {f32, f64, f16, bf16};
  axes.unscale_bad = {0, HUGE_VAL, -HUGE_VAL, static_cast<double>(NAN)};
  axes.found_before = {0, 1};
  axes.unscale_count = 301, axes.inverse_scales = {1.0f / 1024, 1.0f / 3000};
  axes.sgd_types = {{f32, f32, f32, f32},         {f32, f32, f32, f16, true}, {f32, f16, f32, f16, true},
                    {f32, bf16, f32, bf16, true}, {f64, f64, f64, f64},       {f16, f16, f16, f16},
                    {bf16, bf16, bf16, bf16},     {bf16, bf16, f32, f32}};
  axes.momenta = {0, 0.9}, axes.decays = {0, 0.01}, axes.sgd_rate = 0.1;
  axes.sgd_shape = {5, 3, 2, 7};
  axes.sgd_layouts = {{Layout::plain, Layout::plain},
                      {Layout::plain, Layout::nhwc},
                      {Layout::nhwc, Layout::plain},
                      {Layout::nhwc, Layout::nhwc}};
  axes.more_updated = {{3}, {2, 9}};
  axes.update_forms = {{},
                       {.nesterov = true},
                       {.dampening = 0.5},
                       {.dampening = 0.5, .first = true},
                       {.storage = Storage::stochastic},
                       {.storage = Storage::kahan},
                       {.rounding = StepRounding::each_operation, .nesterov = true},
                       {.found_inf = false},
                       {.found_inf = true},
                       {.storage = Storage::stochastic, .found_inf = true},
                       {.storage = Storage::kahan, .found_inf = true}};
  axes.adam_kinds = {AdamKind::adam, AdamKind::adamw, AdamKind::keras};
  axes.clip_limits = {0.5, 1e6};
  axes.label_forms = {{false, 0, false, {7, 10}},      {false, 0, true, {7, 10}},      {true, 0, true, {7, 10}},
                      {true, 0.1, true, {7, 10}},      {false, 0.25, true, {16, 129}}, {true, 1, false, {3, 4}},
                      {true, 0.1, true, {2, 5, 3, 7}}, {false, 0, true, {1, 3, 2, 2}}};
  axes.loss_arguments = {{}, {0, 0}, {0.5, 1}, {3, 0.5}};
  axes.loss_layouts = {false, true};
  axes.ctc_impossible = axes.ctc_zero_infinity = {false, true};
  return axes;
}

Axes long_axes() {
  using enum DType;
  using enum FusedActivation;
  Axes axes = tested_axes();
  axes.dtypes = {f32, f16};
  axes.forms = {{Layout::plain, Layout::plain}, {Layout::nhwc, Layout::nhwc}};
  // More channels than a block; more pixels; more than one tile along both axes of a transposition.
  axes.elements = {{2, 1027, 17, 1}, {1, 3, 37, 31}, {1, 67, 9, 11}};
  axes.matrices = {{65, 1031}};
  axes.norms = {{2, 1027, 17, 1}, {2, 3, 37, 31}};
  axes.norm_means = {0};
  axes.pools = {{{1, 37, 31, 32}, 3, 2, {.pad_h = 1}}};
  axes.in_place = {false};
  axes.narrow_bias = axes.narrow_parameters = {true};
  axes.pool_indices = {true};

  const Math fp32{};
  axes.contractions = {{f32, f32, f32, fp32, "fp32"},
                       {f64, f64, f64, {.multiply = kFp64, .accumulate = kFp64, .partial = kFp64}, "fp64"},
                       {f16, f16, f16, fp32, "fp32"},
                       {f32, f32, f32, {.multiply = kBf16}, "bf16-multiply"},
                       {f16, f16, f16, {.multiply = kFp16, .accumulate = kFp16, .partial = kFp16}, "fp16-sum"}};
  axes.matmuls = {{8209, 3, 5}, {181, 183, 3}, {3, 5, 11003}};
  axes.matmul_forms = {MatmulForm::plain};
  axes.fused = {{none, true, false}, {relu, true, true}, {gelu_tanh, true, true}};
  axes.fused_backward = {
      {none, BiasSums::a}, {none, BiasSums::b, false, true}, {gelu_tanh, BiasSums::out}, {relu, BiasSums::out}};
  axes.convolutions = {};
  axes.dots = {{f16, f16, f32, f32}};
  axes.dot_count = 261;
  axes.scaled_sizes = {};
  axes.quantized = {};

  axes.cast_from = {f32, e2m1}, axes.cast_to = {f16, e2m1};
  axes.roundings = {Rounding::near_even, Rounding::stochastic};
  axes.cast_shape = {5, 3, 37, 61};
  axes.reorder_dtypes = {f32, e4m3};
  axes.reorder_to = {Layout::plain, Layout::nhwc};

  axes.losses = {{f32, f32, f32}, {f64, f64, f64}, {f16, f32, f32}};
  axes.loss_shapes = {{70, 300}};
  axes.unscale_dtypes = {f32, f16};
  axes.unscale_bad = {0, HUGE_VAL};
  axes.found_before = {0};
  axes.unscale_count = 34567;
  axes.sgd_types = {{f32, f32, f32, f32}, {f32, f16, f32, f16, true}, {f16, f16, f16, f16}, {f64, f64, f64, f64}};
  axes.momenta = {0.9}, axes.decays = {0.01};
  axes.sgd_shape = {101, 337};
  axes.more_updated = {{5}, {1031}};
  axes.update_forms = {{}, {.storage = Storage::stochastic}, {.storage = Storage::kahan}};
  axes.label_forms = {{true, 0.1, true, {70, 300}}, {true, 0.1, true, {2, 3, 37, 31}}};
  axes.loss_arguments = {{}};
  axes.loss_layouts = {false};
  axes.ctc_impossible = axes.ctc_zero_infinity = {false};
  axes.sgd_layouts = {{Layout::plain, Layout::plain}};
  return axes;
}

}  // namespace halfmark::kernels::ops_cases
