// Rows of batch norm, alone and with ReLU, the bias gradient and the softmax loss; their kernels are in reduce.cu. A second
// row of batch norm adds in the order of n, h, w and rounds each sum to a chosen format (in_order.cu).
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include "kernels/cuda/launch_in_order.h"
#include "kernels/cuda/rows.h"

namespace halfmark::kernels::cuda {
namespace {

// An image that is read beside another is copied into the layout of that one, if it has the other.
Refusal refuses_beside(std::initializer_list<const Tensor*> images) {
  if (Refusal r = not_readable_dtype(images)) return r;
  if (Refusal r = not_indexable(images)) return r;
  return not_readable(images);
}

Refusal refuses_channels(std::initializer_list<const Tensor*> images, std::initializer_list<const Tensor*> inputs,
                         std::initializer_list<const Tensor*> vectors) {
  if (Refusal r = not_readable_dtype(images)) return r;
  if (Refusal r = not_readable_dtype(vectors)) return r;
  if (Refusal r = not_indexable(images)) return r;
  if (Refusal r = not_readable(inputs)) return r;
  if (Refusal r = not_plain(vectors)) return r;
  return not_alike(images);
}

Tensor scratch(CudaDevice& device, size_t elements, bool wide) { return workspace(device, elements * (wide ? 8 : 4)); }

Refusal bias_gradient_refuses(const Device&, const BiasGradient& op) {
  return refuses_channels({&op.dy}, {&op.dy}, {&op.dbias});
}
void bias_gradient(Device& device, const BiasGradient& op) {
  CudaDevice& cuda = on(device);
  op.dbias.materialize(Layout::plain);
  const bool wide = any_f64({&op.dy, &op.dbias});
  const Channels c = channels(op.dy);
  Tensor memory = scratch(cuda, channel_scratch_elements(c), wide);
  launch_bias_gradient(cuda.stream(), c, wide, memory.data(), array(op.dy), array(op.dbias));
}

Refusal batch_norm_refuses(const Device&, const BatchNorm& op) {
  if (op.accumulate) return "its sums are in fp32 or fp64";
  return refuses_channels({&op.x, &op.out}, {&op.x, &op.scale, &op.shift, &op.running_mean, &op.running_variance},
                          {&op.scale, &op.shift, &op.mean, &op.variance, &op.running_mean, &op.running_variance});
}
void batch_norm(Device& device, const BatchNorm& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(op.x.layout());
  op.mean.materialize(Layout::plain), op.variance.materialize(Layout::plain);
  const bool wide =
      any_f64({&op.x, &op.out, &op.scale, &op.shift, &op.mean, &op.variance, &op.running_mean, &op.running_variance});
  const Channels c = channels(op.x);
  Tensor memory = scratch(cuda, channel_scratch_elements(c), wide);
  const BatchNormArrays arrays{array(op.x),    array(op.scale),    array(op.shift),        array(op.out),
                               array(op.mean), array(op.variance), array(op.running_mean), array(op.running_variance)};
  launch_batch_norm(cuda.stream(), c, wide, memory.data(), arrays, op.momentum, op.epsilon);
}

// fp64 unless another format is chosen. Nothing: the kernel does not round to it.
std::optional<DType> dtype_of_sums(const BatchNorm& op) {
  const Format& format = op.accumulate ? *op.accumulate : kFp64;
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64})
    if (format == format_of(dtype)) return dtype;
  return {};
}

Refusal batch_norm_in_order_refuses(const Device&, const BatchNorm& op) {
  if (!dtype_of_sums(op)) return "its sums are in f16, bf16, f32 or f64, not " + std::string(op.accumulate->name);
  return refuses_channels({&op.x, &op.out}, {&op.x, &op.scale, &op.shift, &op.running_mean, &op.running_variance},
                          {&op.scale, &op.shift, &op.mean, &op.variance, &op.running_mean, &op.running_variance});
}
void batch_norm_in_order(Device& device, const BatchNorm& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(op.x.layout());
  op.mean.materialize(Layout::plain), op.variance.materialize(Layout::plain);
  const Channels c = channels(op.x);
  Tensor memory = scratch(cuda, channel_scratch_elements(c), true);
  const BatchNormArrays arrays{array(op.x),    array(op.scale),    array(op.shift),        array(op.out),
                               array(op.mean), array(op.variance), array(op.running_mean), array(op.running_variance)};
  launch_batch_norm_in_order(cuda.stream(), c, *dtype_of_sums(op), memory.data(), arrays, op.momentum, op.epsilon);
}

