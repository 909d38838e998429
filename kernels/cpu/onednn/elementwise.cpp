// Addition and layout conversion on the rows "onednn". There is no row for ReLU: oneDNN (2.6 and 3.2 were tried)
// computes max(x, 0) such that a NaN becomes 0, and backward 0 * NaN = NaN. halfmark must not lose a NaN. The host
// loops read the same layouts and propagate it.
#include <initializer_list>
#include <string>

#include "kernels/cpu/onednn/plan.h"
#include "kernels/cpu/onednn/rows.h"

namespace halfmark::kernels::onednn {
namespace {

Refusal refuses_same(std::initializer_list<const Tensor*> operands) {
  const DType dtype = (*operands.begin())->dtype();
  for (const Tensor* operand : operands)
    if (operand->dtype() != dtype) return "operands of different dtypes";
  return refuses_dtype(dtype);
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
  if (opaque) return {};  // only oneDNN can read it
  // On processors without instructions for bf16 its conversion makes subnormal numbers zero; the host copies bits.
  if (dtype == DType::bf16) return "oneDNN may flush subnormal bf16 numbers";
  if (dtype != DType::f32) return std::string(name_of(dtype)) + " is faster without oneDNN";
  return {};
}

void run_reorder(Device&, const Reorder& op) {
  op.out.materialize(Layout::plain);
  // A filter with groups has a rank of its own in an opaque layout; the plain side is viewed with the same rank.
  Desc given = desc_of(op.x), wanted = desc_of(op.out);
  if (onednn::dims_of(given).size() > onednn::dims_of(wanted).size())
    wanted = filter_desc(op.out, static_cast<int>(onednn::dims_of(given)[0]));
  if (onednn::dims_of(wanted).size() > onednn::dims_of(given).size())
    given = filter_desc(op.x, static_cast<int>(onednn::dims_of(wanted)[0]));
  reorder_quietly(given, op.x.data(), wanted, op.out.data());
  count_reorder();
}

}  // namespace

void add_elementwise(KernelTable& table) {
  // bf16 is stored by VCVTNEPS2BF16, which makes subnormal results zero whatever MXCSR says (Intel SDM, volume 2).
  table.of<Add>().push_back(
      {.name = "onednn", .speed = Speed::real, .refuses = refuses_add, .run = run_add, .flushes_subnormals = true});
  table.of<Reorder>().push_back({"onednn", Speed::real, refuses_reorder, run_reorder});
}

}  // namespace halfmark::kernels::onednn
