// What the cases of an operation are made of: shapes, dtypes, layouts, special values. The descriptions in
// this folder use every combination of the axes. Every row of every device is tested on tested_axes(); the micro
// benchmarks pass a single size of their own.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/ops/ops.h"

namespace halfmark::kernels::ops_cases {

struct ImageForm {
  Layout in, out;
  bool opaque = false;        // the input has a layout of the device's library, if there is one
  bool other_second = false;  // a second image of an operation has the other layout (plain, nhwc)
};

struct ContractionTypes {  // storage dtypes, and how the products are summed
  DType a, b, out;
  Math math;
  const char* note;
};

struct MatmulSize {
  int64_t m, n, k;
};

enum class MatmulForm : uint8_t { plain, transpose_a, transpose_b, transpose_both, add_to_integers, integers };

struct FusedForm {  // bias and activation after a product
  FusedActivation activation = FusedActivation::none;
  bool bias = true, keeps = false;
  bool transpose_a = false, transpose_b = true;  // as a layer multiplies by its weight [out, in]
  bool integers = false;
};

struct FusedBackwardForm {
  FusedActivation activation = FusedActivation::none;
  BiasSums sums = BiasSums::a;
  bool transpose_a = true, transpose_b = false;  // as the gradient of such a weight
  bool integers = false;
};

struct FusedConvForm {  // bias and ReLU after a convolution
  bool bias = true, relu = true;
};

struct ConvSize {
  const char* note;
  Shape x, w;
  Window window;
  int groups;
};

struct ConvLayouts {
  Layout image, filter, out;
  bool few_types = false;  // with only some of the types: libraries take long to prepare each
};

struct PoolSize {
  Shape x;
  int kernel_h, kernel_w;
  Window window;
};

struct LossTypes {
  DType logits, loss, log_probabilities;
};

struct SgdTypes {
  DType parameter, gradient, velocity, low;
  bool has_low = false;
};

struct SgdLayouts {
  Layout parameter;  // of the velocity and the low copy too
  Layout gradient;
};

// What is added between batch norm and ReLU; `wide`: to a wider result.
enum class AddendForm : uint8_t { none, alike, wide };

struct UpdateForm {  // of an optimizer's step
  Storage storage = Storage::nearest;
  StepRounding rounding = StepRounding::once;
  bool nesterov = false;
  double dampening = 0;
  bool first = false;
  std::optional<bool> found_inf{};  // given to the step
};

struct LabelForm {  // of a cross-entropy
  bool weights = true;
  double smoothing = 0.125;
  bool ignores = true;  // some labels
  Shape shape{6, 5};
};

struct DotTypes {
  DType a, b, c, out;
  DType scale = DType::f32;
  int block = 0;  // elements that share a scale; 0: no scales
};

struct ScaledTypes {
  std::string_view a, b;  // block formats, or rules of training recipes
  DType out;
  bool transpose_a = false, transpose_b = false;  // stored so; not block formats
  bool fast_accumulate = false;
};

struct DelayedStep {  // of delayed scaling
  bool ends_step = true, keeps_scale = true;
};
struct QuantizedForm {
  std::string_view rule;
  bool transpose = false, transform = false, stochastic = false;
  double factor = 0;  // 0: the rule finds the scale
};

// Shapes of the single cases of operations whose tested shapes are fixed; only where `norm_forms` is false.
struct SingleShapes {
  Shape softmax{512, 512}, scale{1024, 1024}, permute{8, 128, 3, 8, 32}, dropout{16, 64, 28, 28}, lstm{64, 256};
  Shape indices{32, 128}, table{1024, 256};  // of embeddings
  Shape attention{2, 4, 128, 128, 32};       // samples, heads, queries, keys, numbers of a head
  Shape joined{2, 6, 5, 3};                  // all channels of this image become the last ones of one with one more
};

struct Axes {
  // Images, matrices and their element-wise operations.
  std::vector<DType> dtypes;
  std::vector<ImageForm> forms;
  std::vector<Shape> elements, matrices, norms;
  std::vector<double> norm_means;  // of the values to normalise: a variance from one pass loses digits of a large mean
  std::vector<PoolSize> pools;
  std::vector<bool> in_place;
  std::vector<bool> narrow_bias;        // bias and its gradient: of the dtype of the image, or f32
  std::vector<bool> narrow_parameters;  // of batch norm: of the dtype of the image, or at least f32
  std::vector<AddendForm> addends = {AddendForm::alike};
  bool norm_forms = true;                  // each kind of row norm, or layer norm only
  std::vector<DType> narrow_results = {};  // of norms of rows in f32: further dtypes of the result, and of its gradient
  std::vector<bool> pool_indices;          // whether max pooling is tested with them
  bool special_values;  // zeros, infinities, NaN and the ends of the range, element-wise and in logits

  std::vector<ContractionTypes> contractions;
  std::vector<MatmulSize> matmuls;
  std::vector<MatmulForm> matmul_forms;
  std::vector<ConvSize> convolutions;
  std::vector<ConvLayouts> conv_layouts;

  std::vector<DotTypes> dots;
  std::vector<MatrixInstruction> instructions;
  int64_t dot_count, dot_depth;  // dot products, and elements of each (0: twice the instruction's)
  std::vector<ScaledTypes> scaled;
  std::vector<MatmulSize> scaled_sizes;
  std::vector<DelayedStep> delayed_steps;
  std::vector<QuantizedForm> quantized;
  std::vector<DType> quantized_dtypes;
  Shape quantized_shape;

  std::vector<DType> cast_from, cast_to;
  std::vector<Rounding> roundings;
  std::vector<Layout> cast_layouts;
  Shape cast_shape;
  std::vector<DType> reorder_dtypes;
  std::vector<Layout> reorder_to;

  std::vector<LossTypes> losses;
  std::vector<Shape> loss_shapes;
  std::vector<double> loss_scales;
  std::vector<DType> unscale_dtypes;
  std::vector<double> unscale_bad;  // one gradient is this instead; 0: none
  std::vector<double> found_before;
  int64_t unscale_count;
  std::vector<float> inverse_scales;
  std::vector<SgdTypes> sgd_types;
  std::vector<double> momenta, decays;
  double sgd_rate;
  Shape sgd_shape;
  std::vector<SgdLayouts> sgd_layouts;
  // The defaults are one case each, which the micro benchmarks measure.
  std::vector<Shape> more_updated = {};  // shapes of further parameters in a step
  std::vector<UpdateForm> update_forms = {{}};
  std::vector<AdamKind> adam_kinds = {AdamKind::adam};
  std::vector<double> clip_limits = {1};
  std::vector<LabelForm> label_forms = {{}};
  std::vector<std::vector<double>> loss_arguments = {{}};  // a and b of an element-wise loss; empty: its defaults
  std::vector<bool> loss_layouts = {false};                // whether an image is channels last
  std::vector<FusedForm> fused = {{}};
  std::vector<FusedBackwardForm> fused_backward = {{}};
  std::vector<FusedConvForm> fused_convolutions = {{}};
  std::vector<bool> ctc_impossible = {false};  // whether a sequence has too few steps for its labels
  std::vector<bool> ctc_zero_infinity = {false};
  SingleShapes single = {};
};

std::vector<DotTypes> tested_dots();
std::vector<ContractionTypes> tested_contractions();
std::vector<ConvSize> tested_convolutions();
Axes tested_axes();
// Sizes beyond what the loops of the rows take at a time, which are constants such as kBlock and kGrain (at most 65536
// elements). Each reaches a second block or piece, and the last one is not full. The cases are slow, so there are few.
Axes long_axes();

}  // namespace halfmark::kernels::ops_cases