Refusal inference_refuses(const Device&, const BatchNormInference& op) {
  return refuses_channels({&op.x, &op.out}, {&op.x, &op.scale, &op.shift, &op.running_mean, &op.running_variance},
                          {&op.scale, &op.shift, &op.running_mean, &op.running_variance});
}
void inference(Device& device, const BatchNormInference& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(op.x.layout());
  const BatchNormArrays arrays{array(op.x), array(op.scale),        array(op.shift),           array(op.out), {},
                               {},          array(op.running_mean), array(op.running_variance)};
  launch_batch_norm_inference(cuda.stream(), channels(op.x), arrays, op.epsilon);
}

Refusal backward_refuses(const Device&, const BatchNormBackward& op) {
  if (Refusal r = refuses_beside({&op.dy})) return r;
  return refuses_channels({&op.x, &op.dx}, {&op.x, &op.scale, &op.mean, &op.variance},
                          {&op.scale, &op.mean, &op.variance, &op.dscale, &op.dshift});
}
void backward(Device& device, const BatchNormBackward& op) {
  CudaDevice& cuda = on(device);
  op.dx.materialize(op.x.layout());
  op.dscale.materialize(Layout::plain), op.dshift.materialize(Layout::plain);
  const bool wide = any_f64({&op.x, &op.dy, &op.dx, &op.scale, &op.mean, &op.variance, &op.dscale, &op.dshift});
  const Channels c = channels(op.x);
  Tensor memory = scratch(cuda, channel_scratch_elements(c), wide);
  const Tensor dy = in_layout(cuda, op.dy, op.x.layout());
  const BatchNormBackwardArrays arrays{array(op.x),        array(dy),    array(op.scale),  array(op.mean),
                                       array(op.variance), array(op.dx), array(op.dscale), array(op.dshift)};
  launch_batch_norm_backward(cuda.stream(), c, wide, memory.data(), arrays, op.epsilon);
}

Refusal inference_backward_refuses(const Device&, const BatchNormInferenceBackward& op) {
  if (Refusal r = refuses_beside({&op.dy})) return r;
  return refuses_channels({&op.x, &op.dx}, {&op.x, &op.scale, &op.running_mean, &op.running_variance},
                          {&op.scale, &op.running_mean, &op.running_variance, &op.dscale, &op.dshift});
}
void inference_backward(Device& device, const BatchNormInferenceBackward& op) {
  CudaDevice& cuda = on(device);
  op.dx.materialize(op.x.layout());
  op.dscale.materialize(Layout::plain), op.dshift.materialize(Layout::plain);
  const bool wide =
      any_f64({&op.x, &op.dy, &op.dx, &op.scale, &op.running_mean, &op.running_variance, &op.dscale, &op.dshift});
  const Channels c = channels(op.x);
  Tensor memory = scratch(cuda, channel_scratch_elements(c), wide);
  const Tensor dy = in_layout(cuda, op.dy, op.x.layout());
  const BatchNormBackwardArrays arrays{
      array(op.x),  array(dy),        array(op.scale), array(op.running_mean), array(op.running_variance),
      array(op.dx), array(op.dscale), array(op.dshift)};
  launch_batch_norm_inference_backward(cuda.stream(), c, wide, memory.data(), arrays, op.epsilon);
}

Refusal fused_refuses(const Device&, const FusedBatchNorm& op) {
  if (Refusal r = refuses_beside({&op.addend})) return r;
  return refuses_channels({&op.x, &op.out}, {&op.x, &op.scale, &op.shift, &op.running_mean, &op.running_variance},
                          {&op.scale, &op.shift, &op.mean, &op.variance, &op.running_mean, &op.running_variance});
}
void fused(Device& device, const FusedBatchNorm& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(op.x.layout());
  op.mean.materialize(Layout::plain), op.variance.materialize(Layout::plain);
  const bool wide = any_f64({&op.x, &op.addend, &op.out, &op.scale, &op.shift, &op.mean, &op.variance, &op.running_mean,
                             &op.running_variance});
  const Channels c = channels(op.x);
  Tensor memory = scratch(cuda, channel_scratch_elements(c), wide);
  const BatchNormArrays arrays{array(op.x),    array(op.scale),    array(op.shift),        array(op.out),
                               array(op.mean), array(op.variance), array(op.running_mean), array(op.running_variance)};
  const Tensor addend = op.addend.empty() ? Tensor() : in_layout(cuda, op.addend, op.x.layout());
  launch_fused_batch_norm(cuda.stream(), c, wide, memory.data(), arrays, array(addend), op.momentum, op.epsilon);
}

