// Rows `cudnn`: layer norm, RMS norm and batch norm for training, by the graph API. They come after halfmark's own rows and
// are used only if their results agree with those (cudnn_graph_plan.h).
//
// cuDNN keeps 1 / sqrt(variance + epsilon) of a batch, from which the variance of a channel whose values are nearly alike
// cannot be had. It is therefore taken from cuDNN's running variance: with a momentum of 1 that is the unbiased variance of
// the batch alone. With constant statistics a graph of pointwise operations computes it.
#include <cstdint>
#include <initializer_list>
#include <string>

#include "kernels/cuda/cudnn_norm_plan.h"

namespace halfmark::kernels::cuda {
namespace {

Refusal not_for_norms(std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* one : tensors) {
    if (one->empty()) continue;
    const DType dtype = one->dtype();
    if (dtype != DType::f32 && dtype != DType::f16 && dtype != DType::bf16)
      return "takes f32, f16, bf16, not " + std::string(name_of(dtype));
  }
  return {};
}

// `parameters`: scale, shift and their gradients; `statistics`: what is kept for backward.
Refusal other_norm_dtypes(std::initializer_list<const Tensor*> images, std::initializer_list<const Tensor*> parameters,
                          std::initializer_list<const Tensor*> statistics) {
  for (const auto& group : {images, parameters, statistics})
    if (Refusal r = not_for_norms(group)) return r;
  const DType dtype = (*images.begin())->dtype();
  for (const Tensor* one : images)
    if (one->dtype() != dtype) return "takes x and its result of one dtype";
  const DType of_parameters = (*parameters.begin())->dtype();
  for (const Tensor* one : parameters)
    if (!one->empty() && one->dtype() != of_parameters) return "takes scale and shift of one dtype";
  if (of_parameters != DType::f32 && of_parameters != dtype) return "takes scale in f32 or in the dtype of x";
  for (const Tensor* one : statistics)
    if (!one->empty() && one->dtype() != DType::f32) return "keeps its statistics in f32";
  return {};
}

template <class Op>
NormProblem row_norm_problem(const Op& op, bool backward) {
  NormProblem p;
  p.kind = op.centred ? NormKind::layer : NormKind::rms;
  p.backward = backward, p.dtype = op.x.dtype(), p.parameters = op.scale.dtype();
  p.x = {op.x.elements() / op.width, op.width, 1, 1};
  return p;
}
NormProblem norm_problem(const NormalizeRows& op) {
  NormProblem p = row_norm_problem(op, false);
  p.has_shift = !op.shift.empty();
  return p;
}
NormProblem norm_problem(const NormalizeRowsBackward& op) { return row_norm_problem(op, true); }

template <class Op>
NormProblem batch_norm_problem(const Op& op, bool backward) {
  const Channels c = channels(op.x);
  const Shape& shape = op.x.shape();
  NormProblem p;
  p.kind = NormKind::batch, p.backward = backward, p.dtype = op.x.dtype(), p.parameters = op.scale.dtype();
  p.x = {shape[0], shape[1], shape.rank() == 2 ? 1 : shape[2], shape.rank() == 2 ? 1 : shape[3]};
  p.last = c.last;
  return p;
}
NormProblem norm_problem(const BatchNorm& op) { return batch_norm_problem(op, false); }
NormProblem norm_problem(const BatchNormBackward& op) { return batch_norm_problem(op, true); }

NormProblem norm_problem(const BatchNormInference& op) {
  NormProblem p = batch_norm_problem(op, false);
  p.kind = NormKind::constant;
  return p;
}

Refusal no_norm_plan(const Device& device, const NormProblem& problem) {
  const GraphPlan& plan = norm_plan(of(device), problem);
  if (!plan.refusal().empty()) return plan.refusal();
  return {};
}
template <class Op>
const GraphPlan& usable_norm_plan(const CudaDevice& device, const Op& op) {
  op.visit(AlignmentCheck{});
  const GraphPlan& plan = norm_plan(device, norm_problem(op));
  HM_CHECK(plan.refusal().empty(), "cudnn " + plan.refusal());
  return plan;
}

template <class Op>
Refusal other_norm_rows(const Op& op) {
  if (op.scale.empty()) return "needs a scale";
  if (op.summed) return "divides rows by the mean of their squares, not by the sum";
  if (op.repeat != 1 || op.scale.elements() != op.width) return "takes one entry of scale for each value of a row";
  return {};
}

Refusal rows_refuses(const Device& device, const NormalizeRows& op) {
  if (Refusal r = other_norm_rows(op)) return r;
  if (!op.centred && !op.shift.empty()) return "has no shift without a mean";
  if (Refusal r = other_norm_dtypes({&op.x, &op.out}, {&op.scale, &op.shift}, {&op.mean, &op.inverse})) return r;
  if (Refusal r = not_indexable({&op.x})) return r;
  if (Refusal r = not_plain({&op.x, &op.out, &op.scale, &op.shift, &op.mean, &op.inverse})) return r;
  return no_norm_plan(device, norm_problem(op));
}
void rows_forward(Device& device, const NormalizeRows& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(Layout::plain), op.inverse.materialize(Layout::plain);
  if (op.centred) op.mean.materialize(Layout::plain);
  const auto epsilon = static_cast<float>(op.epsilon);
  usable_norm_plan(cuda, op).run(cuda, operands_of(op, epsilon));
}

Refusal rows_backward_refuses(const Device& device, const NormalizeRowsBackward& op) {
  if (Refusal r = other_norm_rows(op)) return r;
  if (!op.centred && !op.dshift.empty()) return "has no shift without a mean";
  if (Refusal r =
          other_norm_dtypes({&op.x, &op.dy, &op.dx}, {&op.scale, &op.dscale, &op.dshift}, {&op.mean, &op.inverse}))
    return r;
  if (Refusal r = not_indexable({&op.x})) return r;
  if (Refusal r = not_plain({&op.x, &op.dy, &op.dx, &op.scale, &op.mean, &op.inverse, &op.dscale, &op.dshift}))
    return r;
  return no_norm_plan(device, norm_problem(op));
}
void rows_backward(Device& device, const NormalizeRowsBackward& op) {
  CudaDevice& cuda = on(device);
  op.dx.materialize(Layout::plain);
  for (Tensor* one : {&op.dscale, &op.dshift})
    if (!one->empty()) one->materialize(Layout::plain);
  const GraphPlan& plan = usable_norm_plan(cuda, op);
  plan.run(cuda, operands_of(op, RowGradients(cuda, op)));
}

Refusal other_norm_images(std::initializer_list<const Tensor*> inputs, std::initializer_list<const Tensor*> alike,
                          std::initializer_list<const Tensor*> vectors) {
  if (Refusal r = not_indexable(inputs)) return r;
  if (Refusal r = not_readable(inputs)) return r;
  if (Refusal r = not_plain(vectors)) return r;
  if (channels(**inputs.begin()).count() < 2) return "needs two values of a channel";
  return not_alike(alike);
}

Refusal batch_refuses(const Device& device, const BatchNorm& op) {
  if (op.accumulate) return "its sums are in fp32";
  if (Refusal r = other_norm_dtypes({&op.x, &op.out}, {&op.scale, &op.shift}, {&op.mean, &op.variance})) return r;
  if (Refusal r = not_for_norms({&op.running_mean, &op.running_variance})) return r;
  if (Refusal r =
          other_norm_images({&op.x}, {&op.x, &op.out},
                            {&op.scale, &op.shift, &op.mean, &op.variance, &op.running_mean, &op.running_variance}))
    return r;
  return no_norm_plan(device, norm_problem(op));
}
void batch_forward(Device& device, const BatchNorm& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(op.x.layout());
  op.mean.materialize(Layout::plain), op.variance.materialize(Layout::plain);
  const auto epsilon = static_cast<float>(op.epsilon);
  const GraphPlan& plan = usable_norm_plan(cuda, op);
  const BatchScratch scratch(cuda, op.mean.elements());
  plan.run(cuda, operands_of(op, scratch, epsilon));
  keep_statistics(cuda, op, scratch);
}

Refusal batch_backward_refuses(const Device& device, const BatchNormBackward& op) {
  if (Refusal r =
          other_norm_dtypes({&op.x, &op.dy, &op.dx}, {&op.scale, &op.dscale, &op.dshift}, {&op.mean, &op.variance}))
    return r;
  if (Refusal r = other_norm_images({&op.x, &op.dy}, {&op.x, &op.dx},
                                    {&op.scale, &op.mean, &op.variance, &op.dscale, &op.dshift}))
    return r;
  return no_norm_plan(device, norm_problem(op));
}
void batch_backward(Device& device, const BatchNormBackward& op) {
  CudaDevice& cuda = on(device);
  op.dx.materialize(op.x.layout());
  op.dscale.materialize(Layout::plain), op.dshift.materialize(Layout::plain);
  const GraphPlan& plan = usable_norm_plan(cuda, op);
  const Tensor dy = in_layout(cuda, op.dy, op.x.layout());
  plan.run(cuda, operands_of(op, dy, inverse_deviations(cuda, op)));
}

Refusal constant_refuses(const Device& device, const BatchNormInference& op) {
  if (Refusal r = other_norm_dtypes({&op.x, &op.out}, {&op.scale, &op.shift}, {})) return r;
  for (const Tensor* one : {&op.running_mean, &op.running_variance})
    if (one->dtype() != op.scale.dtype()) return "takes scale and statistics of one dtype";
  if (Refusal r = not_indexable({&op.x})) return r;
  if (Refusal r = not_readable({&op.x})) return r;
  if (Refusal r = not_plain({&op.scale, &op.shift, &op.running_mean, &op.running_variance})) return r;
  if (Refusal r = not_alike({&op.x, &op.out})) return r;
  return no_norm_plan(device, norm_problem(op));
}
void constant_forward(Device& device, const BatchNormInference& op) {
  CudaDevice& cuda = on(device);
  op.out.materialize(op.x.layout());
  const auto epsilon = static_cast<float>(op.epsilon);
  usable_norm_plan(cuda, op).run(cuda, operands_of(op, epsilon));
}

template <class Op>
std::string norm_choice(const Device& device, const Op& op) {
  return norm_plan(of(device), norm_problem(op)).choice();
}

}  // namespace

void add_cudnn_norm_rows(KernelTable& table, const CudaDevice& device) {
  add_compared_row<NormalizeRows>(table, rows_refuses, rows_forward, norm_choice<NormalizeRows>);
  add_compared_row<NormalizeRowsBackward>(table, rows_backward_refuses, rows_backward,
                                          norm_choice<NormalizeRowsBackward>);
  add_compared_row<BatchNormInference>(table, constant_refuses, constant_forward, norm_choice<BatchNormInference>);
  if (device.compute_capability() < 80) return;  // no engine has batch norm there
  add_compared_row<BatchNorm>(table, batch_refuses, batch_forward, norm_choice<BatchNorm>);
  add_compared_row<BatchNormBackward>(table, batch_backward_refuses, batch_backward, norm_choice<BatchNormBackward>);
}

}  // namespace halfmark::kernels::cuda
