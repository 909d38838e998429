// ReLU, addition and the change of layout on the rows "onednn".
#include <limits>

#include "kernels/cpu/onednn/plan.h"
#include "kernels/cpu/onednn/rows.h"

namespace halfmark::onednn {
namespace {

Refusal refuses_same(std::initializer_list<const Tensor*> operands) {
  const DType dtype = (*operands.begin())->dtype();
  for (const Tensor* operand : operands)
    if (operand->dtype() != dtype) return "operands of two dtypes";
  return refuses_dtype(dtype);
}

// oneDNN up to at least 3.2 gives max(x, 0) = 0 for a NaN, and 0 * NaN = NaN backward. A NaN that disappears is the wrong number
// this suite is looking for, so the library is asked once, with one vector, and its rows are used only when it answers right.
bool relu_keeps_nan() {
  static const bool keeps = [] {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    float x[16], y[16], dy[16], dx[16];
    for (int i = 0; i < 16; ++i) x[i] = i % 2 ? kNan : -1.0f, dy[i] = kNan, y[i] = dx[i] = 0;
    const Desc desc = plain_desc({16}, DataType::f32);
    const dnnl::primitive_attr attr;
    const auto forward = make_relu(desc, attr);
    const auto backward = make_relu_backward(desc, attr, forward);
    const dnnl::memory mx(desc, engine(), x), my(desc, engine(), y), mdy(desc, engine(), dy), mdx(desc, engine(), dx);
    dnnl::eltwise_forward(forward).execute(stream(), {{DNNL_ARG_SRC, mx}, {DNNL_ARG_DST, my}});
    dnnl::eltwise_backward(backward).execute(stream(), {{DNNL_ARG_DST, mx}, {DNNL_ARG_DIFF_DST, mdy}, {DNNL_ARG_DIFF_SRC, mdx}});
    stream().wait();
    bool right = true;
    for (int i = 0; i < 16; ++i) right = right && (i % 2 ? y[i] != y[i] : y[i] == 0) && dx[i] == 0;
    return right;
  }();
  return keeps;
}

Refusal refuses_nan() {
  if (checked("relu", relu_keeps_nan)) return {};
  return library_name() + " turns NaN into 0 in a ReLU, or lets it through where the gradient is 0";
}

Plan make_relu_plan(const Relu& op) {
  const Desc x = desc_of(op.x);
  Plan plan = plan_of<dnnl::eltwise_forward>(make_relu(x, attributes()));
  plan.x = plan.y = x;
  return plan;
}

Refusal refuses_relu(const Device&, const Relu& op) {
  if (Refusal refusal = refuses_same({&op.x, &op.out})) return refusal;
  if (Refusal refusal = refuses_nan()) return refusal;
  return refuses_plan(op, make_relu_plan);
}

void run_relu(Device& device, const Relu& op) {
  const Plan& plan = plan_for(op, make_relu_plan);
  Call call(device, plan);
  call.in(DNNL_ARG_SRC, op.x, plan.x);
  call.out(DNNL_ARG_DST, op.out, plan.y);
  call.run();
}

Plan make_relu_backward_plan(const ReluBackward& op) {
  const Desc y = common_desc(op.y, op.dy);
  Plan plan = plan_of<dnnl::eltwise_backward>(make_relu_backward(y, attributes(), make_relu(y, attributes())));
  plan.x = plan.y = y;
  return plan;
}

Refusal refuses_relu_backward(const Device&, const ReluBackward& op) {
  if (Refusal refusal = refuses_same({&op.y, &op.dy, &op.dx})) return refusal;
  if (Refusal refusal = refuses_nan()) return refusal;
  return refuses_plan(op, make_relu_backward_plan);
}

void run_relu_backward(Device& device, const ReluBackward& op) {
  const Plan& plan = plan_for(op, make_relu_backward_plan);
  Call call(device, plan);
  call.in(DNNL_ARG_DST, op.y, plan.y), call.in(DNNL_ARG_DIFF_DST, op.dy, plan.y);
  call.out(DNNL_ARG_DIFF_SRC, op.dx, plan.x);
  call.run();
}

Plan make_add_plan(const Add& op) {
  const Desc desc = common_desc(op.a, op.b);
  Plan plan = plan_of<dnnl::binary>(make_add(desc, desc, desc, attributes()));
  plan.x = plan.w = plan.y = desc;
  return plan;
}

Refusal refuses_add(const Device&, const Add& op) {
  if (Refusal refusal = refuses_same({&op.a, &op.b, &op.out})) return refusal;
  return refuses_plan(op, make_add_plan);
}

void run_add(Device& device, const Add& op) {
  const Plan& plan = plan_for(op, make_add_plan);
  Call call(device, plan);
  call.in(DNNL_ARG_SRC_0, op.a, plan.x), call.in(DNNL_ARG_SRC_1, op.b, plan.w);
  call.out(DNNL_ARG_DST, op.out, plan.y);
  call.run();
}

Refusal refuses_reorder(const Device&, const Reorder& op) {
  const bool opaque = op.x.layout() == Layout::opaque || op.out.layout() == Layout::opaque;
  const DType dtype = op.x.dtype();
  if (opaque) return {};  // nobody else reads it
  if (dtype != DType::f32 && dtype != DType::bf16) return std::string(name_of(dtype)) + " moves faster without oneDNN";
  return {};
}

void run_reorder(Device&, const Reorder& op) {
  op.out.materialize(Layout::plain);
  // A filter of several groups has its own rank in an opaque layout; the plain side is seen in the same one.
  Desc given = desc_of(op.x), wanted = desc_of(op.out);
  if (onednn::dims_of(given).size() > onednn::dims_of(wanted).size())
    wanted = filter_desc(op.out, static_cast<int>(onednn::dims_of(given)[0]));
  if (onednn::dims_of(wanted).size() > onednn::dims_of(given).size())
    given = filter_desc(op.x, static_cast<int>(onednn::dims_of(wanted)[0]));
  reorder_quietly(given, op.x.data(), wanted, op.out.data());
}

}  // namespace

void add_elementwise(KernelTable& table) {
  table.of<Relu>().push_back({"onednn", Speed::real, refuses_relu, run_relu});
  table.of<ReluBackward>().push_back({"onednn", Speed::real, refuses_relu_backward, run_relu_backward});
  table.of<Add>().push_back({"onednn", Speed::real, refuses_add, run_add});
  table.of<Reorder>().push_back({"onednn", Speed::real, refuses_reorder, run_reorder});
}

}  // namespace halfmark::onednn
