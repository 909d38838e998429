#include "kernels/cpu/onednn/pointwise.h"

#include <cstdint>

namespace halfmark::kernels::onednn {
namespace {

bool moves_no_pixel(const Window& w) { return w.stride_h == 1 && w.stride_w == 1 && w.pad_h == 0 && w.pad_w == 0; }

int64_t pixels_of(const Tensor& image) { return image.shape()[0] * image.shape()[2] * image.shape()[3]; }

// Images in blocks of channels, as grouped convolutions leave them, are reordered first. In fp32 that has to be less than the
// filter; bf16 gains more by AMX.
bool worth_reordering(const Tensor& image, const Tensor& filter) {
  const Shape& w = filter.shape();
  return image.dtype() != DType::f32 || pixels_of(image) * (w[0] + w[1]) < w[0] * w[1];
}

bool is_operand(const Tensor& image, const Tensor& filter) {
  return image.layout() == Layout::nhwc || (image.layout() == Layout::opaque && worth_reordering(image, filter));
}

bool is_pointwise(const Tensor& filter, const Window& window, int groups) {
  const Shape& w = filter.shape();
  return groups == 1 && w[2] == 1 && w[3] == 1 && moves_no_pixel(window) && filter.layout() != Layout::opaque;
}

bool is_result(const Tensor& image) { return image.layout() == Layout::nhwc || image.layout() == Layout::any; }

Desc matrix(const Tensor& tensor, int64_t rows, int64_t columns) {
  return Desc(Dims{rows, columns}, type_of(tensor.dtype()), Dims{columns, 1});
}
Desc transposed(const Tensor& tensor, int64_t rows, int64_t columns) {
  return Desc(Dims{columns, rows}, type_of(tensor.dtype()), Dims{1, columns});
}
Desc matrix_of_pixels(const Tensor& image) { return matrix(image, pixels_of(image), image.shape()[1]); }

Plan product(const Desc& a, const Desc& b, const Desc& out, const Desc& bias = Desc()) {
  Plan plan = plan_of<dnnl::matmul>(make_matmul(a, b, out, attributes(), bias));
  plan.x = a, plan.w = b, plan.y = out;
  return plan;
}

void take_image(Call& call, int argument, const Tensor& image, const Desc& seen) {
  call.in(argument, image, desc_of(image), Desc(dims_of(image.shape()), type_of(image.dtype()), Tag::nhwc), seen);
}

// out = image * filter + bias, of images.
void multiply(Device& device, const Plan& plan, const Tensor& image, const Tensor& filter, const Tensor& bias,
              Tensor& out) {
  out.materialize(Layout::nhwc);
  Call call(device, plan);
  take_image(call, DNNL_ARG_SRC, image, plan.x);
  call.in(DNNL_ARG_WEIGHTS, filter, plan.w, plan.w);
  if (!bias.empty()) call.vector(DNNL_ARG_BIAS, bias.reshaped({1, bias.elements()}));
  call.out(DNNL_ARG_DST, out, plan.y, plan.y);
  call.run();
}

}  // namespace

bool is_product(const Conv2d& op) {
  return is_pointwise(op.w, op.window, op.groups) && is_operand(op.x, op.w) && is_result(op.out);
}
bool is_product(const Conv2dBackwardData& op) {
  return is_pointwise(op.w, op.window, op.groups) && is_operand(op.dy, op.w) && is_result(op.dx);
}
bool is_product(const Conv2dBackwardWeights& op) {
  return is_pointwise(op.dw, op.window, op.groups) && is_operand(op.x, op.dw) && is_operand(op.dy, op.dw);
}

Plan make_product_plan(const Conv2d& op, bool biased) {
  const Shape& w = op.w.shape();
  return product(matrix_of_pixels(op.x), transposed(op.w, w[0], w[1]), matrix_of_pixels(op.out),
                 biased ? plain_desc({1, w[0]}, DataType::f32) : Desc());
}
Plan make_product_plan(const Conv2dBackwardData& op) {
  const Shape& w = op.w.shape();
  return product(matrix_of_pixels(op.dy), matrix(op.w, w[0], w[1]), matrix_of_pixels(op.dx));
}
Plan make_product_plan(const Conv2dBackwardWeights& op) {
  const Shape& w = op.dw.shape();
  return product(transposed(op.dy, pixels_of(op.dy), w[0]), matrix_of_pixels(op.x), matrix(op.dw, w[0], w[1]));
}

void run_product(Device& device, const Plan& plan, const Conv2d& op, const Tensor& bias) {
  multiply(device, plan, op.x, op.w, bias, op.out);
}
void run_product(Device& device, const Plan& plan, const Conv2dBackwardData& op) {
  multiply(device, plan, op.dy, op.w, {}, op.dx);
}
void run_product(Device& device, const Plan& plan, const Conv2dBackwardWeights& op) {
  op.dw.materialize(Layout::plain);  // optimizers read filters: use a layout that every row reads
  Call call(device, plan);
  take_image(call, DNNL_ARG_SRC, op.dy, plan.x);
  take_image(call, DNNL_ARG_WEIGHTS, op.x, plan.w);
  call.out(DNNL_ARG_DST, op.dw, plan.y, plan.y);
  call.run();
}

}  // namespace halfmark::kernels::onednn
