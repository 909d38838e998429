// Batch normalisation on the rows "onednn". Plain images are first converted to a layout with fast code: oneDNN's own
// code for plain images is several times slower than the two copies.
#include <cmath>
#include <initializer_list>
#include <string>
#include <vector>

#include "kernels/cpu/onednn/plan.h"
#include "kernels/cpu/onednn/rows.h"

namespace halfmark::kernels::onednn {
namespace {

// The first layout with fast code, or the given one if there is none. make(desc) -> a primitive descriptor.
template <class Make>
auto first_fast(const Tensor& image, Make make) {
  std::vector<Desc> layouts = image_layouts(image);
  for (const Desc& layout : layouts) {
    try {
      auto description = make(layout);
      if (!is_reference(description.impl_info_str())) return description;
    } catch (const dnnl::error&) {  // the next layout
    }
  }
  return make(layouts.back());
}

template <class Primitive, class Description>
Plan image_plan(const Description& description, const Desc& image) {
  Plan plan = plan_of<Primitive>(description);
  plan.x = plan.y = image;
  return plan;
}

template <class Op>
Plan make_forward_plan(const Op& op, bool training) {
  const auto description = first_fast(
      op.x, [&](const Desc& x) { return make_batch_norm(training, x, static_cast<float>(op.epsilon), attributes()); });
  return image_plan<dnnl::batch_normalization_forward>(description, description.src_desc());
}
Plan make_training_plan(const BatchNorm& op) { return make_forward_plan(op, true); }
Plan make_inference_plan(const BatchNormInference& op) { return make_forward_plan(op, false); }

Plan make_backward_plan(const BatchNormBackward& op) {
  const auto epsilon = static_cast<float>(op.epsilon);
  // x and its gradient must have the same layout: that of whichever is not plain.
  const Tensor& image = op.x.layout() == Layout::plain ? op.dy : op.x;
  const auto description = first_fast(image, [&](const Desc& x) {
    return make_batch_norm_backward(x, epsilon, attributes(), make_batch_norm(true, x, epsilon, attributes()));
  });
  return image_plan<dnnl::batch_normalization_backward>(description, description.src_desc());
}

Refusal refuses_images(std::initializer_list<const Tensor*> images) {
  const DType dtype = (*images.begin())->dtype();
  for (const Tensor* image : images)
    if (image->dtype() != dtype) return "images of different dtypes";
  return refuses_dtype(dtype);
}

Refusal refuses_statistics(std::initializer_list<const Tensor*> vectors) {
  for (const Tensor* vector : vectors)
    if (vector->dtype() != DType::f32)
      return "statistics of dtype " + std::string(name_of(vector->dtype())) + ", not f32";
  return {};
}

Refusal refuses_parameters(std::initializer_list<const Tensor*> vectors) {
  for (const Tensor* vector : vectors)
    if (vector->dtype() != DType::f32 && vector->dtype() != DType::bf16 && vector->dtype() != DType::f16)
      return "scale and shift of dtype " + std::string(name_of(vector->dtype()));
  return {};
}

Refusal refuses_training(const Device&, const BatchNorm& op) {
  if (op.accumulate) return "its sums are in fp32";
  if (Refusal refusal = refuses_images({&op.x, &op.out})) return refusal;
  if (Refusal refusal = refuses_statistics({&op.mean, &op.variance})) return refusal;
  if (Refusal refusal = refuses_parameters({&op.scale, &op.shift, &op.running_mean, &op.running_variance}))
    return refusal;
  return refuses_plan(op, make_training_plan);
}

// running <- (1 - momentum) running + momentum batch, in fp32, rounded once to the dtype it is stored in.
void update_running(Tensor& running, const Tensor& batch, double momentum, double correction) {
  const auto keep = static_cast<float>(1 - momentum), add = static_cast<float>(momentum),
             factor = static_cast<float>(correction);
  const float* value = batch.as<float>();
  const auto channels = static_cast<size_t>(batch.elements());
  for (size_t c = 0; c < channels; ++c) {
    const auto old = static_cast<float>(load(running.dtype(), running.data(), c));
    store(running.dtype(), running.data(), c, keep * old + add * (value[c] * factor));
  }
}

void run_training(Device& device, const BatchNorm& op) {
  const Plan& plan = plan_for(op, make_training_plan);
  op.mean.materialize(Layout::plain), op.variance.materialize(Layout::plain);
  Call call(device, plan);
  call.in(DNNL_ARG_SRC, op.x, plan.x);
  call.vector(DNNL_ARG_SCALE, op.scale), call.vector(DNNL_ARG_SHIFT, op.shift);
  call.vector_out(DNNL_ARG_MEAN, op.mean), call.vector_out(DNNL_ARG_VARIANCE, op.variance);
  call.out(DNNL_ARG_DST, op.out, plan.y);
  call.run();
  const Shape& s = op.x.shape();
  const auto values = static_cast<double>(s[0] * s[2] * s[3]);
  update_running(op.running_mean, op.mean, op.momentum, 1);
  update_running(op.running_variance, op.variance, op.momentum, values / (values - 1));
}

Refusal refuses_inference(const Device&, const BatchNormInference& op) {
  if (Refusal refusal = refuses_images({&op.x, &op.out})) return refusal;
  if (Refusal refusal = refuses_parameters({&op.scale, &op.shift, &op.running_mean, &op.running_variance}))
    return refusal;
  return refuses_plan(op, make_inference_plan);
}

void run_inference(Device& device, const BatchNormInference& op) {
  const Plan& plan = plan_for(op, make_inference_plan);
  Call call(device, plan);
  call.in(DNNL_ARG_SRC, op.x, plan.x);
  call.vector(DNNL_ARG_SCALE, op.scale), call.vector(DNNL_ARG_SHIFT, op.shift);
  call.vector(DNNL_ARG_MEAN, op.running_mean), call.vector(DNNL_ARG_VARIANCE, op.running_variance);
  call.out(DNNL_ARG_DST, op.out, plan.y);
  call.run();
}

Refusal refuses_backward(const Device&, const BatchNormBackward& op) {
  if (Refusal refusal = refuses_images({&op.x, &op.dy, &op.dx})) return refusal;
  if (Refusal refusal = refuses_statistics({&op.mean, &op.variance})) return refusal;
  if (Refusal refusal = refuses_parameters({&op.scale, &op.dscale, &op.dshift})) return refusal;
  return refuses_plan(op, make_backward_plan);
}

void run_backward(Device& device, const BatchNormBackward& op) {
  const Plan& plan = plan_for(op, make_backward_plan);
  Call call(device, plan);
  call.in(DNNL_ARG_SRC, op.x, plan.x), call.in(DNNL_ARG_DIFF_DST, op.dy, plan.y);
  call.vector(DNNL_ARG_MEAN, op.mean), call.vector(DNNL_ARG_VARIANCE, op.variance);
  call.vector(DNNL_ARG_SCALE, op.scale);
  if (kBackwardTakesShift) call.vector(DNNL_ARG_SHIFT, op.scale);  // any vector will do
  call.out(DNNL_ARG_DIFF_SRC, op.dx, plan.x);
  call.vector_out(DNNL_ARG_DIFF_SCALE, op.dscale), call.vector_out(DNNL_ARG_DIFF_SHIFT, op.dshift);
  call.run();
}

}  // namespace

void add_batch_norms(KernelTable& table) {
  table.of<BatchNorm>().push_back({"onednn", Speed::real, refuses_training, run_training});
  table.of<BatchNormInference>().push_back({"onednn", Speed::real, refuses_inference, run_inference});
  table.of<BatchNormBackward>().push_back({"onednn", Speed::real, refuses_backward, run_backward});
}

}  // namespace halfmark::kernels::onednn
