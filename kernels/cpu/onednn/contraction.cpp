// Matrix multiplication and the three convolutions, on the rows "onednn".
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/onednn/plan.h"
#include "kernels/cpu/onednn/pointwise.h"
#include "kernels/cpu/onednn/rows.h"

namespace halfmark::kernels::onednn {
namespace {

Desc matrix_desc(const Tensor& matrix, bool transposed) {
  if (!transposed || matrix.layout() == Layout::opaque) return desc_of(matrix);
  const Shape& s = matrix.shape();
  return Desc(Dims{s[1], s[0]}, type_of(matrix.dtype()), Dims{1, s[1]});
}

// A product with so few rows reads b as it is: packing b takes longer than it saves. Measured with weights that change in
// every step, as in training, on AVX-512 and AMX with oneDNN 2.6.3 and one thread, packed / as it is, forward: with 64 rows
// (k and n 1024) 1.25 in fp32 and 3.5 in bf16, with 256 (512) 1.03 and 1.5, with 1024 (384 and 1152) 1.00 and 0.96.
constexpr int64_t kFewRows = 512;

Plan make_matmul_plan(const Matmul& op) {
  dnnl::primitive_attr attr = attributes();
  if (op.beta != 0) {
    dnnl::post_ops sum;
    sum.append_sum(static_cast<float>(op.beta));
    attr.set_post_ops(sum);
  }
  const Desc a = matrix_desc(op.a, op.transpose_a), b = matrix_desc(op.b, op.transpose_b);
  const Desc out =
      op.out.layout() == Layout::any ? plain_desc(dims_of(op.out.shape()), type_of(op.out.dtype())) : desc_of(op.out);
  const bool as_it_is = op.out.shape()[0] <= kFewRows || op.b.layout() == Layout::opaque;
  const auto description =
      make_matmul(a, as_it_is ? b : Desc(onednn::dims_of(b), type_of(op.b.dtype()), Tag::any), out, attr);
  Plan plan = plan_of<dnnl::matmul>(description);
  plan.x = description.src_desc(), plan.w = description.weights_desc(), plan.y = description.dst_desc();
  return plan;
}

// oneDNN's reference code widens narrow numbers one by one: its time says nothing about the hardware, and the upcast
// row is far faster. Observed in fp16 convolution backward: a quick suite took ten minutes with it (oneDNN 3.1.1).
template <class Op>
Refusal refuses_narrow_reference(const Op& op, DType operand, Plan (*make)(const Op&)) {
  if (Refusal refusal = refuses_plan(op, make)) return refusal;
  const std::string& implementation = plan_for(op, make).implementation;
  if (operand == DType::f32 || !is_reference(implementation)) return {};
  return library_name() + " has only reference code for it (" + implementation + ")";
}

Refusal refuses_matmul(const Device&, const Matmul& op) {
  for (const Tensor* operand : {&op.a, &op.b})
    if (Refusal refusal = refuses_dtype(operand->dtype())) return refusal;
  if (Refusal refusal = refuses_math(op.math, op.a.dtype())) return refusal;
  if ((op.transpose_a && op.a.layout() == Layout::opaque) || (op.transpose_b && op.b.layout() == Layout::opaque))
    return "a matrix with an opaque layout cannot be transposed";
  if (op.beta != static_cast<double>(static_cast<float>(op.beta))) return "beta is not an fp32 number";
  return refuses_narrow_reference(op, op.a.dtype(), make_matmul_plan);
}

void run_matmul(Device& device, const Matmul& op) {
  const Plan& plan = plan_for(op, make_matmul_plan);
  Call call(device, plan);
  call.in(DNNL_ARG_SRC, op.a, matrix_desc(op.a, op.transpose_a), plan.x);
  // A parameter stays packed until it is written. An activation is
  // used once, so caching its packed copy would only waste memory.
  const Purpose purpose = op.b.purpose();
  if (purpose == Purpose::weights || purpose == Purpose::master || purpose == Purpose::casts)
    call.packed(DNNL_ARG_WEIGHTS, op.b, matrix_desc(op.b, op.transpose_b), plan.w);
  else
    call.in(DNNL_ARG_WEIGHTS, op.b, matrix_desc(op.b, op.transpose_b), plan.w);
  call.out(DNNL_ARG_DST, op.out, plan.y);
  call.run();
}

Geometry geometry_of(const Window& w) {
  const Dims padding{w.pad_h, w.pad_w};
  return {{w.stride_h, w.stride_w}, {w.dilation_h - 1, w.dilation_w - 1}, {}, padding, padding};
}

// Images stay in their layout if oneDNN has fast code for it; otherwise oneDNN chooses the layout. For plain images
// oneDNN always chooses: it has fast code for them only with few channels, and picks plain in that case.
Desc image_wish(const Tensor& image) {
  const bool keeps = image.layout() == Layout::nhwc || image.layout() == Layout::opaque;
  return keeps ? desc_of(image) : open_desc(image.shape(), image.dtype());
}

Desc nhwc_desc(const Tensor& image) { return Desc(dims_of(image.shape()), type_of(image.dtype()), Tag::nhwc); }

// With a channel for each group, only the code for it ("jit_dw") is: other code computes blocks of 16 channels, most of them
// zeros.
bool worth_keeping(const std::string& implementation, bool is_depthwise) {
  const auto is = [&](const char* part) { return implementation.find(part) != std::string::npos; };
  return !is_reference(implementation) && !is("gemm") && (!is_depthwise || is("dw"));
}

// make(x, y) -> a primitive descriptor with image-sized operands x and y.
template <class Make>
auto best_images(const Tensor& x, const Tensor& y, int groups, Make make) {
  const bool is_depthwise = groups > 1 && groups == x.shape()[1];
  const Desc open_x = open_desc(x.shape(), x.dtype()), open_y = open_desc(y.shape(), y.dtype());
  std::vector<std::pair<Desc, Desc>> wishes = {{image_wish(x), image_wish(y)}};
  // Beside an nhwc image oneDNN 2.6 may leave an open one to its reference code, while it has fast code for nhwc beside nhwc.
  if (x.layout() == Layout::nhwc || y.layout() == Layout::nhwc) wishes.emplace_back(nhwc_desc(x), nhwc_desc(y));
  for (const auto& [wish_x, wish_y] : wishes) {
    if (wish_x == open_x && wish_y == open_y) continue;
    try {
      auto description = make(wish_x, wish_y);
      if (worth_keeping(description.impl_info_str(), is_depthwise)) return description;
    } catch (const dnnl::error&) {  // oneDNN does not support this combination of layouts
    }
  }
  return make(open_x, open_y);
}

Desc open_filter(const Tensor& w, int groups) {
  return Desc(filter_dims(w.shape(), groups), type_of(w.dtype()), Tag::any);
}

dnnl::convolution_forward::primitive_desc forward_of(const Desc& x, const Desc& w, const Desc& y, const Geometry& g,
                                                     const Desc& bias = Desc()) {
  return make_convolution(x, w, y, g, attributes(), bias);
}

Plan conv_plan(const Conv2d& op, bool biased) {
  if (is_product(op)) return make_product_plan(op, biased);
  const Desc w = open_filter(op.w, op.groups), bias = biased ? plain_desc({op.w.shape()[0]}, DataType::f32) : Desc();
  const auto description = best_images(op.x, op.out, op.groups, [&](const Desc& x, const Desc& y) {
    return forward_of(x, w, y, geometry_of(op.window), bias);
  });
  Plan plan = plan_of<dnnl::convolution_forward>(description);
  plan.x = description.src_desc(), plan.w = description.weights_desc(), plan.y = description.dst_desc();
  return plan;
}

Plan make_conv_plan(const Conv2d& op) { return conv_plan(op, false); }
Plan make_fused_conv_plan(const FusedConv2d& op) { return conv_plan(op.product(op.out), !op.bias.empty()); }

Plan make_conv_backward_data_plan(const Conv2dBackwardData& op) {
  if (is_product(op)) return make_product_plan(op);
  const Desc w = open_filter(op.w, op.groups);
  const auto description = best_images(op.dx, op.dy, op.groups, [&](const Desc& dx, const Desc& dy) {
    const Geometry g = geometry_of(op.window);
    // The forward hint may have a wider result than dy: only its kind matters.
    const Desc x = open_desc(op.dx.shape(), op.dy.dtype()), y = open_desc(op.dy.shape(), op.dy.dtype());
    return make_convolution_backward_data(dx, w, dy, g, attributes(), forward_of(x, w, y, g));
  });
  Plan plan = plan_of<dnnl::convolution_backward_data>(description);
  plan.x = description.diff_src_desc(), plan.w = description.weights_desc(), plan.y = description.diff_dst_desc();
  return plan;
}

// oneDNN 2.6.3 gives wrong gradients here: its AVX2 code for 1 x 1 filters, which gathers the strided nhwc images first, reads
// beyond images of 3 or 4 channels (it works on blocks of 8). Seen on an AMD EPYC; left out for every part of a block.
bool is_wrong(const dnnl::convolution_backward_weights::primitive_desc& found, const Conv2dBackwardWeights& op) {
  const bool is_strided = op.window.stride_h > 1 || op.window.stride_w > 1;
  return is_strided && op.x.shape()[1] % 8 != 0 && found.src_desc() == nhwc_desc(op.x) &&
         std::string(found.impl_info_str()).find("1x1") != std::string::npos;
}

Plan make_conv_backward_weights_plan(const Conv2dBackwardWeights& op) {
  if (is_product(op)) return make_product_plan(op);
  const Desc dw = open_filter(op.dw, op.groups);
  const auto description = best_images(op.x, op.dy, op.groups, [&](const Desc& x, const Desc& dy) {
    const Geometry g = geometry_of(op.window);
    const Desc w(filter_dims(op.dw.shape(), op.groups), type_of(op.x.dtype()), Tag::any);
    const Desc hint_x = open_desc(op.x.shape(), op.x.dtype()), hint_y = open_desc(op.dy.shape(), op.dy.dtype());
    auto found = make_convolution_backward_weights(x, dw, dy, g, attributes(), forward_of(hint_x, w, hint_y, g));
    if (is_wrong(found, op)) throw dnnl::error(dnnl_unimplemented, "this code of oneDNN is wrong");
    return found;
  });
  Plan plan = plan_of<dnnl::convolution_backward_weights>(description);
  plan.x = description.src_desc(), plan.w = description.diff_weights_desc(), plan.y = description.diff_dst_desc();
  return plan;
}

template <class Op>
Refusal refuses_conv(const Tensor& a, const Tensor& b, const Op& op, Plan (*make)(const Op&)) {
  if (a.dtype() != b.dtype())
    return "mixed operands: " + std::string(name_of(a.dtype())) + " and " + std::string(name_of(b.dtype()));
  if (Refusal refusal = refuses_dtype(a.dtype())) return refusal;
  if (Refusal refusal = refuses_math(op.math, a.dtype())) return refusal;
  return refuses_narrow_reference(op, a.dtype(), make);
}

Refusal refuses_conv_forward(const Device&, const Conv2d& op) { return refuses_conv(op.x, op.w, op, make_conv_plan); }
Refusal refuses_conv_backward_data(const Device&, const Conv2dBackwardData& op) {
  return refuses_conv(op.dy, op.w, op, make_conv_backward_data_plan);
}
Refusal refuses_conv_backward_weights(const Device&, const Conv2dBackwardWeights& op) {
  if (op.dw.layout() == Layout::opaque && op.groups != 1) return "grouped filters have an opaque layout";
  return refuses_conv(op.x, op.dy, op, make_conv_backward_weights_plan);
}

// The bias is added to sums in fp32, which are rounded once. ReLU follows on the rounded result, which gives the same numbers:
// oneDNN's own makes 0 of a NaN (elementwise.cpp).
Refusal refuses_fused_conv(const Device&, const FusedConv2d& op) {
  if (!op.bias.empty() && op.bias.dtype() == DType::f64) return "takes no bias of f64";
  return refuses_conv(op.x, op.w, op, make_fused_conv_plan);
}

void convolve(Device& device, const Plan& plan, const Conv2d& op, const Tensor& bias) {
  if (is_product(op)) return run_product(device, plan, op, bias);
  Call call(device, plan);
  call.in(DNNL_ARG_SRC, op.x, plan.x);
  call.packed(DNNL_ARG_WEIGHTS, op.w, filter_desc(op.w, op.groups), plan.w);
  if (!bias.empty()) call.vector(DNNL_ARG_BIAS, bias);
  call.out(DNNL_ARG_DST, op.out, plan.y);
  call.run();
}

void run_conv(Device& device, const Conv2d& op) { convolve(device, plan_for(op, make_conv_plan), op, {}); }

void run_fused_conv(Device& device, const FusedConv2d& op) {
  convolve(device, plan_for(op, make_fused_conv_plan), op.product(op.out), op.bias);
  if (op.relu) run(Activation<activations::Relu>{.x = op.out, .out = op.out});
}

void run_conv_backward_data(Device& device, const Conv2dBackwardData& op) {
  const Plan& plan = plan_for(op, make_conv_backward_data_plan);
  if (is_product(op)) return run_product(device, plan, op);
  Call call(device, plan);
  call.in(DNNL_ARG_DIFF_DST, op.dy, plan.y);
  call.packed(DNNL_ARG_WEIGHTS, op.w, filter_desc(op.w, op.groups), plan.w);
  call.out(DNNL_ARG_DIFF_SRC, op.dx, plan.x);
  call.run();
}

void run_conv_backward_weights(Device& device, const Conv2dBackwardWeights& op) {
  const Plan& plan = plan_for(op, make_conv_backward_weights_plan);
  if (is_product(op)) return run_product(device, plan, op);
  Call call(device, plan);
  call.in(DNNL_ARG_SRC, op.x, plan.x);
  call.in(DNNL_ARG_DIFF_DST, op.dy, plan.y);
  op.dw.materialize(Layout::plain);  // optimizers read filters: use a layout that every row reads
  call.out(DNNL_ARG_DIFF_WEIGHTS, op.dw, filter_desc(op.dw, op.groups), plan.w);
  call.run();
}

}  // namespace

void add_contractions(KernelTable& table) {
  table.of<Matmul>().push_back({"onednn", Speed::real, refuses_matmul, run_matmul});
  table.of<Conv2d>().push_back({"onednn", Speed::real, refuses_conv_forward, run_conv});
  table.of<Conv2dBackwardData>().push_back({"onednn", Speed::real, refuses_conv_backward_data, run_conv_backward_data});
  table.of<Conv2dBackwardWeights>().push_back(
      {"onednn", Speed::real, refuses_conv_backward_weights, run_conv_backward_weights});
  table.of<FusedConv2d>().push_back({"onednn", Speed::real, refuses_fused_conv, run_fused_conv});
}

}  // namespace halfmark::kernels::onednn