Refusal fused_backward_refuses(const Device&, const FusedBatchNormBackward& op) {
  if (Refusal r = refuses_beside({&op.kept, &op.dy})) return r;
  return refuses_channels({&op.x, &op.dx, &op.daddend}, {&op.x, &op.scale, &op.mean, &op.variance},
                          {&op.scale, &op.mean, &op.variance, &op.dscale, &op.dshift});
}
void fused_backward(Device& device, const FusedBatchNormBackward& op) {
  CudaDevice& cuda = on(device);
  op.dx.materialize(op.x.layout());
  if (!op.daddend.empty()) op.daddend.materialize(op.x.layout());
  op.dscale.materialize(Layout::plain), op.dshift.materialize(Layout::plain);
  const bool wide = any_f64(
      {&op.x, &op.kept, &op.dy, &op.dx, &op.daddend, &op.scale, &op.mean, &op.variance, &op.dscale, &op.dshift});
  const Channels c = channels(op.x);
  Tensor memory = scratch(cuda, channel_scratch_elements(c), wide);
  const Tensor dy = in_layout(cuda, op.dy, op.x.layout());
  const BatchNormBackwardArrays arrays{array(op.x),        array(dy),    array(op.scale),  array(op.mean),
                                       array(op.variance), array(op.dx), array(op.dscale), array(op.dshift)};
  const Tensor kept = in_layout(cuda, op.kept, op.x.layout());
  launch_fused_batch_norm_backward(cuda.stream(), c, wide, memory.data(), arrays, array(kept), array(op.daddend),
                                   op.epsilon);
}

Refusal softmax_refuses(const Device&, const SoftmaxCrossEntropy& op) {
  return refuses_channels({&op.logits, &op.log_probabilities}, {&op.logits, &op.labels}, {&op.loss});
}
void softmax(Device& device, const SoftmaxCrossEntropy& op) {
  CudaDevice& cuda = on(device);
  op.log_probabilities.materialize(Layout::plain), op.loss.materialize(Layout::plain);
  const bool wide = any_f64({&op.logits, &op.log_probabilities, &op.loss});
  const Shape& shape = op.logits.shape();
  Tensor memory = scratch(cuda, static_cast<size_t>(shape[0]) * 2, wide);
  const LabelForm form{{static_cast<uint32_t>(shape[0]), static_cast<uint32_t>(shape[1]), 1, true}, 0, INT64_MIN};
  launch_cross_entropy(
      cuda.stream(), form, memory.data(),
      {array(op.logits), {}, array(op.loss), array(op.log_probabilities), {}, op.labels.as<int32_t>()});
}

}  // namespace

void add_reduce_rows(KernelTable& table) {
  table.of<BiasGradient>().push_back({"cuda", Speed::real, bias_gradient_refuses, bias_gradient});
  table.of<BatchNorm>().push_back({"cuda", Speed::real, batch_norm_refuses, batch_norm});
  table.of<BatchNorm>().push_back({"cuda-direct", Speed::emulated, batch_norm_in_order_refuses, batch_norm_in_order});
  table.of<BatchNormInference>().push_back({"cuda", Speed::real, inference_refuses, inference});
  table.of<BatchNormBackward>().push_back({"cuda", Speed::real, backward_refuses, backward});
  table.of<BatchNormInferenceBackward>().push_back(
      {"cuda", Speed::real, inference_backward_refuses, inference_backward});
  table.of<FusedBatchNorm>().push_back({"cuda", Speed::real, fused_refuses, fused});
  table.of<FusedBatchNormBackward>().push_back({"cuda", Speed::real, fused_backward_refuses, fused_backward});
  table.of<SoftmaxCrossEntropy>().push_back({"cuda", Speed::real, softmax_refuses, softmax});
}

}  // namespace halfmark::kernels::cuda
