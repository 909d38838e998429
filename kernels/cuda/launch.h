// The interface between host code (.cpp, which uses tensors) and device code (.cu, which uses arrays).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/number/dtype.h"
#include "kernels/number/format.h"
#include "kernels/ops/operations/image.h"
#include "kernels/ops/operations/training.h"
#include "kernels/ops/optimizers.h"

namespace halfmark::kernels::cuda {

// The dtypes that device code reads and writes element by element (arrays.cuh). A new dtype is not read until it is
// added here, together with its accessors.
constexpr bool device_code_reads(DType dtype) {
  if (dtype == DType::f64 || dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16 ||
      dtype == DType::e4m3 || dtype == DType::e5m2)
    return true;
  return false;
}

struct Array {  // of a dtype that device code reads; data may be null for an optional operand
  void* data = nullptr;
  DType dtype = DType::f32;
};

// Offset of channel c of pixel j. last: j * channels + c, else (j / pixels * channels + c) * pixels + j % pixels.
struct Channels {
  uint32_t outer, channels, pixels;  // images, channels, pixels per image; a matrix [n, c] has one pixel
  bool last;
  uint32_t count() const { return outer * pixels; }  // values per channel
  uint32_t elements() const { return outer * pixels * channels; }
};

struct Image {  // [n, c, h, w], in either layout
  uint32_t n, c, h, w;
  bool last;
};

struct WindowArgs {
  int kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
};

// Every launcher enqueues on the stream and throws Error if a launch fails. Element counts are below 2^31.

// elementwise.cu. Operands have the same layout; outputs may be inputs.
void launch_cast(cudaStream_t, uint32_t n, Array x, Array out);
// Another rounding than to nearest even; out is not f64. `seed`: of stochastic rounding, whose noise is counted in logical
// order.
void launch_cast_rounded(cudaStream_t, const Channels&, Array x, Array out, Rounding rounding, uint64_t seed);
// counted_cast.cu: the same to nearest even, and what rounding changed is added to events[0..3] (CountedCast). out is not f64.
void launch_counted_cast(cudaStream_t, uint32_t n, Array x, Array out, double* events);
void launch_scale(cudaStream_t, uint32_t n, Array x, Array out, double factor);
// `activation`: its number in the list of activations.h.
void launch_activation(cudaStream_t, size_t activation, uint32_t n, Array x, Array out);
void launch_activation_backward(cudaStream_t, size_t activation, uint32_t n, Array kept, Array dy, Array dx);
void launch_add(cudaStream_t, uint32_t n, Array a, Array b, Array out);
void launch_add_bias(cudaStream_t, const Channels&, Array x, Array bias, Array out);

// cast_tensors.cu. To nearest even, in one launch, whose parameters are 8 KB that are copied with it.
constexpr uint32_t kMostCasts = 250;
struct CastArrays {
  const void* x;
  void* out;
  uint32_t elements, first_block;
  DType x_dtype, out_dtype;
};
struct CastBatch {
  uint32_t count = 0;
  CastArrays tensors[kMostCasts];
};
uint32_t blocks_of_cast(uint32_t elements);  // the first block of each is the number of all before
// Pairs between f32 and a 16-bit dtype, which blocks take as vectors; the others take one element after another.
constexpr bool casts_as_vectors(DType x, DType out) {
  const auto is_half = [](DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; };
  return (x == DType::f32 && is_half(out)) || (is_half(x) && out == DType::f32);
}
void launch_cast_tensors(cudaStream_t, const CastBatch&, bool as_vectors);  // all pairs of the batch, or none

// reduce.cu. `scratch` has the wide type: doubles if `wide`, else floats.
size_t channel_scratch_elements(const Channels&);  // number of wide elements that those below need
void launch_bias_gradient(cudaStream_t, const Channels&, bool wide, void* scratch, Array dy, Array dbias);
struct BatchNormArrays {
  Array x, scale, shift, out, mean, variance, running_mean, running_variance;
};
void launch_batch_norm(cudaStream_t, const Channels&, bool wide, void* scratch, const BatchNormArrays&, double momentum,
                       double epsilon);
void launch_batch_norm_inference(cudaStream_t, const Channels&, const BatchNormArrays&, double epsilon);
void launch_fused_batch_norm(cudaStream_t, const Channels&, bool wide, void* scratch, const BatchNormArrays&,
                             const Array& addend, double momentum, double epsilon);  // addend: null: none
struct BatchNormBackwardArrays {
  Array x, dy, scale, mean, variance, dx, dscale, dshift;
};
void launch_batch_norm_backward(cudaStream_t, const Channels&, bool wide, void* scratch, const BatchNormBackwardArrays&,
                                double epsilon);
void launch_fused_batch_norm_backward(cudaStream_t, const Channels&, bool wide, void* scratch,
                                      const BatchNormBackwardArrays&, const Array& kept, const Array& daddend,
                                      double epsilon);  // daddend: null: not wanted
// The statistics are constants.
void launch_batch_norm_inference_backward(cudaStream_t, const Channels&, bool wide, void* scratch,
                                          const BatchNormBackwardArrays&, double epsilon);

// pooling.cu
void launch_max_pool(cudaStream_t, const Image& x, const Image& out, const WindowArgs&, Array x_data, Array out_data,
                     uint8_t* indices, bool indices_last);
void launch_max_pool_backward(cudaStream_t, const Image& dy, const Image& dx, const WindowArgs&, Array dy_data,
                              const uint8_t* indices, bool indices_last, Array dx_data);
void launch_avg_pool(cudaStream_t, const Image& x, const Image& out, const WindowArgs&, Array x_data, Array out_data);
void launch_avg_pool_backward(cudaStream_t, const Image& dy, const Image& dx, const WindowArgs&, Array dy_data,
                              Array dx_data);
// images.cu. `size` bytes per element; to_last: [n][c][p] to [n][p][c], else the reverse.
void launch_reorder(cudaStream_t, uint32_t outer, uint32_t channels, uint32_t pixels, size_t size, bool to_last,
                    const void* x, void* out);

// direct.cu: one thread, or one block, per output; any mixture
// of dtypes, fused multiply-adds in fp32, or in fp64 if `wide`.
struct MatmulArgs {
  uint32_t m, n, k;
  bool transpose_a, transpose_b;
  double beta;
  uint32_t batch = 1;  // matrices one after another
};
void launch_direct_matmul(cudaStream_t, const MatmulArgs&, bool wide, Array a, Array b, Array out);
void launch_direct_conv(cudaStream_t, const Image& x, const Image& w, const Image& y, const WindowArgs&,
                        uint32_t groups, bool wide, Array x_data, Array w_data, Array y_data);
void launch_direct_conv_backward_data(cudaStream_t, const Image& x, const Image& w, const Image& y, const WindowArgs&,
                                      uint32_t groups, bool wide, Array dy, Array w_data, Array dx);
void launch_direct_conv_backward_weights(cudaStream_t, const Image& x, const Image& w, const Image& y,
                                         const WindowArgs&, uint32_t groups, bool wide, Array x_data, Array dy,
                                         Array dw);

// copy.cu. `bytes`: of the units that are moved, in which extents and steps count.
constexpr int kMostAxes = 6;
struct PermuteArgs {
  int rank;
  uint32_t extents[kMostAxes], steps[kMostAxes];  // of the result; between the places in x
};
void launch_permute(cudaStream_t, const PermuteArgs&, size_t bytes, const void* x, void* out);
struct CopyArgs {  // out[to + run to_step + i] = x[from + run from_step + i]
  uint32_t runs, width, from, from_step, to, to_step;
};
void launch_copy_runs(cudaStream_t, const CopyArgs&, size_t bytes, const void* x, void* out);
void launch_copy_channels(cudaStream_t, const Image& x, const Image& out, uint32_t from, uint32_t to, uint32_t count,
                          size_t bytes, const void* x_data, void* out_data);
// Rows of an index outside of the table are NaN.
void launch_take_rows(cudaStream_t, uint32_t rows, uint32_t width, uint32_t entries, size_t bytes,
                      const int32_t* indices, const void* table, void* out);
// An index that does not fit becomes -2^31.
void launch_narrow_indices(cudaStream_t, uint32_t n, const int32_t* wide, int32_t* narrow);

// embedding.cu
struct EmbeddingSum {
  uint32_t rows, entries, features;
  int64_t padding;
};
size_t embedding_scratch(const EmbeddingSum&);  // bytes; 0: none
void launch_add_rows(cudaStream_t, const EmbeddingSum&, const int32_t* indices, void* scratch, Array dy, Array dtable);

// sequence.cu
struct SoftmaxForm {
  uint32_t width;
  uint32_t queries;  // rows after which the causal triangle begins again; 0: not causal
  bool log, masked;
};
void launch_softmax(cudaStream_t, uint32_t rows, const SoftmaxForm&, Array x, Array out);
void launch_softmax_backward(cudaStream_t, uint32_t rows, uint32_t width, bool log, Array y, Array dy, Array dx);
// Draws the mask, mask[i] = whether word i of Dropout::block() is at least `least`, and applies it as launch_masked().
void launch_dropout(cudaStream_t, const Channels& places, uint32_t share, uint64_t seed, uint64_t least, double factor,
                    uint8_t* mask, Array x, Array out);
// out = factor x where the mask has 1. Entry k of the mask decides about `share` elements, in logical order.
void launch_masked(cudaStream_t, const Channels& places, uint32_t share, const uint8_t* mask, double factor, Array x,
                   Array out);
struct LstmArrays {
  Array z, c_before, gates, c, h;
};
void launch_lstm_cell(cudaStream_t, uint32_t n, uint32_t hidden, const LstmArrays&);
struct LstmBackwardArrays {
  Array gates, c_before, c, dh, dc, dz, dc_before;
};
void launch_lstm_cell_backward(cudaStream_t, uint32_t n, uint32_t hidden, const LstmBackwardArrays&);

// row_norm.cu
struct RowNormForm {
  uint32_t width, repeat, entries;
  bool centred, summed;
  Channels places;  // of an image that is channels last: rows are in logical order all the same
};
struct RowNormArrays {
  Array x, scale, shift, out, mean, inverse;
};
void launch_normalize_rows(cudaStream_t, uint32_t rows, const RowNormForm&, const RowNormArrays&, double epsilon);
// row_norm_sum.cu
struct RowNormSumArrays {
  Array a, b, sum;
  RowNormArrays norm;  // without x
};
// sum = a + b, and the norm of it. false: nothing was done, since the rows do not fit registers, an operand does not begin where a
// vector does, or dtypes differ in another way than as branches of 16 bits and f32 with a sum of f32.
bool launch_add_normalize_rows(cudaStream_t, uint32_t rows, const RowNormForm&, const RowNormSumArrays&,
                               double epsilon);
// row_norm.cu
struct RowNormBackwardArrays {
  Array x, dy, scale, mean, inverse, dx, dscale, dshift;
  Array addend = {};  // only of launch_normalize_rows_backward_add()
};
size_t entry_scratch_elements(const RowNormForm&, uint32_t rows);  // number of wide elements
void launch_normalize_rows_backward(cudaStream_t, uint32_t rows, const RowNormForm&, bool wide, void* scratch,
                                    const RowNormBackwardArrays&);
// dx = that of the norm, rounded to its dtype, + addend; x, addend and dx have one dtype. false: nothing was done, since the rows
// do not fit registers, an operand does not begin where a vector does, or dtypes differ in another way.
bool launch_normalize_rows_backward_add(cudaStream_t, uint32_t rows, const RowNormForm&, void* scratch,
                                        const RowNormBackwardArrays&);

// attention.cu
struct ScoreMask {  // as of MaskScores; null: none
  void* data;
  DType dtype;
  bool is_bytes;                  // u8
  uint32_t heads, queries, keys;  // heads: that an entry of the first axis is for; queries: 1 or all
};
void launch_mask_scores(cudaStream_t, uint32_t n, uint32_t t, const ScoreMask&, Array scores, Array out);
struct AttentionForm {
  uint32_t t, s, d;
  bool causal;
  double scale;
  ScoreMask mask;
};
// `heads`: of all samples. In fp64 if `wide`.
void launch_attention(cudaStream_t, uint32_t heads, const AttentionForm&, bool wide, Array q, Array k, Array v,
                      Array out, Array log_sum);
struct AttentionBackwardViews {
  Array q, k, v, out, log_sum, dout, dq, dk, dv;
};
// scratch: one wide element per query
void launch_attention_backward(cudaStream_t, uint32_t heads, const AttentionForm&, bool wide, void* scratch,
                               const AttentionBackwardViews&);

// attention_products.cu: what attention does between its products. Of the heads from `first` on, whose scores are
// [rows, form.s] with a row for each query of each head. Scores, slopes (dout v^T), log_sum and along (the sums of dout
// out) have the wide type, weights (the probabilities) and derivatives of scores any dtype of a library, also in place.
struct HeadRows {
  AttentionForm form;
  uint32_t first, rows;
};
void launch_attention_weights(cudaStream_t, const HeadRows&, bool wide, const void* scores, Array weights,
                              void* log_sum);
void launch_attention_along(cudaStream_t, uint32_t rows, uint32_t d, bool wide, Array out, Array dout, void* along);
void launch_attention_slopes(cudaStream_t, const HeadRows&, bool wide, const void* scores, const void* slopes,
                             const void* log_sum, const void* along, Array weights, Array derivatives);

// resample.cu
size_t resample_scratch(const Image& x, const Image& out);  // bytes
void launch_resample(cudaStream_t, Resampling, void* scratch, const Image& x, const Image& out, Array x_data,
                     Array out_data);
void launch_resample_backward(cudaStream_t, Resampling, void* scratch, const Image& dy, const Image& dx, Array dy_data,
                              Array dx_data);

// cross_entropy.cu and loss.cu. `scratch` has the wide type: doubles if an operand is f64, else floats.
struct LabelForm {
  Channels places;  // of the scores; with one pixel: last
  double smoothing;
  int64_t ignored;
};
struct CrossEntropyArrays {
  Array logits, weights, loss, log_probabilities, total_weight;  // total_weight may be absent
  const int32_t* labels;
};
// scratch: two wide elements per position
void launch_cross_entropy(cudaStream_t, const LabelForm&, void* scratch, const CrossEntropyArrays&);
struct CrossEntropyBackwardArrays {
  Array log_probabilities, weights, total_weight, dlogits;  // without total_weight, dloss is divided by it already
  const int32_t* labels;
};
// scratch: one wide element
void launch_cross_entropy_backward(cudaStream_t, const LabelForm&, void* scratch, const CrossEntropyBackwardArrays&,
                                   double dloss);
struct ElementLossArrays {
  Array output, target, weights, result;
};
size_t element_loss_scratch(uint32_t n);  // number of wide elements
// `loss`: its number in the list of losses.h.
void launch_element_loss(cudaStream_t, size_t loss, uint32_t n, bool wide, void* scratch, const ElementLossArrays&,
                         double a, double b);
void launch_element_loss_backward(cudaStream_t, size_t loss, uint32_t n, bool wide, const ElementLossArrays&, double a,
                                  double b, double factor);

// ctc.cu
struct CtcForm {
  uint32_t count, steps, classes, width;  // width: states of a step
  int32_t blank;
  bool zero_infinity;
};
size_t ctc_scratch_elements(const CtcForm&);  // doubles if an operand is f64, else floats
void launch_ctc_loss(cudaStream_t, const CtcForm&, void* scratch, const int32_t* targets, Array logits, Array loss,
                     Array log_probabilities, Array alpha);
void launch_ctc_loss_backward(cudaStream_t, const CtcForm&, const int32_t* targets, Array log_probabilities,
                              Array alpha, Array dlogits, double dloss);

// delayed_scaling.cu
constexpr uint32_t kMostDelayedScales = 500;
struct DelayedScaleArrays {  // as DelayedScale; used: null if it is not kept
  const float* amax;
  float *history, *scale, *used;
  uint32_t length;
  float most;
  bool most_recent;
};
struct DelayedScaleBatch {
  DelayedScaleArrays scales[kMostDelayedScales];
};
static_assert(sizeof(DelayedScaleBatch) + 128 < 32764);
void launch_delayed_scaling_step(cudaStream_t, const DelayedScaleBatch&, uint32_t count, bool ends_step);

// optimizer.cu, gradients.cu. The tensors of a launch are its parameters, of which CUDA 12.1 and later take up to 32764 bytes.
constexpr uint32_t kMostTensors = 400;
struct UpdatedArrays {  // as UpdatedTensors; null: absent
  void *parameter, *gradient, *first, *second, *compensation, *low;
  uint64_t first_noise;  // the number of the first element in the noise
  uint32_t elements, first_block;
  DType parameter_dtype, gradient_dtype, first_dtype, second_dtype, compensation_dtype, low_dtype;
};
struct UpdateBatch {
  uint32_t count = 0;
  UpdatedArrays tensors[kMostTensors];
};
struct GradientArray {
  void* data;
  uint32_t elements, first_block;
  DType dtype;
};
struct GradientBatch {
  uint32_t count = 0;
  GradientArray tensors[kMostTensors];
};
static_assert(sizeof(UpdateBatch) + 128 < 32764 && sizeof(GradientBatch) + 128 < 32764);
struct StepForm {
  Storage storage;
  StepRounding rounding;
  uint64_t noise;
  const float* found_inf;  // as of SgdStep; null: absent
};
// Of a parameter, and of a gradient of a norm; the first block of each is the number of all before.
uint32_t blocks_of_updates(uint32_t elements);
uint32_t blocks_of_elements(uint32_t elements);
// In fp64 if `wide` is not null, else in fp32.
void launch_sgd_step(cudaStream_t, const UpdateBatch&, const StepForm&, const formulas::SgdConstants<float>* narrow,
                     const formulas::SgdConstants<double>* wide);
void launch_adam_step(cudaStream_t, const UpdateBatch&, const StepForm&, AdamKind,
                      const formulas::AdamConstants<float>* narrow, const formulas::AdamConstants<double>* wide);
uint32_t launch_sum_squares(cudaStream_t, const GradientBatch&, double* parts);  // returns how many; at most its blocks
void launch_root_of_sum(cudaStream_t, uint32_t n, const double* parts, Array norm);
// These in fp64 if `wide`.
void launch_unscale(cudaStream_t, const GradientBatch&, bool wide, float* found_inf, float inverse_scale);
void launch_clip(cudaStream_t, const GradientBatch&, bool wide, Array norm, double limit);

// quantize.cu. Rules and their names: number/quantizer.cpp.
enum class QuantizeRule : uint8_t {
  current,
  current_power_of_two,
  block_power_of_two,
  block_fp32,
  mx_rounded_up,
  nvfp4,
  torchao,
  torchao_power_of_two,
  deepseek,
};
struct QuantizeForm {
  uint32_t rows, depth, width;  // depth: of x; width: of the codes
  uint32_t tile_rows, tile_depth, tiles_along_depth;
  bool transpose, transform, stochastic, nan_spreads, divides, has_tensor_scale, largest_is_even;
  QuantizeRule rule;
  DType element;           // e4m3, e5m2 or e2m1
  float most, input_most;  // the largest number of the element and of the dtype of x
  double middle;           // magnitudes beyond it are saturated
  uint64_t seed, first_noise;
};
struct TileFactors {  // as TileScale; without initial values, as variables in shared memory must be
  float factor, decode;
  uint32_t code;
};
struct QuantizeResults {  // null: not wanted
  uint8_t *codes, *scale_codes;
  float *scales, *tensor_scale, *amax;
  double* losses;
};
size_t quantize_scratch(const QuantizeForm&, uint32_t tiles, Array x, const QuantizeResults&);  // bytes
// `factor`: null, or of all tiles.
void launch_quantize(cudaStream_t, const QuantizeForm&, uint32_t tiles, void* scratch, Array x, const float* factor,
                     const QuantizeResults&);
struct ScaledSide {  // as Scaled
  const uint8_t* codes;
  const void* scales;         // null: none
  const float* tensor_scale;  // null: 1
  DType element, scale;
  uint32_t rows, depth, tile_rows, tile_depth, tiles_along;
  bool transposed;
};
// outer: each `block` of k is a sum of its own, which its scales multiply; else one block. `divided`: factor of the sums if
// there is a tensor scale.
void launch_scaled_matmul(cudaStream_t, const ScaledSide& a, const ScaledSide& b, bool outer, uint32_t block,
                          float divided, Array out);

// Waits about `microseconds` on the device, so that the timed work is enqueued before it starts.
void launch_pause(cudaStream_t, uint32_t microseconds);
// Whether this build contains code that the current device can run; else the reason.
const char* code_for_device();  // null = yes

}  // namespace halfmark::kernels::cuda
